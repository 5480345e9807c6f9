//! Sampling of a target by a change of its code: whether it is possible, and whether its code is changed now.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use memtrace_host::patcher::{self, PatchRefusal};
use memtrace_host::procfs::{self, BoundedMemory, ImageMemory, ProcessError};
use memtrace_host::target_files::open_object;
use memtrace_model::{AbsAddr, Bytes, Pid, ProcessImage, printable};
use memtrace_object::allocators::{Allocator, Survey, operators};
use memtrace_object::overlay::layout::{MAX_SITES, ROUTINES, SiteRecord, StubHeader, TOTAL_SIZE};
use memtrace_object::overlay::site::{self, AllocatorRefusal, AllocatorSites, OverlaySite, SiteRefusal};

use super::finding::{Area, Finding};

const AREA: Area = Area::Traceable;
const SUBJECT: &str = "patching";

/// Advice for a process whose code cannot be changed.
const OTHERWISE: &str = "trace each call, without --allow-patching, or page faults: `memtrace faults --sample 64`";

/// Time limit for reading the stubs of a process.
const TIME: Duration = Duration::from_secs(1);

/// Reports whether memtrace can change the code of the allocators of a process, and whether their code is changed now.
pub(super) fn examine(pid: Pid, image: &ProcessImage, survey: &Survey) -> Vec<Finding> {
    let allocators = survey.supported().unwrap_or_default();
    let stubs = stubs(pid);
    let has_no_stub = stubs.as_ref().is_ok_and(Vec::is_empty);
    let refusals = if allocators.is_empty() && has_no_stub { Vec::new() } else { patcher::check(pid, true) };
    let is_used = refusals.iter().any(|refusal| matches!(refusal, PatchRefusal::Owned(_)));
    let mut findings = match stubs {
        Ok(stubs) => stubs.iter().flat_map(|stub| state(pid, stub, is_used)).collect(),
        Err(error) => vec![Finding::warn(AREA, SUBJECT, format!("not known: {error}"), "run memtrace with sudo")],
    };
    findings.extend(refusals.iter().map(|refusal| {
        let detail = format!("--allow-patching is refused: {refusal}");
        Finding::warn(AREA, SUBJECT, detail, refusal.remedy().unwrap_or(OTHERWISE))
    }));
    if refusals.is_empty() && patcher::has_seccomp_filters(pid) {
        let detail = "it has seccomp filters: --allow-patching is refused if they do not permit memfd_create, mmap, munmap, \
                      close and rt_sigreturn, which only a stop of the process shows";
        findings.push(Finding::warn(AREA, SUBJECT, detail, "try --allow-patching: a refusal changes nothing"));
    }
    findings.extend(allocators.into_iter().flat_map(|allocator| {
        match operators::are_throwing(allocator) && has_callers_of_operators(image, allocator) {
            true => vec![refused(allocator, &AllocatorRefusal::Operators)],
            false => sites(allocator, refusals.is_empty()),
        }
    }));
    findings
}

/// Returns true if code outside of the allocator calls C++ operators that may throw. Skips a file that cannot be opened, because
/// the survey has reported it.
fn has_callers_of_operators(image: &ProcessImage, allocator: &Allocator) -> bool {
    let objects: HashSet<_> = image.mappings.iter().filter_map(|mapping| mapping.object.as_ref()).collect();
    let mut others = objects.into_iter().filter(|object| **object != allocator.object);
    others.any(|object| open_object(object).is_ok_and(|file| operators::are_called(&file, &object.path)))
}

fn refused(allocator: &Allocator, refusal: &AllocatorRefusal) -> Finding {
    let detail = format!("{}: --allow-patching is refused: {refusal}", printable(&allocator.object.path));
    Finding::warn(AREA, SUBJECT, detail, OTHERWISE)
}

