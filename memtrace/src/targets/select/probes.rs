//! Probes of one allocator.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;

use memtrace_host::kernel::{Kernel, KernelError, LoadedWordSite, Probe, Probes, ResultCookie, ResultProbes, Scope};
use memtrace_host::target_files::open_object;
use memtrace_model::{AllocatorId, FUNCTIONS, FileOffset, Function, Pid};
use memtrace_object::allocators::{Allocator, FunctionResult, FunctionResults, HookedFunction};
use memtrace_object::overlay::site::{self, AllocatorRefusal};
use memtrace_object::probe_site::{self, Cost as SiteCost, GeneralRegister, LoadedWord};

use super::config::ProbeSite;
use super::patched_code::{ChangedRanges, PatchedCode};
use crate::run_kit::error::{Error, from_engines};
use crate::run_kit::start_progress::StartProgress;

/// Probes of one allocator in one process, or in all processes.
pub(crate) struct AllocatorProbes {
    /// Process to name in log and error messages.
    pub(crate) pid: Pid,
    pub(crate) scope: Scope,
    pub(crate) object: PathBuf,
    /// Probe of each hooked function, with the cost of a hit.
    pub(crate) probes: Vec<(Probe, SiteCost)>,
    /// File offsets of each hooked function.
    pub(crate) functions: Vec<Range<u64>>,
    allocator: Allocator,
}

impl AllocatorProbes {
    /// Returns the probes of all functions of `allocator`; `None` if its file is not open.
    pub(crate) fn new(
        pid: Pid,
        scope: Scope,
        allocator: &Allocator,
        id: AllocatorId,
        probe_site: ProbeSite,
    ) -> Option<Self> {
        let object = allocator.object.handle.clone()?;
        let has_sizes = allocator.kinds.have_glibc_chunks();
        let probe = |found: &HookedFunction| {
            let summary = found.summary(&allocator.object.path);
            let (offset, cost) = match probe_site {
                ProbeSite::Best | ProbeSite::Return => {
                    log::debug!("process {pid}: {summary}: {}", found.site.reason);
                    (found.site.file_offset, found.site.cost)
                }
                ProbeSite::Entry => {
                    log::debug!("process {pid}: at the entry (--probe-site entry) instead of {summary}");
                    // If the kernel emulates the entry's instruction, the best site is the entry. So any other entry is
                    // single-stepped.
                    let cost = if found.site.offset == 0 { found.site.cost } else { SiteCost::Stepped };
                    (found.file_offset, cost)
                }
            };
            let (signature, return_sites) = (found.signature, found.return_sites.clone());
            let loaded_word = found.loaded_word.map(|LoadedWord { offset, register, lowered }| LoadedWordSite {
                offset: FileOffset(found.file_offset.0 + offset),
                register,
                lowered,
            });
            let results = match (probe_site, &found.results) {
                (ProbeSite::Best, Some(Ok(results))) => Some(result_probes(results)),
                _ => None,
            };
            let is_leaf = found.functions.iter().all(|function| function.is_leaf());
            let function = number_of(found.function());
            let allocator = id;
            let probe = Probe {
                signature,
                offset,
                return_sites,
                allocator,
                function,
                has_sizes,
                is_leaf,
                loaded_word,
                results,
            };
            (probe, cost)
        };
        let extent = |found: &HookedFunction| {
            let start = found.file_offset.0;
            start..start.saturating_add(found.size.0.max(1))
        };
        let functions = allocator.functions.iter().map(extent).collect();
        let probes = allocator.functions.iter().map(probe).collect();
        Some(Self { pid, scope, object, probes, functions, allocator: allocator.clone() })
    }

    /// Returns false if memtrace cannot patch this kind of allocator. Does not read the code of the allocator.
    pub(super) fn is_patchable(&self) -> bool {
        site::is_supported(&self.allocator.kinds)
    }

    /// Returns the instructions that a patch of the allocator replaces; `None` if no patch supports the allocator.
    pub(super) fn replaceable(&self) -> Option<ChangedRanges> {
        // Without its file, the allocator gets no probes either.
        let file = open_object(&self.allocator.object).ok()?;
        match site::choose(&self.allocator, &file) {
            Ok(found) => {
                let end = |offset: FileOffset, length: usize| offset.0.saturating_add(length as u64);
                let ranges = found.sites.iter().map(|site| site.offset.0..end(site.offset, site.original.len()));
                Some(ChangedRanges::of(ranges))
            }
            // Only another build of memtrace may find a site, so no instruction is reserved.
            Err(AllocatorRefusal::LacksSite(..)) => Some(ChangedRanges::default()),
            Err(
                AllocatorRefusal::Unknown(_)
                | AllocatorRefusal::Operators
                | AllocatorRefusal::Unsupported(_)
                | AllocatorRefusal::Thread,
            ) => None,
        }
    }

    /// Moves the probes out of code that other memtraces have changed. Returns the number of functions with a moved probe.
    pub(super) fn avoid_patched(&mut self, patched: &PatchedCode) -> usize {
        let changed = patched.in_file(&self.object);
        self.avoid(changed)
    }

