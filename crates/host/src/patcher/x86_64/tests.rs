//! Tests with processes. Some processes loop in code that is patched while they run, others wait in a system call. As in a trace,
//! the patcher is a separate process. It can be killed at each step.

mod sharers;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::fixtures::assert_root;
use memtrace_model::Pid;
use memtrace_object::overlay::layout::{CODE_SIZE, DATA_SIZE, MAGIC, MEMFD_NAME, SiteRecord, StubHeader, TOTAL_SIZE};
use memtrace_object::overlay::stub;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::pipe::pipe;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, sock_filter};

use super::attach::{self, StubPlace};
use super::enable;
use super::fault::armed;
use super::ptrace::{self, Change};
use super::remote_call::{CallGadgets, RemoteThread};
use super::stops::StopClock;
use super::threads::Stop;
use crate::own_server::{decode, encode};
use crate::patcher::protocol::{PatchPlan, Stops};
use crate::patcher::refusal::PatchRefusal;
use crate::procfs;

/// `inc qword ptr [rdi]; cmp rdi, 0x1000; ret`. The comparison is the site.
const FUNCTION: [u8; 11] = [0x48, 0xff, 0x07, 0x48, 0x81, 0xff, 0x00, 0x10, 0x00, 0x00, 0xc3];
/// Offset and length of the site.
const SITE: (u64, usize) = (3, 7);
/// File offset of the code for the site: `inc qword ptr [rdi + 8]`, the site, and a jump back.
const SITE_CODE: u64 = 0x1400;
/// Threads of a victim besides its main thread.
const THREADS: usize = 3;
/// Time limit for a change of a counter.
const PATIENCE: Duration = Duration::from_secs(10);

type Outcome = Result<Stops, PatchRefusal>;

/// Memory that a victim shares with the test.
#[repr(C)]
struct Shared {
    ends: AtomicU64,
    /// Number of system calls that have failed.
    errors: AtomicU64,
    /// Number of system calls.
    calls: AtomicU64,
    /// State of the process that uses the same memory (`sharers`).
    sharer: AtomicU64,
    /// For each thread, the number of calls of the function, and the number of calls that the patched function has counted.
    counters: [[AtomicU64; 2]; THREADS],
}

/// Process whose threads call a function in a loop. Its main thread waits in `epoll_wait`.
struct Victim {
    pid: Pid,
    shared: &'static Shared,
    base: u64,
    header: Vec<u8>,
}

impl Victim {
    fn start() -> Self {
        Self::with_code(&FUNCTION)
    }