/// Reports the sites of an allocator, and its functions without a site. `is_possible`: true if nothing but a missing site
/// prevents a change.
fn sites(allocator: &Allocator, is_possible: bool) -> Vec<Finding> {
    let path = printable(&allocator.object.path);
    // If the file cannot be opened, the survey has reported it.
    let Ok(file) = open_object(&allocator.object) else { return Vec::new() };
    match site::choose(allocator, &file) {
        Ok(AllocatorSites { sites, gaps, .. }) => {
            let places = sites.iter().map(place).collect::<Vec<_>>().join(", ");
            let detail = format!("{path}: a jump can replace one instruction of each function: {places}");
            let judge = if is_possible { Finding::ok } else { Finding::info };
            let gaps = by_reason(&gaps).into_iter().map(|(reason, names)| {
                Finding::info(AREA, SUBJECT, format!("{path}: does not sample {}: {reason}", names.join(", ")))
            });
            [judge(AREA, SUBJECT, detail)].into_iter().chain(gaps).collect()
        }
        Err(refusal) => vec![refused(allocator, &refusal)],
    }
}

/// Formats the place of a site: `malloc+0xb`.
fn place(site: &OverlaySite) -> String {
    format!("{}+{:#x}", site.name, site.offset.0.saturating_sub(site.entry_offset.0))
}

/// Returns the functions without a site, by reason.
fn by_reason(gaps: &[(String, SiteRefusal)]) -> Vec<(SiteRefusal, Vec<&str>)> {
    let mut reasons: Vec<(SiteRefusal, Vec<&str>)> = Vec::new();
    for (name, reason) in gaps {
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, names)) => names.push(name.as_str()),
            None => reasons.push((*reason, vec![name.as_str()])),
        }
    }
    reasons
}

/// Reports the state of a stub. `is_used`: true if a running memtrace takes samples with this stub.
fn state(pid: Pid, stub: &StubState, is_used: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let detach = format!("`memtrace detach --pid {pid}`");
    if !stub.changed.is_empty() {
        let names = stub.changed.join(", ");
        let detail = format!("{names}: neither the original code nor the jump that memtrace has written");
        let remedy = format!("end other tools that change code, such as tracers with breakpoints, and call {detach}");
        findings.push(Finding::warn(AREA, SUBJECT, detail, remedy));
    }
    if !stub.patched.is_empty() && !is_used {
        let names = stub.patched.join(", ");
        let detail = format!("the code of {names} jumps to the stub of a memtrace that has ended");
        let remedy = format!("{detach} restores the code; a new trace with --allow-patching uses the stub again");
        findings.push(Finding::warn(AREA, SUBJECT, detail, remedy));
    }
    if stub.is_unused() {
        let detail = format!("{} of an earlier trace are mapped, which no function uses", Bytes(TOTAL_SIZE));
        findings.push(Finding::info(AREA, SUBJECT, detail));
    }
    findings
}

/// Stub of memtrace in a process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StubState {
    pub(crate) base: AbsAddr,
    /// Functions whose code jumps to the stub.
    pub(crate) patched: Vec<String>,
    /// Functions whose code is neither the original code nor the jump.
    pub(crate) changed: Vec<String>,
}

impl StubState {
    /// Returns true if all functions have their original code, as after a detach.
    pub(crate) fn is_unused(&self) -> bool {
        self.patched.is_empty() && self.changed.is_empty()
    }
}

/// Reads the stubs of a process.
///
/// # Errors
///
/// The process or its memory cannot be read.
pub(crate) fn stubs(pid: Pid) -> Result<Vec<StubState>, ProcessError> {
    let bases = procfs::stubs(pid)?.into_iter().map(|stub| stub.base).collect::<Vec<_>>();
    if bases.is_empty() {
        return Ok(Vec::new());
    }
    let unread = |source: io::Error| match source.kind() {
        io::ErrorKind::TimedOut => ProcessError::Locked(pid),
        _ => ProcessError::Proc { path: procfs::proc_path(pid, "mem"), source },
    };
    let read_all = move |memory: &BoundedMemory| {
        let read = |address, bytes: &mut [u8]| memory.read_some(address, bytes).is_ok_and(|read| read == bytes.len());
        bases.into_iter().map(|base| state_of(base, &read)).collect::<Vec<_>>()
    };
    ImageMemory::open(pid).and_then(|memory| memory.read_within(TIME, read_all)).map_err(unread)
}