    /// Moves the probes out of `changed` code, to the entries of their functions. Returns the number of functions with a moved
    /// probe.
    pub(super) fn avoid(&mut self, changed: ChangedRanges) -> usize {
        if changed.is_empty() {
            return 0;
        }
        let entries: Vec<_> = self.functions.iter().map(|function| FileOffset(function.start)).collect();
        let returns = self.probes.iter().flat_map(|(probe, _)| &probe.return_sites);
        let kept: BTreeSet<_> = entries.iter().chain(returns).copied().collect();
        let changed = changed.without(&kept);
        let is_changed = |offset: FileOffset| !kept.contains(&offset) && changed.contains(offset);
        let mut moved = 0;
        for ((probe, cost), entry) in self.probes.iter_mut().zip(entries) {
            let mut is_moved = false;
            if probe.results.as_ref().is_some_and(|results| offsets_of(results).any(is_changed)) {
                probe.results = None;
                is_moved = true;
            }
            if probe.loaded_word.is_some_and(|word| is_changed(word.offset)) {
                probe.loaded_word = None;
                is_moved = true;
            }
            if is_changed(probe.offset) {
                (probe.offset, *cost) = (entry, SiteCost::Stepped);
                is_moved = true;
            }
            moved += usize::from(is_moved);
        }
        moved
    }

    /// Attaches the probes of `allocators`, except those that are already attached.
    pub(crate) fn place_all<'a>(
        allocators: impl Iterator<Item = &'a Self> + Clone,
        kernel: &mut Kernel,
        probes: &mut Probes,
        progress: &StartProgress,
    ) -> Result<(), Error> {
        let functions: usize = allocators.clone().map(|allocator| allocator.probes.len()).sum();
        let mut done = 0;
        for allocator in allocators {
            progress.set(done, functions);
            allocator.place(kernel, probes).map_err(|error| from_engines::kernel(Some(allocator.pid), error))?;
            done += allocator.probes.len();
        }
        Ok(())
    }

    /// Attaches the probes, except those that are already attached.
    pub(crate) fn place(&self, kernel: &mut Kernel, probes: &mut Probes) -> Result<(), KernelError> {
        let new: Vec<_> = self.probes.iter().map(|(probe, _)| probe.clone()).collect();
        kernel.attach(probes, self.scope, &self.object, &new)
    }
}

const _: () = assert!(probe_site::MAX_SAVED == ResultCookie::MAX_SAVED, "a cookie describes each result site");
const _: () = assert!(
    probe_site::MAX_LOWERED.cast_unsigned() == ResultCookie::MAX_LOWERED,
    "a cookie describes each result site"
);

/// Returns the file offsets of all probed instructions.
fn offsets_of(ResultProbes { results, sizes, slow }: &ResultProbes) -> impl Iterator<Item = FileOffset> + '_ {
    results.iter().chain(sizes).map(|(offset, _)| *offset).chain(slow.iter().copied())
}

/// Converts the result sites of a function to probes.
fn result_probes(found: &FunctionResults) -> ResultProbes {
    let site = |site: &FunctionResult| {
        let number = |register: GeneralRegister| register.dwarf_number();
        let words = site.lowered / 8;
        let cookie = ResultCookie::new(site.block.map_or(0, number), site.size.map(number), words, site.saved);
        (site.offset, cookie)
    };
    ResultProbes {
        results: found.results.iter().map(site).collect(),
        sizes: found.sizes.iter().map(site).collect(),
        slow: found.slow.clone(),
    }
}

/// Returns the index of a function in [`FUNCTIONS`]. All functions of `--hook` share the index after the last row.
fn number_of(function: &Function) -> Option<u16> {
    let place = FUNCTIONS.iter().position(|known| known.name == function.name).unwrap_or(FUNCTIONS.len());
    u16::try_from(place).ok()
}

#[cfg(target_arch = "x86_64")]
#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use harness::fixtures::{GLIBC, MUSL};
    use memtrace_host::target_files::TargetFiles;
    use memtrace_model::{Mapping, Object, ProcessImage};
    use memtrace_object::allocators::{UserHooks, survey};

    use super::*;

    /// Library of Debian's package `libjemalloc2`.
    const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";

    fn probes_of(path: &str) -> AllocatorProbes {
        let object = Object { path: path.into(), handle: Some(path.into()), build_id: None, root: None };
        let mapping = Mapping {
            start: Default::default(),
            end: Default::default(),
            offset: FileOffset(0),
            object: Some(Arc::new(object)),
        };
        let image = ProcessImage { mappings: vec![mapping], ..ProcessImage::default() };
        let survey = survey(&image, &UserHooks::default(), &TargetFiles);
        let (id, site) = (AllocatorId::UNKNOWN, ProbeSite::Best);
        AllocatorProbes::new(Pid(1), Scope::AllProcesses, &survey.allocators[0], id, site).expect("its file is open")
    }

    #[test]
    fn probes_of_jemalloc_leave_room_for_a_patch() {
        let mut probes = probes_of(JEMALLOC);
        let before = probes.probes.clone();
        let moved = probes.avoid(probes.replaceable().expect("jemalloc can be patched"));
        let functions = probes.allocator.functions.iter().zip(before).zip(&probes.probes);
        let moved_ones = functions.filter(|((_, (before, _)), (after, _))| before.offset != after.offset);
        let names = moved_ones.map(|((function, _), (after, cost))| {
            assert_eq!((after.offset, *cost), (function.file_offset, SiteCost::Stepped));
            function.function().name
        });
        assert_eq!((names.collect::<Vec<_>>(), moved), (vec!["malloc", "rallocx", "_ZnwmRKSt9nothrow_t"], 3));
        assert_eq!(probes.avoid(probes.replaceable().expect("jemalloc can be patched")), 0);
    }

    #[test]
    fn probes_of_glibc_are_outside_of_its_patch() {
        let mut probes = probes_of(GLIBC);
        let replaceable = probes.replaceable().expect("glibc can be patched");
        assert!(!replaceable.is_empty());
        assert_eq!(probes.avoid(replaceable), 0);
        assert_eq!(probes_of(MUSL).replaceable(), None, "musl cannot be patched");
        assert_eq!([GLIBC, JEMALLOC, MUSL].map(|path| probes_of(path).is_patchable()), [true, true, false]);
    }
}