    /// Starts a victim with this function. Its stub has the records of [`FUNCTION`].
    fn with_code(code: &[u8]) -> Self {
        let base = map(0, TOTAL_SIZE + 4096, libc::PROT_NONE, None);
        let function = base + TOTAL_SIZE;
        let file = memfd("function", code);
        file.set_len(4096).unwrap();
        map(function, 4096, libc::PROT_READ | libc::PROT_EXEC, Some(&file));
        let facts = file.metadata().unwrap();
        let image = image(base, &[record(function + SITE.0, base, (facts.dev(), facts.ino()))]);
        map(base, CODE_SIZE, libc::PROT_READ | libc::PROT_EXEC, Some(&memfd(MEMFD_NAME, &image)));
        map(base + CODE_SIZE, DATA_SIZE, libc::PROT_READ | libc::PROT_WRITE, None);
        let shared = shared();
        // SAFETY: the child does not return, and uses nothing that another thread can have locked.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            run(shared, function);
        }
        let header = image[..size_of::<StubHeader>() + size_of::<SiteRecord>()].to_vec();
        let victim = Self { pid: Pid(pid.cast_unsigned()), shared, base, header };
        victim.assert_alive();
        victim
    }

    fn plan(&self) -> PatchPlan {
        let own = std::process::id();
        PatchPlan { owner: (own, procfs::start_time(Pid(own)).unwrap()), ..plan_of(self.pid) }
    }

    fn enable(&self, is_first: bool, fault: Option<(&str, u32)>) -> Option<Outcome> {
        let control = (!is_first).then(|| stub::initial_control(1 << 20, 0, 7, 9));
        in_patcher(fault, |clock| {
            let control = control.as_ref().map(<[u8; 4096]>::as_slice);
            enable::enable(clock, &self.plan(), self.base, &self.header, control)
        })
    }

    fn disable(&self, fault: Option<(&str, u32)>) -> Option<Outcome> {
        let start = procfs::start_time(self.pid).unwrap();
        in_patcher(fault, |clock| enable::disable(clock, (self.pid.0, start), self.base))
    }

    fn counts(&self, kind: usize) -> [u64; THREADS] {
        std::array::from_fn(|thread| self.shared.counters[thread][kind].load(Ordering::SeqCst))
    }

    /// Waits until each thread has called the function again.
    fn assert_alive(&self) {
        let (before, calls) = (self.counts(0), self.shared.calls.load(Ordering::SeqCst));
        wait_until("all threads run", || {
            self.counts(0).iter().zip(before).all(|(now, before)| *now > before + 10)
                && self.shared.calls.load(Ordering::SeqCst) > calls
        });
    }

    fn is_patched(&self) -> bool {
        self.assert_alive();
        let before = self.counts(1);
        self.assert_alive();
        let after = self.counts(1);
        let counted: Vec<_> = after.iter().zip(before).map(|(after, before)| *after > before).collect();
        assert!(counted.iter().all(|is| *is == counted[0]), "all threads or none: {counted:?}");
        counted[0]
    }

    /// Ends the victim. Returns the number of its system calls that have failed.
    fn end(self) -> u64 {
        self.shared.ends.store(1, Ordering::SeqCst);
        assert_eq!(self.wait(), 0, "it was not killed");
        let errors = self.shared.errors.load(Ordering::SeqCst);
        std::mem::forget(self);
        errors
    }

    /// Waits for the end, and returns the status.
    fn wait(&self) -> i32 {
        let mut status = 0;
        let pid = self.pid.0.cast_signed();
        // SAFETY: the pointer refers to an integer.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status
    }
}

impl Drop for Victim {
    /// Ends the victim of a test that has failed.
    fn drop(&mut self) {
        end_child(self.pid);
    }
}

/// Kills a child, and waits for its end.
fn end_child(pid: Pid) {
    let mut status = 0;
    let pid = pid.0.cast_signed();
    // SAFETY: kill(2) takes two numbers.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    // SAFETY: the pointer refers to an integer.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
}

/// Runs the victim: threads that call the function, and a main thread that waits in a system call that a stop interrupts.
fn run(shared: &'static Shared, function: u64) -> ! {
    // The inherited descriptors include pipes of other tests. These tests wait until no process has the pipes open.
    // SAFETY: the victim uses no descriptor of the tests.
    unsafe { libc::close_range(3, u32::MAX, 0) };
    for counters in &shared.counters {
        let call = move || {
            let pointer = std::ptr::with_exposed_provenance::<()>(function as usize);
            // SAFETY: a function with this signature is at the address.
            let function = unsafe { std::mem::transmute::<*const (), extern "C" fn(*const AtomicU64)>(pointer) };
            while shared.ends.load(Ordering::SeqCst) == 0 {
                function(counters.as_ptr());
            }
        };
        drop(thread::spawn(call));
    }
    // SAFETY: the call takes a number.
    let epoll = unsafe { libc::epoll_create1(0) };
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    while shared.ends.load(Ordering::SeqCst) == 0 {
        // SAFETY: there is room for one event.
        if unsafe { libc::epoll_wait(epoll, &raw mut event, 1, 3) } != 0 {
            shared.errors.fetch_add(1, Ordering::SeqCst);
        }
        shared.calls.fetch_add(1, Ordering::SeqCst);
        sharers::start_if_wanted(shared);
    }
    // SAFETY: the call ends the process without the exit handlers of the tests.
    unsafe { libc::_exit(0) }
}

