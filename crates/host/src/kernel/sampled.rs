//! Functions and USDT probes that report samples which targets take of their own allocations.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};

use aya::maps::{Array, MapData, MapError};
use memtrace_common::wire::{MAX_SAMPLED_FUNCTIONS, SampledFunction, ValuePlace, interval_kind, value_place};
use memtrace_model::{AllocatorId, ArgumentLocation, ArgumentPlace, FileOffset};

use super::attach_point::AttachPoint;
use super::bpf::Bpf;
use super::error::KernelError;
use super::wire_type::MapEntry;
use crate::object_budget::ObjectOwner;

/// Map of the functions and USDT probes, by the cookies of their probes.
const FUNCTIONS: &str = "SAMPLED_FUNCTIONS";

/// Programs at draws, at sampled allocations and at frees.
const DRAW_PROGRAM: &str = "sampled_size";
const ALLOC_PROGRAM: &str = "sampled_alloc";
const FREE_PROGRAM: &str = "sampled_free";

/// Programs at sampled allocations, at reallocs and at failed reallocs of patched processes.
const PATCHED_PROGRAM: &str = "patched_alloc";
const TENTATIVE_PROGRAM: &str = "patched_tentative";
const UNDO_PROGRAM: &str = "patched_undo";

/// All programs at functions and USDT probes that report samples.
pub(super) const PROGRAMS: [&str; 6] =
    [DRAW_PROGRAM, ALLOC_PROGRAM, FREE_PROGRAM, PATCHED_PROGRAM, TENTATIVE_PROGRAM, UNDO_PROGRAM];

/// DWARF number of the stack pointer (System V ABI, AMD64 supplement, figure 3.36). Only processes on x86-64 are patched.
const STACK_POINTER: u8 = 7;

/// Maximum number of entries for the objects of one owner.
const MAX_OF_OWNER: usize = MAX_SAMPLED_FUNCTIONS / 4;

/// Maximum number of entries for all objects that users can have made. One user can count as several owners, one for each file
/// system.
const MAX_OF_USERS: usize = MAX_SAMPLED_FUNCTIONS / 4 * 3;

/// Instruction at which a target reports a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledSite {
    /// File offset of the probed instruction.
    pub offset: FileOffset,
    /// File offset of the probe's semaphore. The target samples only if this counter is not 0.
    pub semaphore: Option<FileOffset>,
    /// Report of the target.
    pub report: SampleReport,
    /// Allocator of the block; [`AllocatorId::UNKNOWN`] if events do not contain it.
    pub allocator: AllocatorId,
}

/// Report of a target about its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleReport {
    /// The free of a block, which may be sampled.
    Free {
        /// Address of the block, or of a structure that belongs to the block.
        block: ArgumentPlace,
    },
    /// The thread decides whether a block is sampled.
    Draw {
        /// Size of the block.
        size: ArgumentPlace,
    },
    /// A sampled block.
    Alloc {
        /// Address of the block, or of a structure that belongs to the block.
        block: ArgumentPlace,
        /// Sizes of the block.
        sizes: SampledSizes,
        /// Sampling interval.
        interval: SampledInterval,
        /// Bytes from the probed instruction to the list of sampled blocks. A call with another list as its first argument
        /// reports no block. `None` if each call reports a block.
        list: Option<i64>,
    },
    /// A block that a patched allocator has sampled: its values are on the stack when the function returns.
    PatchedAlloc {
        /// Bytes from the stack pointer to the address of the block.
        block: i64,
        /// Bytes from the stack pointer to the size of the block, for which the sampler draws.
        size: i64,
        /// Bytes from the stack pointer to the sampling interval, with the level of thinning in the upper byte.
        interval: i64,
    },
    /// A realloc of a patched allocator frees the block unless it fails.
    Tentative {
        /// Address of the block.
        block: ArgumentPlace,
    },
    /// The realloc has failed, and keeps the block.
    Undo {
        /// Address of the block.
        block: ArgumentPlace,
    },
}

/// Sizes of a sampled block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledSizes {
    /// The target reports both.
    At {
        /// Size of the block.
        size: ArgumentPlace,
        /// Size for which the sampler draws; for [`SampledInterval::Weighted`], number of bytes that the block stands for.
        drawn: ArgumentPlace,
    },
    /// The size of the thread's last [`SampleReport::Draw`].
    LastDraw {
        /// Number of bytes that the sampler adds to the size of each block.
        extra: u32,
    },
}

