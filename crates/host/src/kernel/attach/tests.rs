use std::fs;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use memtrace_model::Signature;
use memtrace_model::{AllocatorId, Bytes, Pid};

use super::*;
use crate::kernel::{Kernel, MapSizes, Options};

/// Function that only these tests probe, and that is never called.
#[unsafe(naked)]
extern "C" fn probed() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("push rbp", "pop rbp", "push rbp", "pop rbp", "ret");
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("nop", "nop", "ret");
}

/// Distance between the probed instructions, in bytes.
const STEP: u64 = if cfg!(target_arch = "x86_64") { 2 } else { 4 };

fn address() -> u64 {
    probed as *const () as u64
}

/// Returns the first byte of each probed instruction in memory. A breakpoint replaces it.
fn code() -> [u8; 2] {
    // SAFETY: the addresses are within the function's code, which is readable.
    [0, STEP].map(|distance| unsafe { ((address() + distance) as *const u8).read_volatile() })
}

/// Converts an address of this executable to a file offset.
fn offset(address: u64) -> FileOffset {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let offset = maps.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (begin, end) = fields.next()?.split_once('-')?;
        let (begin, end, offset) = (number(begin), number(end), number(fields.nth(1)?));
        (begin..end).contains(&address).then(|| address - begin + offset)
    });
    FileOffset(offset.unwrap())
}

fn probe(address: u64) -> Probe {
    Probe {
        signature: Signature::Free { block: 0 },
        offset: offset(address),
        return_sites: Vec::new(),
        function: None,
        allocator: AllocatorId::UNKNOWN,
        has_sizes: false,
        is_leaf: false,
        loaded_word: None,
        results: None,
    }
}

fn own() -> Scope {
    Scope::Process(Pid(std::process::id()))
}

fn kernel() -> Kernel {
    let options = Options { map_sizes: MapSizes::FULL, max_depth: 1, max_size: Bytes(1), ..Options::default() };
    Kernel::load(&options).unwrap().0
}

#[test]
fn privileged_probes_stay_attached_until_they_are_dropped() {
    let original = code();
    let points = [0, STEP].map(|distance| AttachPoint {
        offset: offset(address() + distance),
        cookie: Some(7),
        semaphore: None,
    });
    let attach = |backend: &mut AttachBackend<'_>, scope, points: &[AttachPoint]| {
        let mut probes = Probes::default();
        let points = points.iter().map(|&point| (RETURN_PROGRAM, point));
        probes.attach_all(backend, scope, Path::new("/proc/self/exe"), points).unwrap();
        probes
    };
    for by_perf_event in [false, true] {
        // A map for tail calls can only be used by programs of one attach type (`bpf_prog_map_compatible`,
        // kernel/bpf/core.c).
        let mut kernel = kernel();
        let mut backend = if by_perf_event { kernel.perf_event_backend() } else { kernel.attach_backend() };
        for scope in [own(), Scope::AllProcesses] {
            let first = attach(&mut backend, scope, &points[..1]);
            assert_eq!(first.len(), 1);
            assert_ne!(code()[0], original[0], "{scope:?}");
            assert_eq!(code()[1], original[1], "{scope:?}");
            let both = attach(&mut backend, scope, &points);
            assert_eq!(both.len(), 2);
            drop(first);
            assert!(code().iter().zip(&original).all(|(now, original)| now != original), "{scope:?}");
            drop(both.detach(|| {}));
            assert_eq!(code(), original, "{scope:?}");
        }
        let of_init = attach(&mut backend, Scope::Process(Pid(1)), &points);
        assert_eq!(of_init.len(), 2);
        assert_eq!(code(), original);
    }
}

/// Function that begins with an instruction that the kernel refuses to probe. It is never called.
#[unsafe(naked)]
extern "C" fn refused() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("lock inc dword ptr [rsp]", "ret");
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("hlt #0", "ret");
}

/// The same for an instruction that the kernel cannot decode on x86-64, and cannot step on arm64.
#[unsafe(naked)]
extern "C" fn undecodable() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(".byte 0x66, 0x0f, 0x38, 0x18, 0xc0", "ret");
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("ldxr x0, [x1]", "ret");
}

/// Function with a probe that has a semaphore. It is never called.
#[unsafe(naked)]
extern "C" fn with_semaphore() {
    core::arch::naked_asm!("nop", "ret");
}

/// Semaphore of [`with_semaphore`], in the data of this executable.
#[unsafe(link_section = ".probes")]
static SEMAPHORE: AtomicU16 = AtomicU16::new(0);