/// Maps memory, at `address` unless it is 0. Returns the address. The mapping stays until the end of the tests.
fn map(address: u64, length: u64, protection: i32, file: Option<&File>) -> u64 {
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED };
    let anonymous = if file.is_some() { 0 } else { libc::MAP_ANONYMOUS };
    let flags = libc::MAP_PRIVATE | fixed | anonymous;
    let place = std::ptr::without_provenance_mut(address as usize);
    let descriptor = file.map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: the address is 0, or the start of a mapping of this test that nothing refers to.
    let start = unsafe { libc::mmap(place, length as usize, protection, flags, descriptor, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    start.expose_provenance() as u64
}

fn shared() -> &'static Shared {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses the address of a new mapping.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: the mapping is aligned, large enough, stays until the end, and zeros are a value of the counters.
    unsafe { &*start.cast::<Shared>() }
}

fn memfd(name: &str, content: &[u8]) -> File {
    let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC).unwrap());
    file.write_all_at(content, 0).unwrap();
    file
}

fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|index| bytes.get(index).copied().unwrap_or_default())
}

/// Returns a jump from `address` to `target`.
fn jump(address: u64, target: u64) -> [u8; 5] {
    let distance = target.wrapping_sub(address + 5) as u32;
    padded(&[[0xe9].as_slice(), &distance.to_le_bytes()].concat())
}

fn record(address: u64, base: u64, (device, inode): (u64, u64)) -> SiteRecord {
    SiteRecord {
        address,
        file_offset: SITE.0,
        device,
        inode,
        entry: address - SITE.0,
        stub: SITE_CODE as u32,
        length: SITE.1 as u8,
        is_alloc: 1,
        reserved: 0,
        original: padded(&FUNCTION[SITE.0 as usize..][..SITE.1]),
        jump: jump(address, base + SITE_CODE),
        padding: [0; 3],
        name: padded(b"function"),
    }
}