/// Sampling interval of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledInterval {
    /// The target has weighted the block.
    Weighted,
    /// A variable has the interval in bytes.
    Bytes {
        /// Bytes from the probed instruction to the variable.
        distance: i64,
    },
    /// A variable has the binary logarithm of the interval.
    BinaryLogarithm {
        /// Bytes from the probed instruction to the variable.
        distance: i64,
    },
}

/// Functions and USDT probes in the map.
#[derive(Default)]
pub(super) struct SampledFunctions {
    /// Entries in use, by their index.
    used: BTreeMap<u32, Entry>,
    /// Indices of freed entries. The index that was freed first is reused first, so that each entry stays unchanged for as long
    /// as possible: the probes that use it are removed in the background.
    free: VecDeque<u32>,
}

/// Entry of the map.
struct Entry {
    function: SampledFunction,
    /// Paths of the objects whose probes use the entry, with the owners of their files.
    objects: HashMap<PathBuf, ObjectOwner>,
}

impl SampledFunctions {
    /// Returns the programs and the attach points for the sites of the object at `path`. Equal sites share an entry of the map.
    /// `owner`: owner of the object's file. Calls `write` with the index of each new entry. Returns `None` if all objects, or the
    /// objects of this owner, have too many different sites. In this case, the sites of the object take no entries.
    ///
    /// # Errors
    ///
    /// Errors of `write`.
    pub(super) fn points(
        &mut self,
        path: &Path,
        owner: ObjectOwner,
        sites: &[SampledSite],
        mut write: impl FnMut(u32, SampledFunction) -> Result<(), KernelError>,
    ) -> Result<Option<Vec<(&'static str, AttachPoint)>>, KernelError> {
        let functions: Vec<_> = sites.iter().map(function).collect();
        let mut different: Vec<SampledFunction> = Vec::new();
        for &function in &functions {
            if !different.contains(&function) {
                different.push(function);
            }
        }
        if !self.has_room(owner, &different) {
            return Ok(None);
        }
        for function in different {
            if self.index(function).is_none() {
                let index = self.unused();
                write(index, function)?;
                self.free.retain(|&free| free != index);
                self.used.insert(index, Entry { function, objects: HashMap::new() });
            }
        }
        let points = sites.iter().zip(functions).filter_map(|(site, function)| {
            let index = self.index(function)?;
            self.used.get_mut(&index)?.objects.insert(path.to_owned(), owner);
            let cookie = Some(index.into());
            Some((program(site), AttachPoint { offset: site.offset, cookie, semaphore: site.semaphore }))
        });
        Ok(Some(points.collect()))
    }

    /// Returns true if an object of `owner` can use entries for `functions`, which are all different. Files of root on a disk
    /// can use all entries.
    fn has_room(&self, owner: ObjectOwner, functions: &[SampledFunction]) -> bool {
        let new = functions.iter().filter(|&&function| self.index(function).is_none()).count();
        if self.used.len() + new > MAX_SAMPLED_FUNCTIONS {
            return false;
        }
        owner.is_root_of_disk()
            || self.number_with(functions, |other| other == owner) <= MAX_OF_OWNER
                && self.number_with(functions, |other| !other.is_root_of_disk()) <= MAX_OF_USERS
    }

    /// Returns the number of entries that the objects of the owners that `is_certain` accepts would use, if one of
    /// these objects also used entries for `functions`.
    fn number_with(&self, functions: &[SampledFunction], is_certain: impl Fn(ObjectOwner) -> bool) -> usize {
        let is_other = |entry: &&Entry| {
            !functions.contains(&entry.function) && entry.objects.values().any(|&owner| is_certain(owner))
        };
        self.used.values().filter(is_other).count() + functions.len()
    }

    /// Frees the entries that only the objects at `paths` use. No process maps these objects any more.
    pub(super) fn remove_objects(&mut self, paths: &HashSet<PathBuf>) {
        let unused = self.used.extract_if(.., |_, entry| {
            entry.objects.retain(|path, _| !paths.contains(path));
            entry.objects.is_empty()
        });
        self.free.extend(unused.map(|(index, _)| index));
    }