#[test]
fn privileged_semaphores_are_raised_while_their_probe_is_attached() {
    let semaphore = offset(std::ptr::from_ref(&SEMAPHORE).addr() as u64);
    let at = offset(with_semaphore as *const () as u64);
    let point = AttachPoint { offset: at, cookie: Some(7), semaphore: Some(semaphore) };
    for by_perf_event in [false, true] {
        let mut kernel = kernel();
        let mut backend = if by_perf_event { kernel.perf_event_backend() } else { kernel.attach_backend() };
        for scope in [own(), Scope::AllProcesses] {
            let mut probes = Probes::default();
            probes.attach_all(&mut backend, scope, Path::new("/proc/self/exe"), [("free_block0", point)]).unwrap();
            assert_eq!((probes.len(), SEMAPHORE.load(Ordering::Relaxed)), (1, 1), "{scope:?}");
            drop(probes.detach(|| {}));
            assert_eq!(SEMAPHORE.load(Ordering::Relaxed), 0, "{scope:?}");
        }
    }
}

#[test]
fn privileged_refused_instruction_costs_no_other_probe() {
    let refused = [refused, undecodable].map(|function: extern "C" fn()| function as *const () as u64);
    // The return of the first refused function can be probed.
    let all = [address() + 2 * STEP, refused[0], refused[1], refused[0] + 4].map(probe);
    for by_perf_event in [false, true] {
        let mut kernel = kernel();
        let mut backend = if by_perf_event { kernel.perf_event_backend() } else { kernel.attach_backend() };
        let mut probes = Probes::default();
        probes.attach(&mut backend, own(), Path::new("/proc/self/exe"), &all).unwrap();
        assert_eq!(probes.len(), 2);
        let without: BTreeSet<_> = probes.refused_instructions().map(|(_, offset)| offset).collect();
        assert_eq!(without, BTreeSet::from(refused.map(offset)));
    }
}

#[test]
fn failure_for_all_processes_costs_the_object_only() {
    let failed = || -> Result<(), KernelError> {
        Err(KernelError::NotInserted { action: String::from("attach"), reason: String::from("no pages") })
    };
    let (mut probes, path) = (Probes::default(), Path::new("/object"));
    assert!(probes.refuse_failed(own(), path, failed()).is_err());
    assert!(probes.refuse_failed(Scope::AllProcesses, path, Err(KernelError::TargetEnded)).is_err());
    assert_eq!(probes.refusal(path), None);
    probes.refuse_failed(Scope::AllProcesses, path, failed()).unwrap();
    probes.clear_refusal(path, Refusal::Unknown);
    assert_eq!(probes.refusal(path), Some(Refusal::Failed));
    probes.refuse_failed(Scope::AllProcesses, path, Ok(())).unwrap();
    assert_eq!(probes.refusal(path), None);
}

#[test]
fn probes_without_memory_wait_for_a_later_attempt() {
    let no_memory = || -> Result<(), KernelError> { Err(KernelError::NoMemory { action: String::from("attach") }) };
    let (mut probes, path) = (Probes::default(), Path::new("/object"));
    let set = ProbeSet { scope: own(), object: path.to_owned(), points: Vec::new() };
    probes.postpone(set.clone()).unwrap();
    assert!(probes.is_waiting(own(), path) && !probes.is_waiting(Scope::AllProcesses, path));
    let later = |seconds| Instant::now() + Duration::from_secs(seconds);
    let due = probes.take_waiting(later(10)).unwrap();
    assert_eq!(due, set);
    assert_eq!(probes.finish_attempt(due, no_memory(), later(10)), None);
    assert!(probes.is_waiting(own(), path));
    let due = probes.take_waiting(later(20)).unwrap();
    assert_eq!(probes.finish_attempt(due, Ok(()), later(20)), Some(path.to_owned()));
    assert!(!probes.is_waiting(own(), path) && probes.take_waiting(later(30)).is_none());
}

#[test]
fn objects_beyond_the_bound_of_waiting_probes_are_refused() {
    let mut probes = Probes::default();
    let set = |object: &Path| ProbeSet { scope: Scope::AllProcesses, object: object.to_owned(), points: Vec::new() };
    for number in 0..waiting::MAX_WAITING {
        probes.postpone(set(Path::new(&format!("/{number}")))).unwrap();
    }
    let path = Path::new("/object");
    let result = probes.postpone(set(path));
    probes.refuse_failed(Scope::AllProcesses, path, result).unwrap();
    assert_eq!((probes.refusal(path), probes.is_waiting(Scope::AllProcesses, path)), (Some(Refusal::Failed), false));
}

#[test]
fn privileged_failed_set_keeps_no_probes() {
    let mut kernel = kernel();
    let mut backend = kernel.attach_backend();
    let (mut probes, path) = (Probes::default(), Path::new("/proc/self/exe"));
    let point = |offset| AttachPoint { offset, cookie: Some(7), semaphore: None };
    let (first, other) = (point(offset(address())), point(offset(address() + STEP)));
    // The overhead is measured with a part of the probes.
    probes.attach_all(&mut backend, own(), path, [(RETURN_PROGRAM, first)]).unwrap();
    probes.attach_all(&mut backend, own(), path, [(RETURN_PROGRAM, other)]).unwrap();
    let points = [(RETURN_PROGRAM, first), ("no_program", first)];
    assert!(probes.attach_all(&mut backend, own(), path, points).is_err());
    assert_eq!(probes.len(), 1);
    probes.attach_all(&mut backend, own(), path, [(RETURN_PROGRAM, first)]).unwrap();
    assert_eq!(probes.len(), 2);
    // While a set waits, other sets of the object wait with all their probes.
    probes.postpone(ProbeSet { scope: own(), object: path.to_owned(), points: vec![points[1]] }).unwrap();
    probes.attach_all(&mut backend, own(), path, [(RETURN_PROGRAM, first)]).unwrap();
    assert_eq!((probes.len(), probes.waiting().count()), (2, 1), "nothing is missing");
    let last = point(offset(address() + 2 * STEP));
    probes.attach_all(&mut backend, own(), path, [(RETURN_PROGRAM, first), (RETURN_PROGRAM, last)]).unwrap();
    assert_eq!((probes.len(), probes.waiting().count()), (1, 2));
}

