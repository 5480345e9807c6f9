//! Code that memtraces have changed in running processes (`--allow-patching`).
//!
//! A probe that is placed in an object applies to all processes. In a process with a jump at the probed instruction, the
//! removal of the probe damages this jump: the kernel overwrites the first byte of the jump with the byte in the file. So
//! probes are moved away from such code.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use memtrace_host::procfs::{self, BoundedMemory, ImageMemory};
use memtrace_host::target_files::open_target_file;
use memtrace_model::{AbsAddr, FileOffset, ImageId, Pid, ProcessImage};
use memtrace_object::overlay::layout::{CODE_SIZE, MAX_SITES, ROUTINES, SiteRecord, StubHeader};

/// Time limit for reading the stubs of a process.
const TIME: Duration = Duration::from_millis(50);

/// Maximum number of stubs of a process that are read. An interrupted change can leave a stub behind.
const MAX_STUBS: usize = 8;

/// Maximum number of different sites. Processes of the same libraries have the same sites.
const MAX_DIFFERENT: usize = 1 << 12;

/// Sites in objects whose code is changed in a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PatchedCode {
    sites: BTreeSet<PatchedSite>,
    /// True if there are more sites than [`MAX_DIFFERENT`]: any instruction can be changed.
    is_cut: bool,
}

/// Changed instruction. Its bytes identify it, not its file: a file system can state other numbers for a file than for
/// its mapping.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PatchedSite {
    /// Offset of the instruction in its file.
    offset: u64,
    /// Bytes of the instruction in its file.
    original: Vec<u8>,
}

/// Stub of memtrace in a process.
struct Stub {
    base: AbsAddr,
    /// Sites whose code jumps to the stub.
    active: Vec<PatchedSite>,
}

impl PatchedCode {
    /// Finds the changed code of these processes.
    pub(crate) fn of(processes: impl IntoIterator<Item = Pid>) -> Self {
        let mut code = Self::default();
        for pid in processes {
            let stubs = stubs(pid).inspect_err(|error| log::debug!("process {pid}: its stubs are not known: {error}"));
            stubs.unwrap_or_default().into_iter().flat_map(|stub| stub.active).for_each(|site| code.add(site));
        }
        code
    }

    /// Finds the changed code of all processes.
    pub(crate) fn of_all_processes() -> Self {
        let pids: BTreeSet<_> = procfs::patched_processes().into_iter().map(|(pid, _)| pid).collect();
        Self::of(pids)
    }

    /// Finds the changed code of the processes with these images. `images` must have all processes. Reads only
    /// processes with a mapping of the size of a stub's code: reading the mappings of 5,000 processes takes a second.
    pub(crate) fn of_images(images: &BTreeMap<ImageId, ProcessImage>) -> Self {
        Self::of(with_code_of_a_stub(images))
    }

    /// Returns false if none of the processes with these images has changed code, as [`Self::of_images`] finds it.
    pub(crate) fn is_possible_in(images: &BTreeMap<ImageId, ProcessImage>) -> bool {
        !with_code_of_a_stub(images).is_empty()
    }

    fn add(&mut self, site: PatchedSite) {
        if self.sites.len() < MAX_DIFFERENT || self.sites.contains(&site) {
            self.sites.insert(site);
        } else {
            self.is_cut = true;
        }
    }

    /// Returns the changed code in the file at `path`.
    pub(super) fn in_file(&self, path: &Path) -> ChangedRanges {
        let mut changed = ChangedRanges { ranges: Vec::new(), all: self.is_cut };
        if self.sites.is_empty() || self.is_cut {
            return changed;
        }
        match open_target_file(path) {
            Ok(file) => {
                let is_here = |site: &&PatchedSite| {
                    let mut bytes = vec![0; site.original.len()];
                    file.read_exact_at(&mut bytes, site.offset).is_ok() && bytes == site.original
                };
                let range = |site: &PatchedSite| site.offset..site.offset.saturating_add(site.original.len() as u64);
                changed.ranges = self.sites.iter().filter(is_here).map(range).collect();
            }
            // The file may be one of the changed ones.
            Err(_) => changed.all = true,
        }
        changed
    }
}

/// Changed code of a file, as ranges of file offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChangedRanges {
    ranges: Vec<Range<u64>>,
    /// True if any instruction can be changed.
    all: bool,
}

impl ChangedRanges {
    pub(super) fn of(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        Self { ranges: ranges.into_iter().collect(), all: false }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.ranges.is_empty() && !self.all
    }