    fn index(&self, function: SampledFunction) -> Option<u32> {
        self.used.iter().find(|(_, entry)| entry.function == function).map(|(&index, _)| index)
    }

    /// Returns the index for a new entry: one that was never used, or else the one that was freed first.
    fn unused(&self) -> u32 {
        // Each index that was ever used is in use or free.
        let next = self.used.len() + self.free.len();
        match self.free.front() {
            Some(&freed) if next >= MAX_SAMPLED_FUNCTIONS => freed,
            _ => next as u32,
        }
    }
}

/// Action of errors.
const ACTION: &str = "write the functions that report samples";

/// Writes the entry `index` of the map.
pub(super) fn write(bpf: &mut Bpf, index: u32, function: SampledFunction) -> Result<(), KernelError> {
    let failed = |error: MapError| KernelError::from_error(ACTION, &error);
    let mut functions: Array<&mut MapData, MapEntry<SampledFunction>> =
        bpf.map_mut(FUNCTIONS)?.try_into().map_err(failed)?;
    functions.set(index, MapEntry(function), 0).map_err(failed)
}

/// Returns the program at a site.
const fn program(site: &SampledSite) -> &'static str {
    match site.report {
        SampleReport::Free { .. } => FREE_PROGRAM,
        SampleReport::Draw { .. } => DRAW_PROGRAM,
        SampleReport::Alloc { .. } => ALLOC_PROGRAM,
        SampleReport::PatchedAlloc { .. } => PATCHED_PROGRAM,
        SampleReport::Tentative { .. } => TENTATIVE_PROGRAM,
        SampleReport::Undo { .. } => UNDO_PROGRAM,
    }
}

/// Returns the entry of the map for a site.
fn function(site: &SampledSite) -> SampledFunction {
    let none = SampledFunction { allocator: site.allocator.0.into(), ..SampledFunction::default() };
    match site.report {
        SampleReport::Free { block } | SampleReport::Tentative { block } | SampleReport::Undo { block } => {
            SampledFunction { address: place(block), ..none }
        }
        SampleReport::Draw { size } => SampledFunction { size: place(size), ..none },
        SampleReport::Alloc { block, sizes, interval, list } => {
            let (size, drawn, extra) = match sizes {
                SampledSizes::At { size, drawn } => (place(size), place(drawn), 0),
                SampledSizes::LastDraw { extra } => (LAST_DRAW, LAST_DRAW, extra),
            };
            let (interval_kind, interval) = match interval {
                SampledInterval::Weighted => (interval_kind::WEIGHTED, 0),
                SampledInterval::Bytes { distance } => (interval_kind::BYTES, distance),
                SampledInterval::BinaryLogarithm { distance } => (interval_kind::BINARY_LOGARITHM, distance),
            };
            let (address, list) = (place(block), list.unwrap_or(0));
            SampledFunction { address, size, drawn, extra, interval_kind, interval, list, ..none }
        }
        SampleReport::PatchedAlloc { block, size, interval } => {
            let (address, size) = (on_stack(block), on_stack(size));
            SampledFunction { address, size, drawn: size, interval_kind: interval_kind::STACK, interval, ..none }
        }
    }
}

/// Returns the place of a word on the stack. `offset`: bytes from the stack pointer.
fn on_stack(offset: i64) -> ValuePlace {
    place(ArgumentPlace::word(ArgumentLocation::Memory { register: STACK_POINTER, offset }))
}

/// Place of the size that the thread has drawn last.
const LAST_DRAW: ValuePlace =
    ValuePlace { kind: value_place::DRAWN, register: 0, unused_bits: 0, signed: 0, reserved: 0, offset: 0 };