/// Returns the file of a stub.
fn image(base: u64, records: &[SiteRecord]) -> Vec<u8> {
    let header = StubHeader {
        magic: MAGIC,
        base,
        sites: records.len() as u32,
        code_end: 0x2000,
        free_probe: 0x1000,
        tentative_probe: 0x1000,
        undo_probe: 0x1000,
        alloc_probe: 0x1000,
        checksum: 0,
        reserved: [0; 2],
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend(records.iter().flat_map(SiteRecord::to_bytes));
    bytes.resize(CODE_SIZE as usize, 0xcc);
    for record in records {
        let mut code = [[0x48, 0xff, 0x47, 0x08].as_slice(), &record.original[..SITE.1]].concat();
        let end = base + SITE_CODE + code.len() as u64;
        code.extend(jump(end, record.address + SITE.1 as u64));
        bytes[SITE_CODE as usize..][..code.len()].copy_from_slice(&code);
    }
    bytes
}

fn plan_of(pid: Pid) -> PatchPlan {
    PatchPlan {
        pid: pid.0,
        start_time: procfs::start_time(pid).unwrap(),
        syscall_gadget: 0,
        sigreturn_gadget: 0,
        near: 0,
        interval_base: 1 << 20,
        shift: 0,
        owner: (0, 0),
        existing: None,
    }
}

fn wait_until(what: &str, is_reached: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_reached() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// Lets `work` run in a process of its own, which is killed when it reaches the fault point with this name for the given number
/// of times. Returns `None` if the process was killed.
fn in_patcher(fault: Option<(&str, u32)>, work: impl FnOnce(&StopClock) -> Outcome) -> Option<Outcome> {
    let (output, input) = pipe().unwrap();
    // SAFETY: the allocator of the C library can be used after a fork. The child ends without returning.
    let patcher = unsafe { libc::fork() };
    if patcher == 0 {
        if let Some((name, nth)) = fault {
            armed::arm(name, nth, false);
        }
        if let Ok(clock) = StopClock::new() {
            let outcome = work(&clock);
            let _ = encode(&outcome).and_then(|bytes| File::from(input).write_all(&bytes));
        }
        // SAFETY: the call ends the process without the exit handlers of the tests.
        unsafe { libc::_exit(0) };
    }
    drop(input);
    let mut bytes = Vec::new();
    File::from(output).read_to_end(&mut bytes).unwrap();
    let mut status = 0;
    // SAFETY: the pointer refers to an integer.
    assert_eq!(unsafe { libc::waitpid(patcher, &raw mut status, 0) }, patcher);
    if libc::WIFSIGNALED(status) {
        assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
        return None;
    }
    Some(decode(&bytes).unwrap())
}

#[test]
fn privileged_running_threads_are_patched_and_restored() {
    assert_root();
    let victim = Victim::start();
    assert!(!victim.is_patched());
    for cycle in 0..20 {
        let stops = victim.enable(cycle == 0, None).unwrap().unwrap();
        assert!(stops.all > Duration::ZERO && stops.one == Duration::ZERO, "{stops:?}");
        assert!(victim.is_patched(), "{cycle}");
        let again = victim.enable(false, None).unwrap();
        assert!(again.is_ok(), "{again:?}");
        victim.disable(None).unwrap().unwrap();
        assert!(!victim.is_patched(), "{cycle}");
    }
    assert_eq!(victim.end(), 0, "no epoll_wait has returned EINTR");
}

#[test]
fn privileged_threads_survive_the_death_of_the_patcher() {
    assert_root();
    let victim = Victim::start();
    victim.enable(true, None).unwrap().unwrap();
    let threads = THREADS as u32 + 1;
    let enabling =
        ["Seized", "Interrupted", "Released"].into_iter().flat_map(|name| (1..=threads).map(move |nth| (name, nth)));
    for fault in enabling.chain(["AllSeized", "AllStopped", "Cleared", "SiteWritten"].map(|name| (name, 1))) {
        victim.disable(None).unwrap().unwrap();
        assert_eq!(victim.enable(false, Some(fault)), None, "{fault:?} is reached");
        victim.assert_alive();
        let outcome = victim.enable(false, None).unwrap();
        assert!(outcome.is_ok() && victim.is_patched(), "{fault:?}: {outcome:?}");
    }
    for fault in [("DisableStopped", 1), ("SiteRestored", 1), ("Released", 2)] {
        victim.enable(false, None).unwrap().unwrap();
        assert_eq!(victim.disable(Some(fault)), None, "{fault:?} is reached");
        victim.assert_alive();
        victim.disable(None).unwrap().unwrap();
        assert!(!victim.is_patched(), "{fault:?}");
    }
    victim.end();
}

#[test]
fn privileged_stopped_process_stays_stopped() {
    assert_root();
    let victim = Victim::start();
    let pid = victim.pid.0.cast_signed();
    let state = || procfs::task_status(victim.pid, victim.pid.0).unwrap().state;
    // SAFETY: kill(2) takes two numbers.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0);
    wait_until("it is stopped", || state() == b'T');
    victim.enable(true, None).unwrap().unwrap();
    wait_until("it is stopped again", || state() == b'T');
    let before = victim.counts(0);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(victim.counts(0), before, "no thread runs");
    // SAFETY: kill(2) takes two numbers.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGCONT) }, 0);
    assert!(victim.is_patched());
    victim.end();
}

#[test]
fn privileged_foreign_code_is_refused_and_unchanged() {
    assert_root();
    // A nop with the same length at the site.
    let nop = [0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00];
    let victim = Victim::with_code(&[FUNCTION[..3].to_vec(), nop.to_vec(), vec![0xc3]].concat());
    let refusal = victim.enable(true, None).unwrap().unwrap_err();
    let bytes = String::from("0f 1f 80 00 00 00 00");
    assert_eq!(refusal, PatchRefusal::Foreign { function: String::from("function"), bytes });
    assert_eq!(victim.disable(None).unwrap().unwrap_err(), refusal);
    let mut code = [0; 7];
    let memory = procfs::open_memory_for_writing(victim.pid).unwrap();
    memory.read_exact_at(&mut code, victim.base + TOTAL_SIZE + SITE.0).unwrap();
    assert_eq!(code, nop);
    victim.assert_alive();
    victim.end();
}

#[test]
fn privileged_later_process_with_the_same_pid_is_not_restored() {
    assert_root();
    let victim = Victim::start();
    victim.enable(true, None).unwrap().unwrap();
    let start = procfs::start_time(victim.pid).unwrap();
    let disable = |start| in_patcher(None, |clock| enable::disable(clock, (victim.pid.0, start), victim.base));
    assert_eq!(disable(start - 1).unwrap().unwrap_err(), PatchRefusal::Exiting);
    assert!(victim.is_patched());
    disable(start).unwrap().unwrap();
    assert!(!victim.is_patched());
    victim.end();
}

#[test]
fn privileged_used_thread_header_and_other_owner_are_refused() {
    assert_root();
    let victim = Victim::start();
    let memory = procfs::open_memory_for_writing(victim.pid).unwrap();
    let owner = victim.base + CODE_SIZE + 0x68;
    let (parent, start) = (std::os::unix::process::parent_id(), |pid| procfs::start_time(Pid(pid)).unwrap());
    memory.write_all_at(&u64::from(parent).to_le_bytes(), owner).unwrap();
    memory.write_all_at(&start(parent).to_le_bytes(), owner + 8).unwrap();
    assert_eq!(victim.enable(true, None).unwrap().unwrap_err(), PatchRefusal::Owned(parent));
    assert_eq!(victim.disable(None).unwrap().unwrap_err(), PatchRefusal::Owned(parent));
    memory.write_all_at(&[0; 16], owner).unwrap();
    let thread_pointer: u64;
    // SAFETY: the first word of the thread header is its own address. The main thread of the victim has the header of this
    // thread.
    unsafe { std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) thread_pointer, options(nostack, readonly)) };
    memory.write_all_at(&1_u64.to_le_bytes(), thread_pointer + 0x88).unwrap();
    assert_eq!(victim.enable(true, None).unwrap().unwrap_err(), PatchRefusal::HeaderInUse);
    assert!(!victim.is_patched());
    assert!(victim.enable(false, None).unwrap().is_ok(), "the stub of an earlier session");
    victim.end();
}