    /// Returns true if a probe at `offset` would be in changed code.
    pub(super) fn contains(&self, offset: FileOffset) -> bool {
        self.all || self.ranges.iter().any(|range| range.contains(&offset.0))
    }

    /// Leaves out code that memtrace never changes: `kept` are entries and return instructions of functions. A process
    /// whose stub lists such a site has forged the stub.
    pub(super) fn without(mut self, kept: &BTreeSet<FileOffset>) -> Self {
        let is_forged = |range: &Range<u64>| kept.iter().any(|offset| range.contains(&offset.0));
        self.ranges.retain(|range| !is_forged(range));
        self
    }
}

/// Returns the processes with an executable mapping of the size of a stub's code. A child has the mappings of its parent.
fn with_code_of_a_stub(images: &BTreeMap<ImageId, ProcessImage>) -> BTreeSet<Pid> {
    let has_code = |image: &ProcessImage| {
        image.mappings.iter().any(|mapping| mapping.end.0.checked_sub(mapping.start.0) == Some(CODE_SIZE))
    };
    let running = images.iter().filter(|(_, image)| image.ended.is_none() && has_code(image));
    running.map(|(id, _)| id.pid).collect()
}

/// Returns the address of a stub that a new change of the process can use; `None` if there is none.
///
/// # Errors
///
/// Errors of reading the process.
pub(crate) fn usable_stub(pid: Pid) -> io::Result<Option<AbsAddr>> {
    Ok(stubs(pid)?.first().map(|stub| stub.base))
}

/// Reads the stubs of a process. A stub that was not completed is left out.
fn stubs(pid: Pid) -> io::Result<Vec<Stub>> {
    let mut bases: Vec<_> = procfs::stubs(pid).map_err(io::Error::other)?.into_iter().map(|stub| stub.base).collect();
    if bases.is_empty() {
        return Ok(Vec::new());
    }
    bases.truncate(MAX_STUBS);
    let work = move |memory: &BoundedMemory| {
        let read = |address, bytes: &mut [u8]| memory.read_some(address, bytes).is_ok_and(|read| read == bytes.len());
        bases.into_iter().filter_map(|base| read_stub(base, &read)).collect()
    };
    ImageMemory::open(pid)?.read_within(TIME, work)
}

/// Reads the stub at `base`; `None` if it is not complete. `read` fills bytes from an address on, and returns false if it cannot.
/// The process can have written anything into its stub.
fn read_stub(base: AbsAddr, read: &dyn Fn(AbsAddr, &mut [u8]) -> bool) -> Option<Stub> {
    let mut page = vec![0; ROUTINES as usize];
    if !read(base, &mut page) {
        return None;
    }
    let (first, records) = page.split_at_checked(size_of::<StubHeader>())?;
    let header = StubHeader::from_bytes(first).filter(|header| header.base == base.0)?;
    let count = usize::try_from(header.sites).unwrap_or(usize::MAX).min(MAX_SITES);
    let records = records.chunks_exact(size_of::<SiteRecord>()).take(count).filter_map(SiteRecord::from_bytes);
    let active = records.filter_map(|site| {
        let mut code = site.jump;
        // The first byte can be a breakpoint of another tracer.
        let jumps = read(AbsAddr(site.address), &mut code) && code[1..] == site.jump[1..];
        let original = site.original.get(..usize::from(site.length))?.to_vec();
        (jumps && original.len() >= site.jump.len()).then_some(PatchedSite { offset: site.file_offset, original })
    });
    Some(Stub { base, active: active.collect() })
}

#[cfg(test)]
mod tests {
    use harness::Scratch;
    use memtrace_model::{ImageEnd, Mapping, Tick};

    use super::*;
    use crate::run_kit::stub_page::{BASE, JUMP, ORIGINAL, reader, site_record, stub_page};

    fn record(address: u64, file_offset: u64) -> SiteRecord {
        SiteRecord { file_offset, ..site_record("malloc", address) }
    }

    /// Returns the file offsets of the active sites of a stub with these records. `code`: readable code by address.
    fn active(base: AbsAddr, sites: u32, records: &[SiteRecord], code: &[(u64, &[u8])]) -> Option<Vec<u64>> {
        let stub = read_stub(BASE, &reader(stub_page(base, sites, records), code))?;
        assert!(stub.active.iter().all(|site| site.original == ORIGINAL));
        Some(stub.active.into_iter().map(|site| site.offset).collect())
    }