fn place(place: ArgumentPlace) -> ValuePlace {
    let (kind, register, offset) = match place.location {
        ArgumentLocation::Register(register) => (value_place::REGISTER, register, 0),
        ArgumentLocation::Memory { register, offset } => (value_place::MEMORY, register, offset),
        ArgumentLocation::Constant(constant) => (value_place::CONSTANT, 0, constant),
    };
    let unused_bits = u64::BITS as u8 - place.bits.min(u64::BITS as u8);
    ValuePlace { kind, register, unused_bits, signed: place.is_signed.into(), reserved: 0, offset }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: SampledSite = SampledSite {
        offset: FileOffset(16),
        semaphore: None,
        report: SampleReport::Free { block: ArgumentPlace::word(ArgumentLocation::Register(5)) },
        allocator: AllocatorId(7),
    };

    #[test]
    fn places_are_written_as_the_programs_read_them() {
        let signed = ArgumentPlace { location: ArgumentLocation::Register(3), bits: 32, is_signed: true };
        let written = place(signed);
        assert_eq!((written.kind, written.register, written.offset), (value_place::REGISTER, 3, 0));
        assert_eq!(written.value_in(0x1234_5678_ffff_ffff), u64::MAX);
        let memory = place(ArgumentPlace::word(ArgumentLocation::Memory { register: 6, offset: -16 }));
        assert_eq!((memory.kind, memory.register, memory.offset, memory.unused_bits), (value_place::MEMORY, 6, -16, 0));
        let byte = place(ArgumentPlace { location: ArgumentLocation::Constant(-1), bits: 8, is_signed: false });
        assert_eq!((byte.kind, byte.value_in(byte.offset.cast_unsigned())), (value_place::CONSTANT, 255));
    }

    fn frees(offsets: std::ops::Range<u64>) -> Vec<SampledSite> {
        let site = |offset: u64| {
            let block = ArgumentPlace::word(ArgumentLocation::Memory { register: 5, offset: offset.cast_signed() });
            SampledSite { offset: FileOffset(offset), report: SampleReport::Free { block }, ..SITE }
        };
        offsets.map(site).collect()
    }

    /// Returns the indices of the written entries, and the indices in the cookies of the probes.
    fn add(functions: &mut SampledFunctions, path: &str, sites: &[SampledSite]) -> Option<(Vec<u32>, Vec<u64>)> {
        add_of(ObjectOwner::root(), functions, path, sites)
    }

    /// Adds the sites of an object as [`add`] does.
    fn add_of(
        owner: ObjectOwner,
        functions: &mut SampledFunctions,
        path: &str,
        sites: &[SampledSite],
    ) -> Option<(Vec<u32>, Vec<u64>)> {
        let mut written = Vec::new();
        let points = functions.points(Path::new(path), owner, sites, |index, _| {
            written.push(index);
            Ok(())
        });
        let cookies = points.unwrap()?.into_iter().filter_map(|(_, point)| point.cookie).collect();
        Some((written, cookies))
    }

    #[test]
    fn entries_of_closed_objects_are_used_again() {
        let mut functions = SampledFunctions::default();
        assert_eq!(add(&mut functions, "/a", &frees(0..2)), Some((vec![0, 1], vec![0, 1])));
        assert_eq!(add(&mut functions, "/b", &frees(1..3)), Some((vec![2], vec![1, 2])), "equal sites share an entry");
        assert_eq!(add(&mut functions, "/b", &frees(1..3)), Some((vec![], vec![1, 2])));
        functions.remove_objects(&HashSet::from(["/a".into()]));
        let rest = MAX_SAMPLED_FUNCTIONS as u64;
        let (written, _) = add(&mut functions, "/c", &frees(100..100 + rest - 3)).unwrap();
        assert_eq!(written.first(), Some(&3), "an entry that was never used comes first");
        assert_eq!(add(&mut functions, "/d", &frees(0..1)), Some((vec![0], vec![0])));
        assert_eq!(add(&mut functions, "/e", &frees(3..4)), None);
        functions.remove_objects(&HashSet::from(["/b".into(), "/d".into()]));
        assert_eq!(add(&mut functions, "/e", &frees(3..4)), Some((vec![0], vec![0])));
    }

    #[test]
    fn object_with_too_many_sites_takes_no_entries() {
        let mut functions = SampledFunctions::default();
        let most = MAX_SAMPLED_FUNCTIONS as u64;
        assert_eq!(add(&mut functions, "/hostile", &frees(0..most + 1)), None);
        let (written, cookies) = add(&mut functions, "/a", &frees(0..most)).unwrap();
        assert_eq!((written.len(), cookies.len()), (MAX_SAMPLED_FUNCTIONS, MAX_SAMPLED_FUNCTIONS));
        assert_eq!(add(&mut functions, "/b", &frees(most..most + 1)), None);
    }

    #[test]
    fn objects_of_one_user_leave_entries_to_others() {
        let mut functions = SampledFunctions::default();
        let is_added = |functions: &mut SampledFunctions, user, path: &str, offsets| {
            add_of(ObjectOwner::user(user), functions, path, &frees(offsets)).is_some()
        };
        // 64 sites are the most that two providers have in a file.
        assert!(is_added(&mut functions, 1, "/a", 0..64) && is_added(&mut functions, 1, "/b", 64..128));
        assert!(!is_added(&mut functions, 1, "/c", 128..129), "a quarter of the entries is in use");
        assert!(is_added(&mut functions, 1, "/c", 0..64), "these sites have entries");
        assert!(is_added(&mut functions, 2, "/d", 0..64), "equal sites of another user share them");
        assert!(!is_added(&mut functions, 2, "/e", 1000..1065), "shared entries count for both users");
        assert!(is_added(&mut functions, 2, "/e", 1000..1064));
        functions.remove_objects(&HashSet::from(["/a".into(), "/c".into()]));
        assert!(is_added(&mut functions, 1, "/f", 2000..2064), "the entries of closed objects are free again");
    }

    #[test]
    fn objects_of_all_users_leave_entries_to_root() {
        let mut functions = SampledFunctions::default();
        for user in 1..=3 {
            let start = u64::from(user) * 1000;
            let added =
                add_of(ObjectOwner::user(user), &mut functions, &format!("/{user}"), &frees(start..start + 128));
            assert!(added.is_some(), "{user}");
        }
        assert_eq!(add_of(ObjectOwner::user(4), &mut functions, "/4", &frees(0..1)), None);
        assert!(add(&mut functions, "/usr/lib/a", &frees(0..128)).is_some());
        assert_eq!(add(&mut functions, "/usr/lib/b", &frees(200..201)), None);
    }

    #[test]
    fn sites_of_allocators_and_of_user_probes_differ() {
        let argument = |register| ArgumentPlace::word(ArgumentLocation::Register(register));
        let site = |sizes, interval, list| SampledSite {
            report: SampleReport::Alloc { block: argument(4), sizes, interval, list },
            ..SITE
        };
        let weighted = function(&site(
            SampledSizes::At { size: argument(4), drawn: argument(1) },
            SampledInterval::Weighted,
            None,
        ));
        assert_eq!((weighted.interval_kind, weighted.interval, weighted.list), (0, 0, 0));
        assert_eq!((weighted.size.register, weighted.drawn.register, weighted.allocator), (4, 1, 7));
        let interval = SampledInterval::Bytes { distance: -4096 };
        let drawn = function(&site(SampledSizes::LastDraw { extra: 1 }, interval, Some(64)));
        assert_eq!((drawn.interval_kind, drawn.interval, drawn.list, drawn.extra), (1, -4096, 64, 1));
        assert_eq!([drawn.size.kind, drawn.drawn.kind], [value_place::DRAWN; 2]);
        let free = function(&SITE);
        assert_eq!((free.address.register, free.size.kind, free.allocator), (5, value_place::NONE, 7));
    }

    #[test]
    fn words_of_a_patched_allocator_are_below_the_stack_pointer() {
        let site =
            SampledSite { report: SampleReport::PatchedAlloc { block: -104, size: -112, interval: -120 }, ..SITE };
        let patched = function(&site);
        let word = |offset| ValuePlace { kind: value_place::MEMORY, register: 7, offset, ..ValuePlace::default() };
        assert_eq!((patched.address, patched.size, patched.drawn), (word(-104), word(-112), word(-112)));
        assert_eq!((patched.interval_kind, patched.interval, patched.allocator), (interval_kind::STACK, -120, 7));
        assert_eq!((patched.extra, patched.list, program(&site)), (0, 0, PATCHED_PROGRAM));
    }

    #[test]
    fn steps_of_a_realloc_have_programs_of_their_own() {
        let block = ArgumentPlace::word(ArgumentLocation::Register(5));
        let reports = [SampleReport::Free { block }, SampleReport::Tentative { block }, SampleReport::Undo { block }];
        let sites = reports.map(|report| SampledSite { report, ..SITE });
        assert_eq!(sites.each_ref().map(program), ["sampled_free", "patched_tentative", "patched_undo"]);
        // All three have the places of a free, so they share an entry of the map.
        assert_eq!(sites.each_ref().map(function), [function(&SITE); 3]);
    }
}