/// `cat`, which copies its input while its main thread makes system calls for the patcher.
struct Echo {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Echo {
    fn start() -> Self {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut echo = Self { child, output };
        echo.assert_alive();
        echo
    }

    fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    fn assert_alive(&mut self) {
        let mut line = String::new();
        self.child.stdin.as_mut().unwrap().write_all(b"line\n").unwrap();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "line\n");
        // It waits for the next line.
        let pid = self.pid();
        wait_until("it reads", || procfs::task_status(pid, pid.0).unwrap().state == b'S');
    }

    /// Maps a stub without sites. Returns the outcome, and its address.
    fn map(&self, fault: Option<(&str, u32)>) -> (Option<Outcome>, u64) {
        let plan = self.plan();
        let StubPlace::New(base) = attach::place(&plan).unwrap() else { panic!("there is a stub") };
        let (image, control) = (image(base, &[]), stub::initial_control(1 << 20, 0, 7, 9));
        let outcome =
            in_patcher(fault, |clock| attach::map(clock, &plan, base, &image, &control).map(|(stops, _)| stops));
        (outcome, base)
    }

    fn plan(&self) -> PatchPlan {
        let [call, sigreturn] = gadgets(self.pid());
        PatchPlan {
            syscall_gadget: call,
            sigreturn_gadget: sigreturn,
            near: libc_start(self.pid()),
            ..plan_of(self.pid())
        }
    }