#[test]
fn privileged_refused_object_keeps_no_probes() {
    let mut kernel = kernel();
    let mut backend = kernel.attach_backend();
    let (mut probes, path) = (Probes::default(), Path::new("/proc/self/exe"));
    let scope = Scope::AllProcesses;
    probes.attach(&mut backend, scope, path, &[probe(address())]).unwrap();
    let failed = KernelError::NotInserted { action: String::from("attach"), reason: String::from("no pages") };
    probes.refuse_failed(scope, path, Err(failed)).unwrap();
    assert_eq!((probes.len(), probes.refusal(path)), (0, Some(Refusal::Failed)));
}

#[test]
fn privileged_probes_are_attached_once_per_scope() {
    let mut kernel = kernel();
    let mut backend = kernel.attach_backend();
    let mut probes = Probes::default();
    // Two names of one function have the same probe.
    let duplicates = [probe(address() + 2 * STEP), probe(address() + 2 * STEP)];
    for (scope, count) in [(own(), 1), (own(), 1), (Scope::Process(Pid(1)), 2)] {
        probes.attach(&mut backend, scope, Path::new("/proc/self/exe"), &duplicates).unwrap();
        assert_eq!(probes.len(), count);
    }
}

#[test]
fn privileged_samples_of_a_process_are_removed_alone() {
    let semaphore = offset(std::ptr::from_ref(&OTHER_SEMAPHORE).addr() as u64);
    let point = |distance| AttachPoint {
        offset: offset(with_other_semaphore as *const () as u64 + distance),
        cookie: Some(7),
        semaphore: (distance == 0).then_some(semaphore),
    };
    let sampled = [("sampled_alloc", point(0))];
    let mut kernel = kernel();
    let mut backend = kernel.attach_backend();
    let (mut probes, path) = (Probes::default(), Path::new("/proc/self/exe"));
    let own_pid = Pid(std::process::id());
    let mut attach = |probes: &mut Probes, scope, points: &[_]| {
        probes.attach_all(&mut backend, scope, path, points.iter().copied()).unwrap();
    };
    attach(&mut probes, own(), &[("free_block0", point(4))]);
    attach(&mut probes, Scope::Process(Pid(1)), &sampled);
    attach(&mut probes, own(), &sampled);
    assert_eq!((probes.len(), OTHER_SEMAPHORE.load(Ordering::Relaxed)), (3, 1));
    probes.remove_sampled(own_pid);
    assert_eq!(probes.len(), 2, "the probe of an allocator stays, and so does that of another process");
    wait_for_semaphore(0);
    // A new process with this PID gets probes of its own.
    attach(&mut probes, own(), &sampled);
    assert_eq!(probes.len(), 3);
    wait_for_semaphore(1);
    probes.postpone(ProbeSet { scope: own(), object: PathBuf::from("/object"), points: sampled.to_vec() }).unwrap();
    probes.remove_sampled(own_pid);
    assert_eq!(probes.waiting().count(), 0);
}

/// Waits until the removal of probes in the background has changed the semaphore.
fn wait_for_semaphore(expected: u16) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while OTHER_SEMAPHORE.load(Ordering::Relaxed) != expected {
        assert!(Instant::now() < deadline, "the semaphore is not {expected}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Function with a probe that has a semaphore, which no other test probes. It is never called.
#[unsafe(naked)]
extern "C" fn with_other_semaphore() {
    core::arch::naked_asm!("nop", "nop", "nop", "nop", "nop", "ret");
}

/// Semaphore of [`with_other_semaphore`].
#[unsafe(link_section = ".probes")]
static OTHER_SEMAPHORE: AtomicU16 = AtomicU16::new(0);

#[test]
fn privileged_attaching_to_an_exited_process_is_target_ended() {
    let mut kernel = kernel();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = Pid(child.id());
    child.wait().unwrap();
    let probes = [probe(address())];
    let mut attach = |scope, path| kernel.attach(&mut Probes::default(), scope, Path::new(path), &probes);
    assert!(matches!(attach(Scope::Process(pid), "/proc/self/exe"), Err(KernelError::TargetEnded)));
    assert!(matches!(attach(own(), "/proc/self/nothing"), Err(KernelError::Failed { .. })));
}