    #[test]
    fn only_code_that_jumps_to_the_stub_is_changed() {
        let records = [record(0x2000, 64), record(0x3000, 128), record(0x4000, 192), record(0x5000, 256)];
        let probed = [0xcc, 1, 2, 3, 4];
        let restored = [0x80, 0x3d, 0x46, 0x1b, 0x14];
        let code: [(u64, &[u8]); 3] = [(0x2000, &JUMP), (0x3000, &restored), (0x4000, &probed)];
        assert_eq!(active(BASE, 4, &records, &code), Some(vec![64, 192]), "the fourth one is not readable");
        assert_eq!(active(BASE, 1, &records, &code), Some(vec![64]));
    }

    #[test]
    fn forged_stub_has_no_sites() {
        let code: [(u64, &[u8]); 1] = [(0x2000, &JUMP)];
        let site = record(0x2000, 64);
        assert_eq!(active(AbsAddr(BASE.0 + 4096), 1, &[site], &code), None, "it is of another place");
        assert_eq!(active(BASE, u32::MAX, &[site], &code), None);
        for length in [0, 4, 17, 255] {
            assert_eq!(active(BASE, 1, &[SiteRecord { length, ..site }], &code), Some(vec![]), "{length}");
        }
        assert!(read_stub(BASE, &|_, _| false).is_none());
        assert!(read_stub(BASE, &|_, _| true).is_none(), "zeros are no stub");
    }

    fn code_with(sites: &[u64]) -> PatchedCode {
        let mut code = PatchedCode::default();
        sites.iter().for_each(|&offset| code.add(PatchedSite { offset, original: ORIGINAL.to_vec() }));
        code
    }

    #[test]
    fn changed_code_is_found_in_files_with_the_same_bytes() {
        let scratch = Scratch::new();
        let mut content = vec![0; 100];
        content[64..71].copy_from_slice(&ORIGINAL);
        let path = scratch.write("lib.so", &content);
        let changed = code_with(&[32, 64, 98]).in_file(&path);
        let inside: Vec<_> = (0..100).filter(|&offset| changed.contains(FileOffset(offset))).collect();
        assert_eq!(inside, (64..71).collect::<Vec<_>>());
        assert!(code_with(&[32, 98]).in_file(&path).is_empty());
        assert!(code_with(&[]).in_file(Path::new("/no/such")).is_empty());
        assert!(code_with(&[64]).in_file(Path::new("/no/such")).contains(FileOffset(7)), "nothing is known");
    }

    #[test]
    fn processes_without_code_of_a_stub_are_not_read() {
        let image = |sizes: &[u64], ended| {
            let mapping = |(start, size): (u64, &u64)| Mapping {
                start: AbsAddr(start),
                end: AbsAddr(start + size),
                offset: FileOffset(0),
                object: None,
            };
            let mappings = (1..).map(|number| number << 20).zip(sizes).map(mapping).collect();
            ProcessImage { mappings, ended, ..ProcessImage::default() }
        };
        let id = |pid| ImageId { pid: Pid(pid), ordinal: 1 };
        let mut images = BTreeMap::from([
            (id(1), image(&[4096, CODE_SIZE - 4096, 1 << 20], None)),
            (id(2), image(&[4096, CODE_SIZE], None)),
            (id(3), image(&[CODE_SIZE], Some((ImageEnd::Exit, Tick(5))))),
            (id(4), image(&[], None)),
        ]);
        assert_eq!(with_code_of_a_stub(&images), BTreeSet::from([Pid(2)]));
        assert!(PatchedCode::is_possible_in(&images));
        images.remove(&id(2));
        assert!(!PatchedCode::is_possible_in(&images));
    }

    #[test]
    fn entries_and_returns_are_never_changed() {
        let changed = ChangedRanges { ranges: vec![64..71, 128..135], all: false };
        let genuine = changed.clone().without(&BTreeSet::from([FileOffset(63), FileOffset(135)]));
        assert_eq!(genuine, changed);
        let without = changed.without(&BTreeSet::from([FileOffset(70)]));
        assert_eq!(without.ranges, vec![Range { start: 128, end: 135 }]);
    }

    #[test]
    fn too_many_sites_exclude_any_instruction() {
        let most = MAX_DIFFERENT as u64;
        let code = code_with(&(0..most).collect::<Vec<_>>());
        assert!(!code.is_cut);
        let code = code_with(&(0..=most).collect::<Vec<_>>());
        assert!(code.is_cut && code.in_file(Path::new("/no/such")).contains(FileOffset(1 << 40)));
    }
}