    fn stubs(&self) -> Vec<u64> {
        procfs::stubs(self.pid()).unwrap().into_iter().map(|stub| stub.base.0).collect()
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

fn libc_start(pid: Pid) -> u64 {
    let mappings = procfs::mappings(pid).unwrap();
    mappings.iter().find(|entry| entry.path.ends_with("libc.so.6")).unwrap().start.0
}

/// Returns the addresses of `syscall; cmp $-4095,%rax; jae; ret` and `mov $15,%rax; syscall` in the libc of a process.
fn gadgets(pid: Pid) -> [u64; 2] {
    let mappings = procfs::mappings(pid).unwrap();
    let code = mappings.iter().find(|entry| entry.executable && entry.path.ends_with("libc.so.6")).unwrap();
    let mut bytes = vec![0; (code.end.0 - code.start.0) as usize];
    procfs::open_memory_for_writing(pid).unwrap().read_exact_at(&mut bytes, code.start.0).unwrap();
    let call = bytes.windows(11).position(|window| {
        window.starts_with(&[0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0x73]) && window[10] == 0xc3
    });
    let sigreturn = bytes.windows(9).position(|window| window == [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05]);
    [call, sigreturn].map(|offset| code.start.0 + offset.unwrap() as u64)
}

/// Number of descriptors that lead to a stub.
fn leaked_descriptors(pid: Pid) -> usize {
    let descriptors = std::fs::read_dir(procfs::proc_path(pid, "fd")).unwrap();
    descriptors
        .filter(|entry| {
            let link = std::fs::read_link(entry.as_ref().unwrap().path());
            link.is_ok_and(|link| link.to_string_lossy().starts_with("/memfd:memtrace-stub"))
        })
        .count()
}

#[test]
fn privileged_main_thread_maps_the_stub() {
    assert_root();
    let mut echo = Echo::start();
    let before = procfs::task_status(echo.pid(), echo.pid().0).unwrap();
    let (outcome, base) = echo.map(None);
    let stops = outcome.unwrap().unwrap();
    assert!(stops.one > Duration::ZERO && stops.all == Duration::ZERO, "{stops:?}");
    assert_eq!((echo.stubs(), leaked_descriptors(echo.pid())), (vec![base], 0));
    let memory = procfs::open_memory_for_writing(echo.pid()).unwrap();
    let mut code = vec![0; CODE_SIZE as usize];
    memory.read_exact_at(&mut code, base).unwrap();
    assert_eq!(code, image(base, &[]));
    let mut epoch = [0; 8];
    memory.read_exact_at(&mut epoch, base + CODE_SIZE).unwrap();
    assert_eq!(epoch, 7_u64.to_le_bytes());
    echo.assert_alive();
    let after = procfs::task_status(echo.pid(), echo.pid().0).unwrap();
    assert_eq!((after.blocked, after.pending, after.tracer), (before.blocked, before.pending, 0));
    let plan = PatchPlan { existing: Some(base), ..echo.plan() };
    let place = attach::place(&plan).unwrap();
    assert!(matches!(place, StubPlace::Existing(_)), "{place:?}");
    echo.end();
}

#[test]
fn privileged_main_thread_survives_the_death_of_the_patcher() {
    assert_root();
    let once = [
        "Seized",
        "Interrupted",
        "Stopped",
        "RegistersRead",
        "FrameWritten",
        "AfterMask",
        "MemfdOpened",
        "ImageWritten",
        "ControlWritten",
        "Unmasked",
        "RegsRestored",
        "Continued",
        "DetachedA",
    ];
    let calls = ["BeforeSetRegs", "AfterSetRegs", "SyscallEntry", "SyscallExit"];
    let of_calls = calls.into_iter().flat_map(|name| (1..=4).map(move |nth| (name, nth)));
    let mut echo = Echo::start();
    let blocked = procfs::task_status(echo.pid(), echo.pid().0).unwrap().blocked;
    for fault in once.map(|name| (name, 1)).into_iter().chain(of_calls) {
        let (outcome, _) = echo.map(Some(fault));
        assert_eq!(outcome, None, "{fault:?} is reached");
        echo.assert_alive();
        let status = procfs::task_status(echo.pid(), echo.pid().0).unwrap();
        assert_eq!((status.blocked, status.tracer), (blocked, 0), "{fault:?}");
        let (outcome, base) = echo.map(None);
        assert!(matches!(outcome, Some(Ok(_))), "{fault:?}: {outcome:?}");
        assert!(echo.stubs().contains(&base), "{fault:?}");
        // Each process has a few stubs at most.
        if echo.stubs().len() > 4 {
            echo.end();
            echo = Echo::start();
        }
    }
    echo.end();
}

#[test]
fn privileged_breakpoint_in_a_gadget_is_refused() {
    assert_root();
    let mut echo = Echo::start();
    let plan = echo.plan();
    let memory = procfs::open_memory_for_writing(echo.pid()).unwrap();
    let mut before = [0; 2];
    memory.read_exact_at(&mut before, plan.syscall_gadget).unwrap();
    memory.write_all_at(&[0xcc], plan.syscall_gadget).unwrap();
    let (image, control) = (image(1 << 21, &[]), stub::initial_control(1, 0, 7, 9));
    let outcome =
        in_patcher(None, |clock| attach::map(clock, &plan, 1 << 21, &image, &control).map(|(stops, _)| stops));
    let refusal = outcome.unwrap().unwrap_err();
    assert!(matches!(&refusal, PatchRefusal::Foreign { function, .. } if function == "syscall"), "{refusal:?}");
    memory.write_all_at(&before, plan.syscall_gadget).unwrap();
    echo.assert_alive();
    assert_eq!(echo.stubs(), [0_u64; 0]);
    echo.end();
}

/// Loops with a value in a vector register, and counts the rounds that find another value in the register.
#[target_feature(enable = "avx")]
fn compare_vector_register(shared: &Shared) {
    let pattern = [0x0123_4567_89ab_cdef_u64, 2, 3, 0xfedc_ba98_7654_3210];
    let mut seen = [0_u64; 4];
    // SAFETY: the code writes only `seen` and the counters.
    unsafe {
        std::arch::asm!(
            "vmovdqu ymm15, [{pattern}]",
            "2:",
            "vmovdqu [{seen}], ymm15",
            "mov {word}, [{seen}]",
            "cmp {word}, [{pattern}]",
            "jne 3f",
            "mov {word}, [{seen} + 24]",
            "cmp {word}, [{pattern} + 24]",
            "je 4f",
            "3:",
            "inc qword ptr [{errors}]",
            "vmovdqu ymm15, [{pattern}]",
            "4:",
            "inc qword ptr [{calls}]",
            "cmp qword ptr [{ends}], 0",
            "je 2b",
            "vzeroupper",
            pattern = in(reg) pattern.as_ptr(),
            seen = in(reg) seen.as_mut_ptr(),
            errors = in(reg) shared.errors.as_ptr(),
            calls = in(reg) shared.calls.as_ptr(),
            ends = in(reg) shared.ends.as_ptr(),
            word = out(reg) _,
            out("ymm15") _,
        );
    }
}

#[test]
fn privileged_calls_change_no_register_even_if_the_patcher_dies() {
    assert_root();
    if !std::arch::is_x86_feature_detected!("avx") {
        return;
    }
    let shared = shared();
    // SAFETY: the child does not return, and uses nothing that another thread can have locked.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the victim uses no descriptor of the tests.
        unsafe { libc::close_range(3, u32::MAX, 0) };
        // SAFETY: the processor has this feature.
        unsafe { compare_vector_register(shared) };
        // SAFETY: the call ends the process without the exit handlers of the tests.
        unsafe { libc::_exit(0) };
    }
    let pid = Pid(child.cast_unsigned());
    let [call, sigreturn] = gadgets(pid);
    // Any stack is accepted: nothing is below the stack of this thread.
    let call_twice = |clock: &StopClock| -> Outcome {
        let mut stop = Stop::begin(clock, pid, Duration::from_millis(500))?;
        let tid = stop.stop_main()?;
        let mut thread = RemoteThread::prepare(&mut stop, tid, CallGadgets { call, sigreturn }, |_, _| true)?;
        let own = thread.call(&mut stop, libc::SYS_getpid, [0; 6])?;
        let error = thread.call(&mut stop, libc::SYS_close, [u64::from(u32::MAX), 0, 0, 0, 0, 0])?;
        thread.finish(&mut stop)?;
        let (one, _) = stop.release();
        let results = (own, error) == (Ok(pid.0.into()), Err(libc::EBADF));
        if results { Ok(Stops { one, ..Stops::default() }) } else { Err(PatchRefusal::Busy) }
    };
    let names =
        ["FrameWritten", "AfterSetRegs", "AfterMask", "SyscallEntry", "SyscallExit", "Unmasked", "RegsRestored"];
    let faults =
        names.map(|name| Some((name, 1))).into_iter().chain([Some(("AfterSetRegs", 2)), Some(("SyscallExit", 2))]);
    for fault in (0..20).map(|_| None).chain(faults) {
        let before = shared.calls.load(Ordering::SeqCst);
        let outcome = in_patcher(fault, call_twice);
        assert!(matches!((&outcome, fault), (Some(Ok(_)), None) | (None, Some(_))), "{fault:?}: {outcome:?}");
        wait_until("it runs", || shared.calls.load(Ordering::SeqCst) > before + 1000);
        assert_eq!(shared.errors.load(Ordering::SeqCst), 0, "{fault:?}");
    }
    end_child(pid);
}

/// Starts a process that sleeps again and again, under a seccomp filter unless it is empty.
fn start_sleeper(shared: &'static Shared, filter: &[sock_filter]) -> Pid {
    // SAFETY: the child does not return, and uses nothing that another thread can have locked.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the child uses no descriptor of the tests.
        unsafe { libc::close_range(3, u32::MAX, 0) };
        let is_filtered = filter.is_empty() || seccompiler::apply_filter(filter).is_ok();
        loop {
            // SAFETY: there are no descriptors.
            let result = unsafe { libc::poll(std::ptr::null_mut(), 0, 100) };
            shared.errors.fetch_add(u64::from(result != 0 || !is_filtered), Ordering::SeqCst);
            shared.calls.fetch_add(1, Ordering::SeqCst);
        }
    }
    wait_until("it sleeps", || shared.calls.load(Ordering::SeqCst) > 0);
    Pid(child.cast_unsigned())
}