/// Compares the code of the functions with the records in the header of the stub at `base`. `read` fills bytes from an
/// address on, and returns false if it cannot. The process can have written anything into the header.
fn state_of(base: AbsAddr, read: &dyn Fn(AbsAddr, &mut [u8]) -> bool) -> StubState {
    let mut state = StubState { base, ..StubState::default() };
    let mut bytes = vec![0; ROUTINES as usize];
    if !read(base, &mut bytes) {
        return state;
    }
    let header = bytes.get(..size_of::<StubHeader>()).and_then(StubHeader::from_bytes);
    // A stub that was never completed has no header.
    let Some(header) = header.filter(|header| header.base == base.0) else { return state };
    let records = bytes.get(size_of::<StubHeader>()..).unwrap_or_default().chunks_exact(size_of::<SiteRecord>());
    let count = usize::try_from(header.sites).unwrap_or_default().min(MAX_SITES);
    for site in records.take(count).filter_map(SiteRecord::from_bytes) {
        let mut code = site.jump;
        // The object may be unmapped.
        if !read(AbsAddr(site.address), &mut code) || site.original.starts_with(&code) {
            continue;
        }
        let names = if code == site.jump { &mut state.patched } else { &mut state.changed };
        names.push(site.name());
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;
    use crate::run_kit::stub_page::{BASE, JUMP, ORIGINAL, reader, site_record, stub_page};

    /// Returns the state of a stub with these records. Its header says that it has `sites` records. `code`: readable
    /// code by address.
    fn state_with(sites: u32, records: &[SiteRecord], code: &[(u64, &[u8])]) -> StubState {
        state_of(BASE, &reader(stub_page(BASE, sites, records), code))
    }

    #[test]
    fn functions_are_patched_restored_or_changed_by_others() {
        let records = [("malloc", 0x2000), ("free", 0x3000), ("calloc", 0x4000), ("gone", 0x5000)];
        let records = records.map(|(name, address)| site_record(name, address));
        let breakpoint = [0xcc, 1, 2, 3, 4];
        let code: [(u64, &[u8]); 3] = [(0x2000, &JUMP), (0x3000, &ORIGINAL), (0x4000, &breakpoint)];
        let state = state_with(4, &records, &code);
        let expected = StubState { base: BASE, patched: vec!["malloc".into()], changed: vec!["calloc".into()] };
        assert_eq!((state.is_unused(), &state), (false, &expected));
        let restored = state_with(1, &records[1..], &code);
        assert!(restored.is_unused(), "{restored:?}");
    }

    #[test]
    fn hostile_header_is_read_within_its_page() {
        let records = [site_record("malloc", 0x2000)];
        let code: [(u64, &[u8]); 1] = [(0x2000, &JUMP)];
        // More sites than a stub has.
        assert_eq!(state_with(u32::MAX, &records, &code).patched, [""; 0]);
        let unreadable = state_of(BASE, &|_, _| false);
        assert_eq!(unreadable, StubState { base: BASE, ..StubState::default() });
        let zeros = state_of(BASE, &|_, _| true);
        assert!(zeros.is_unused(), "{zeros:?}");
    }

    #[test]
    fn state_is_a_warning_if_nobody_uses_the_samples() {
        let of = |stub: &StubState, is_used| {
            let findings = state(Pid(7), stub, is_used);
            findings.into_iter().map(|found| (found.verdict, found.detail, found.remedy)).collect::<Vec<_>>()
        };
        let patched = StubState { base: BASE, patched: vec!["malloc".into(), "free".into()], changed: Vec::new() };
        let left = of(&patched, false);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].0, Verdict::Warn);
        assert_eq!(left[0].1, "the code of malloc, free jumps to the stub of a memtrace that has ended");
        assert!(left[0].2.as_ref().is_some_and(|remedy| remedy.starts_with("`memtrace detach --pid 7` restores")));
        assert!(of(&patched, true).is_empty());
        let unused = of(&StubState { base: BASE, ..StubState::default() }, false);
        let detail = String::from("564.00 KiB of an earlier trace are mapped, which no function uses");
        assert_eq!(unused, [(Verdict::Info, detail, None::<String>)]);
    }

    #[test]
    fn functions_without_a_site_are_grouped_by_reason() {
        let gap = |name: &str, reason| (name.to_owned(), reason);
        let gaps = [
            gap("memalign", SiteRefusal::NoInstruction),
            gap("xallocx", SiteRefusal::Resizes),
            gap("valloc", SiteRefusal::NoInstruction),
        ];
        let expected =
            [(SiteRefusal::NoInstruction, vec!["memalign", "valloc"]), (SiteRefusal::Resizes, vec!["xallocx"])];
        assert_eq!(by_reason(&gaps), expected);
    }
}