#[test]
fn privileged_signal_is_not_lost_if_the_patcher_dies() {
    assert_root();
    let child = start_sleeper(shared(), &[]).0.cast_signed();
    let outcome = in_patcher(None, |_| {
        let failed = |error: std::io::Error| PatchRefusal::Patcher(error.to_string());
        ptrace::seize(child).map_err(failed)?;
        // SAFETY: kill(2) takes two numbers.
        unsafe { libc::kill(child, libc::SIGUSR1) };
        let found = ptrace::wait(0).map_err(failed)?.map(|(tid, status)| (tid, Change::of(status)));
        if found == Some((child, Change::Signal(libc::SIGUSR1))) {
            // SAFETY: kill(2) takes two numbers.
            unsafe { libc::kill(std::process::id().cast_signed(), libc::SIGKILL) };
        }
        Err(PatchRefusal::Busy)
    });
    assert_eq!(outcome, None, "the patcher sees the signal");
    let mut status = 0;
    // SAFETY: the pointer refers to an integer.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(
        (libc::WIFSIGNALED(status), libc::WTERMSIG(status)),
        (true, libc::SIGUSR1),
        "the signal ends the process"
    );
}

#[test]
fn privileged_filter_of_restart_syscall_does_not_kill() {
    assert_root();
    let rules = BTreeMap::from([(libc::SYS_restart_syscall, vec![])]);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::KillProcess, TargetArch::x86_64);
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    let shared = shared();
    let pid = start_sleeper(shared, &program);
    let stop_once = |clock: &StopClock| -> Outcome {
        let mut stop = Stop::begin(clock, pid, Duration::from_millis(500))?;
        stop.stop_main()?;
        let (one, rewound) = stop.release();
        Ok(Stops { one, rewound, ..Stops::default() })
    };
    let mut rewound = 0;
    for _ in 0..5 {
        let calls = shared.calls.load(Ordering::SeqCst);
        rewound += in_patcher(None, stop_once).unwrap().unwrap().rewound;
        wait_until("it sleeps again", || shared.calls.load(Ordering::SeqCst) > calls);
    }
    assert!(rewound > 0, "a stop has interrupted poll");
    assert_eq!(shared.errors.load(Ordering::SeqCst), 0);
    end_child(pid);
}
