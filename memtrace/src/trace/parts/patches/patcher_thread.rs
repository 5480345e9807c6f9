//! Thread that plans the changes of processes and commands the patcher, so that the event loop never waits for a process.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use memtrace_host::patcher::{Attached, PatchPlan, PatchRefusal, Patcher, Stops};
use memtrace_host::procfs::{self, PatchedStub};
use memtrace_model::{AbsAddr, Bytes, ImageId, Mapping, Pid};
use memtrace_object::overlay::layout::SiteRecord;
use memtrace_object::overlay::stub::{self, SiteAt};

use super::plan::{Plan, PlanSummary, Planner};
use super::sites::{CheckedSite, has_jumps};
use super::stub_file::inode_of;
use super::watch::RestoreRequest;
use crate::targets::select::usable_stub;

/// Maximum number of gaps of a process with a stub of an earlier trace.
const MAX_GAPS: usize = 64;

/// Maximum time for which a round of ending an earlier session stops processes, and maximum duration of a round after its search.
/// A single stop can exceed these limits.
const ROUND_STOPPED: Duration = Duration::from_millis(25);
const ROUND: Duration = Duration::from_secs(1);

/// Time after which all processes are searched for stubs again, instead of new processes only. They are searched earlier if a new
/// process can have the pid of an ended one. The second number is the maximum number of remembered stubs.
const KNOWN_FOR: Duration = Duration::from_secs(60);
const MAX_KNOWN: usize = 1 << 14;

/// Process to patch.
pub(super) struct MapRequest {
    pub(super) id: ImageId,
    /// Start of the process, in clock ticks since the boot.
    pub(super) start_time: u64,
    /// Executable mappings of the process.
    pub(super) mappings: Vec<Mapping>,
    /// Base of the sampling interval, and its shift.
    pub(super) interval: (Bytes, u8),
    /// Pid and start time of this memtrace.
    pub(super) owner: (u32, u64),
}

/// Process with a stub.
pub(super) struct Mapped {
    /// Start of the process, in clock ticks since the boot.
    pub(super) start_time: u64,
    pub(super) summary: Arc<PlanSummary>,
    pub(super) attached: Attached,
    /// True if the descriptor of the stub has the lock of its file. If false, another process has the lock, or another
    /// descriptor of this memtrace has it.
    pub(super) is_locked: bool,
}

/// Round of ending the session of a memtrace that has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EndedSession {
    /// Processes that have the stub.
    pub(super) processes: Vec<Pid>,
    /// Sum of the stops.
    pub(super) stopped: Duration,
    /// True if no process jumped to the stub at the start of the round.
    pub(super) is_complete: bool,
}

enum Request {
    Map(Box<MapRequest>),
    EndSession { id: ImageId, mapped: Box<Mapped>, is_shared: bool },
    Enable(ImageId, Box<Mapped>),
    Disable(RestoreRequest),
    Forget(HashSet<PathBuf>),
}

/// Result of a request.
pub(super) enum Answer {
    /// The stub is mapped. The code of the process was not changed.
    Mapped(ImageId, Result<Box<Mapped>, PatchRefusal>),
    /// The code of processes was restored.
    SessionEnded(ImageId, Box<Mapped>, Result<EndedSession, PatchRefusal>),
    /// The code was changed.
    Enabled(ImageId, Box<Mapped>, Result<Stops, PatchRefusal>),
    /// The code was restored.
    Disabled(ImageId, Result<Stops, PatchRefusal>),
}

/// The thread. It ends when this is dropped, after the request in progress.
pub(super) struct PatcherThread {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    /// Number of requests without an answer.
    pending: usize,
}

impl PatcherThread {
    /// Starts the thread. The patcher starts with the first request.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub(super) fn start() -> io::Result<Self> {
        let (requests, incoming) = mpsc::channel();
        let (outgoing, answers) = mpsc::channel();
        let work = move || {
            let mut worker = Worker::default();
            while let Ok(request) = incoming.recv() {
                if let Some(answer) = worker.handle(request)
                    && outgoing.send(answer).is_err()
                {
                    return;
                }
            }
        };
        thread::Builder::new().name(String::from("memtrace-patches")).spawn(work)?;
        Ok(Self { requests, answers, pending: 0 })
    }

    /// Returns true if a request has no answer yet.
    pub(super) const fn is_busy(&self) -> bool {
        self.pending > 0
    }

    /// Requests to map a stub in a process.
    pub(super) fn map(&mut self, request: MapRequest) {
        self.send(Request::Map(Box::new(request)));
    }

    /// Requests a round of restoring the code of the processes that jump to the stub of a memtrace that has ended: this process, and
    /// the others with the same file if `is_shared` is true.
    ///
    /// Probes in the file report the samples of all these processes. Samples of the earlier session would be drawn with
    /// its intervals, be thinned with its salt, and lose their frees as soon as a new session empties the table. So the
    /// earlier session ends before the probes are attached, and a new one begins after that.
    pub(super) fn end_session(&mut self, id: ImageId, mapped: Box<Mapped>, is_shared: bool) {
        self.send(Request::EndSession { id, mapped, is_shared });
    }

    /// Requests to change the code of a process with a stub.
    pub(super) fn enable(&mut self, id: ImageId, mapped: Box<Mapped>) {
        self.send(Request::Enable(id, mapped));
    }

    /// Requests to restore the code of a process.
    pub(super) fn disable(&mut self, request: RestoreRequest) {
        self.send(Request::Disable(request));
    }

    /// Forgets objects with closed files.
    pub(super) fn forget(&self, closed: &HashSet<PathBuf>) {
        // Sending fails if the thread has panicked. Then no plan is made.
        let _ = self.requests.send(Request::Forget(closed.clone()));
    }

    fn send(&mut self, request: Request) {
        self.pending += usize::from(self.requests.send(request).is_ok());
    }

    /// Returns the next answer, if it arrives within `time`.
    pub(super) fn receive(&mut self, time: Duration) -> Option<Answer> {
        let received = if time.is_zero() {
            self.answers.try_recv().map_err(|error| error == TryRecvError::Disconnected)
        } else {
            self.answers.recv_timeout(time).map_err(|error| error == RecvTimeoutError::Disconnected)
        };
        match received {
            Ok(answer) => {
                self.pending = self.pending.saturating_sub(1);
                Some(answer)
            }
            Err(has_ended) => {
                if has_ended {
                    self.pending = 0;
                }
                None
            }
        }
    }
}

/// State of the thread.
#[derive(Default)]
struct Worker {
    planner: Planner,
    /// The patcher; `None` before the first request, and after a request without an answer.
    patcher: Option<Patcher>,
    /// Summary of the last process with a stub of an earlier trace. Forked processes share it.
    last_adopted: Option<Arc<PlanSummary>>,
    /// Result of the last search for stubs.
    found: Option<FoundStubs>,
    /// Processes whose code was restored, so that the present process can be patched.
    restored: HashSet<Pid>,
}

/// Stubs of all processes.
struct FoundStubs {
    /// Time of the last search in all processes.
    at: Instant,
    /// Pid that was assigned last before the last search.
    last_pid: Option<Pid>,
    processes: BTreeSet<Pid>,
    stubs: Vec<(Pid, PatchedStub)>,
}

impl Worker {
    /// Handles a request. Returns `None` for one without an answer.
    fn handle(&mut self, request: Request) -> Option<Answer> {
        Some(match request {
            Request::Map(request) => {
                let id = request.id;
                Answer::Mapped(id, self.map(&request).map(Box::new))
            }
            Request::EndSession { id, mut mapped, is_shared } => {
                let Attached { base, stub, sites, stops, .. } = &mut mapped.attached;
                let (base, sites) = (AbsAddr(*base), CheckedSite::all(sites));
                let stub = inode_of(stub).filter(|_| is_shared).map(|file| PatchedStub { base, file });
                let result = self.end_session(id.pid, base, stub, &sites, stops);
                Answer::SessionEnded(id, mapped, result)
            }
            Request::Enable(id, mapped) => {
                let result = self.with_patcher(|patcher| patcher.enable(&mapped.attached));
                Answer::Enabled(id, mapped, result)
            }
            Request::Disable(RestoreRequest { id, start_time, base }) => {
                Answer::Disabled(id, self.with_patcher(|patcher| patcher.disable((id.pid, start_time), base.0)))
            }
            Request::Forget(closed) => {
                self.planner.forget(&closed);
                return None;
            }
        })
    }

    fn map(&mut self, request: &MapRequest) -> Result<Mapped, PatchRefusal> {
        let &MapRequest { id: ImageId { pid, .. }, start_time, interval: (Bytes(interval_base), shift), owner, .. } =
            request;
        self.restored.clear();
        let Plan { sites, call_gadget, sigreturn_gadget, near, summary } = self.planner.plan(pid, &request.mappings)?;
        let existing = existing_stub(pid)?;
        let plan = PatchPlan {
            pid: pid.0,
            start_time,
            syscall_gadget: call_gadget,
            sigreturn_gadget,
            near,
            interval_base,
            shift,
            owner,
            existing: existing.map(|AbsAddr(base)| base),
        };
        let attached = self.with_patcher(|patcher| patcher.map(&plan, |base| stub::build(base, &sites)))?;
        let is_locked = PatchedStub::lock(attached.stub.as_fd())
            .map_err(|error| PatchRefusal::Patcher(format!("the lock of the stub: {error}")))?;
        let summary =
            if attached.adopted { self.summary_of_adopted(&summary, &sites, &attached.sites) } else { summary };
        Ok(Mapped { start_time, summary, attached, is_locked })
    }

    /// Returns the summary for a stub of an earlier trace. The stub can have other sites than the plan.
    fn summary_of_adopted(
        &mut self,
        summary: &Arc<PlanSummary>,
        planned: &[SiteAt],
        sites: &[SiteRecord],
    ) -> Arc<PlanSummary> {
        let adopted = adopted(summary, planned, sites);
        let known = [Some(summary), self.last_adopted.as_ref()];
        let equal = known.into_iter().flatten().find(|known| ***known == adopted).cloned();
        equal.unwrap_or_else(|| Arc::clone(self.last_adopted.insert(Arc::new(adopted))))
    }

    /// Restores the code of the processes that jump to a stub: the stub of `pid` at `base`, and the same `stub` of
    /// other processes. `stops`: stops of `pid`.
    fn end_session(
        &mut self,
        pid: Pid,
        base: AbsAddr,
        stub: Option<PatchedStub>,
        sites: &[CheckedSite],
        stops: &mut Stops,
    ) -> Result<EndedSession, PatchRefusal> {
        let mut processes = stub.map(|stub| self.processes_with(stub)).unwrap_or_default();
        if !processes.contains(&pid) {
            processes.push(pid);
        }
        let (begin, mut stopped, mut is_complete, mut has_tried) = (Instant::now(), Duration::ZERO, true, false);
        for &process in &processes {
            let start_time = match start_of_jumping(process, base, sites) {
                Ok(Some(start_time)) => start_time,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(PatchRefusal::ExecInProgress),
                // It has exited, or runs another program.
                Ok(None) | Err(_) => continue,
            };
            // Each round restores one process at least.
            if has_tried && (stopped >= ROUND_STOPPED || begin.elapsed() >= ROUND) {
                is_complete = false;
                break;
            }
            if self.restored.contains(&process) {
                log::debug!("process {process} has changed its own code, or its stub");
                return Err(PatchRefusal::Busy);
            }
            has_tried = true;
            let start = Instant::now();
            match self.with_patcher(|patcher| patcher.disable((process, start_time), base.0)) {
                Ok(done) => {
                    stopped += done.all;
                    if process == pid {
                        stops.all = stops.all.max(done.all);
                        stops.rewound = stops.rewound.saturating_add(done.rewound);
                    }
                }
                // The process writes a core dump, which can take minutes, and executes no code any more.
                Err(PatchRefusal::Exiting) if !procfs::has_ended(process) => continue,
                Err(refusal) => {
                    stopped += start.elapsed().min(ROUND_STOPPED);
                    // The process can have exited or called exec since. Or another tool has changed one function, and
                    // the other functions are restored.
                    let is_restored = match has_jumps(process, base, sites) {
                        Ok(has_jumps) => !has_jumps,
                        Err(error) => error.kind() != io::ErrorKind::TimedOut,
                    };
                    if !is_restored {
                        log::debug!("process {process} keeps the code of an earlier trace: {refusal}");
                        // It can call exec between two reads.
                        return Err(if refusal == PatchRefusal::OtherVersion { PatchRefusal::Busy } else { refusal });
                    }
                }
            }
            self.restored.insert(process);
            // A child that a fork has created since the search has the jumps too, so another round follows.
            is_complete = false;
        }
        Ok(EndedSession { processes, stopped, is_complete })
    }

    /// Returns the processes with a stub. The first search reads the memory maps of all processes, which takes a second for some
    /// thousands. A later search reads the memory maps of processes that have started since: a stub gets into other
    /// processes by forks.
    fn processes_with(&mut self, stub: PatchedStub) -> Vec<Pid> {
        let last_pid = procfs::last_pid();
        let is_current = |found: &FoundStubs| found.at.elapsed() < KNOWN_FOR && !are_reused(found.last_pid, last_pid);
        let known = self.found.take().filter(is_current);
        let new = || FoundStubs { at: Instant::now(), last_pid, processes: BTreeSet::new(), stubs: Vec::new() };
        let FoundStubs { at, mut processes, mut stubs, .. } = known.unwrap_or_else(new);
        let started = PatchedStub::of_new_processes(&mut processes);
        stubs.retain(|(pid, _)| processes.contains(pid));
        stubs.extend(started);
        let found = stubs.iter().filter(|(_, other)| *other == stub).map(|(pid, _)| *pid).collect();
        self.found = (stubs.len() <= MAX_KNOWN).then_some(FoundStubs { at, last_pid, processes, stubs });
        found
    }

    /// Calls `work` with the patcher. After a request without an answer, the next request gets a new patcher: the old
    /// patcher finishes the work on its process, and then ends.
    fn with_patcher<T>(
        &mut self,
        work: impl FnOnce(&mut Patcher) -> Result<T, PatchRefusal>,
    ) -> Result<T, PatchRefusal> {
        let patcher = match self.patcher.take() {
            Some(patcher) => patcher,
            None => Patcher::start().map_err(|error| PatchRefusal::Patcher(error.to_string()))?,
        };
        let result = work(self.patcher.insert(patcher));
        if matches!(result, Err(PatchRefusal::Timeout | PatchRefusal::Patcher(_))) {
            self.patcher = None;
        }
        result
    }
}

/// Returns true if pids of ended processes can have been assigned again between two times. `before` and `now`: pids
/// that were assigned last at these times.
fn are_reused(before: Option<Pid>, now: Option<Pid>) -> bool {
    before.zip(now).is_some_and(|(before, now)| now < before)
}

/// Returns the summary for a stub with these sites: functions with a site in the stub are no gaps, and the other
/// functions of the plan are gaps.
fn adopted(summary: &PlanSummary, planned: &[SiteAt], sites: &[SiteRecord]) -> PlanSummary {
    let is_missing = |site: &&SiteAt| {
        let address = site.site.virt.0.wrapping_add(site.bias);
        !sites.iter().any(|record| record.address == address)
    };
    let missing = planned.iter().filter(is_missing);
    let missing = missing.map(|site| format!("{}: the stub of an earlier trace has no code for it", site.site.name));
    let names: Vec<_> = sites.iter().map(SiteRecord::name).collect();
    let has_site =
        |gap: &str| gap.split_once(" (").is_some_and(|(function, _)| names.iter().any(|name| name == function));
    let gaps = summary.gaps.iter().filter(|gap| !has_site(gap.as_str())).cloned();
    PlanSummary {
        functions: u16::try_from(sites.len()).unwrap_or(u16::MAX),
        gaps: missing.chain(gaps).take(MAX_GAPS).collect(),
        ..summary.clone()
    }
}

/// Returns the start of a process whose code jumps to the stub at `base`; `None` if it does not.
///
/// # Errors
///
/// As for [`has_jumps`].
fn start_of_jumping(pid: Pid, base: AbsAddr, sites: &[CheckedSite]) -> io::Result<Option<u64>> {
    if !has_jumps(pid, base, sites)? {
        return Ok(None);
    }
    let Some(start_time) = procfs::start_time(pid) else {
        return if procfs::has_ended(pid) { Ok(None) } else { Err(io::ErrorKind::TimedOut.into()) };
    };
    // Another process can have got the pid before the start time was read, so check the jumps again.
    Ok(has_jumps(pid, base, sites)?.then_some(start_time))
}

/// Returns the address of a stub from an earlier change of the process.
fn existing_stub(pid: Pid) -> Result<Option<AbsAddr>, PatchRefusal> {
    usable_stub(pid).map_err(|error| {
        log::debug!("process {pid}: its stubs are not known: {error}");
        if procfs::has_ended(pid) { PatchRefusal::Exiting } else { PatchRefusal::Busy }
    })
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use harness::fixtures::Anonymous;
    use memtrace_host::procfs::Inode;
    use memtrace_model::{FileOffset, Object, VirtOffset};
    use memtrace_object::overlay::layout;
    use memtrace_object::overlay::site::{OverlaySite, SiteKind};
    use memtrace_object::probe_site::GeneralRegister;

    use super::*;

    /// Returns the answer to a request. The answer must arrive within a minute.
    fn answer(thread: &mut PatcherThread) -> Answer {
        thread.receive(Duration::from_secs(60)).expect("an answer")
    }

    #[test]
    fn process_without_an_allocator_is_refused_without_a_patcher() {
        let mut thread = PatcherThread::start().unwrap();
        let object =
            Arc::new(Object { path: "/bin/no".into(), handle: Some("/no".into()), build_id: None, root: None });
        let mapping =
            Mapping { start: AbsAddr(0x40_0000), end: AbsAddr(0x40_1000), offset: FileOffset(0), object: Some(object) };
        let id = ImageId { pid: Pid(std::process::id()), ordinal: 3 };
        assert!(!thread.is_busy());
        let request =
            MapRequest { id, start_time: 1, mappings: vec![mapping], interval: (Bytes(1 << 19), 0), owner: (1, 1) };
        thread.map(request);
        thread.forget(&HashSet::from(["/no".into()]));
        assert!(thread.is_busy());
        let Answer::Mapped(answered, Err(refusal)) = answer(&mut thread) else { panic!("not refused") };
        assert_eq!((answered, refusal), (id, PatchRefusal::Static));
        assert!(!thread.is_busy() && thread.receive(Duration::ZERO).is_none());
    }

    /// Returns a site that the plan of a process has, at this address of its object.
    fn planned(name: &str, virt: u64) -> SiteAt {
        let site = OverlaySite {
            name: name.to_owned(),
            function: VirtOffset(virt),
            entry_offset: FileOffset(virt),
            offset: FileOffset(virt),
            virt: VirtOffset(virt),
            original: vec![0x90; 5],
            relative: None,
            is_jump: false,
            replay: Vec::new(),
            kind: SiteKind::Free { block: GeneralRegister(7) },
            lowered: 0,
            saved: Vec::new(),
            scratch: Vec::new(),
            arguments: Vec::new(),
        };
        SiteAt { site, bias: 0x70_0000, device: 1, inode: 2 }
    }

    /// Returns a site of a stub at this address of the process.
    fn record(name: &str, address: u64) -> SiteRecord {
        let mut padded = [0; 64];
        padded[..name.len()].copy_from_slice(name.as_bytes());
        SiteRecord {
            address,
            file_offset: 0,
            device: 1,
            inode: 2,
            entry: address,
            stub: 0x1400,
            length: 5,
            is_alloc: 0,
            reserved: 0,
            original: [0; 16],
            jump: [0; 5],
            padding: [0; 3],
            name: padded,
        }
    }

    /// Pages of this process with the header of a stub and code that begins with `code`, and the site of that code.
    fn stub_with_site(code: [u8; 5]) -> (Anonymous, Rc<[CheckedSite]>) {
        let pages = Anonymous::new(8192);
        let record =
            SiteRecord { original: [0x11; 16], jump: [0xe9, 1, 2, 3, 4], ..record("malloc", pages.start().0 + 4096) };
        let [a, b, c, d, e] = code;
        pages.write(0, u64::from_le_bytes(layout::MAGIC));
        pages.write(4096, u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]));
        (pages, CheckedSite::all(&[record]))
    }

    #[test]
    fn process_is_restored_by_its_start() {
        let own = Pid(std::process::id());
        let (pages, sites) = stub_with_site([0xe9, 1, 2, 3, 4]);
        let start = procfs::start_time(own);
        assert!(start.is_some());
        assert_eq!(start_of_jumping(own, pages.start(), &sites).unwrap(), start);
        let (pages, sites) = stub_with_site([0x11; 5]);
        assert_eq!(start_of_jumping(own, pages.start(), &sites).unwrap(), None);
        assert!(start_of_jumping(Pid(u32::MAX), pages.start(), &sites).is_err());
    }

    #[test]
    fn session_has_ended_if_no_code_jumps_to_the_stub() {
        let (own, mut worker, mut stops) = (Pid(std::process::id()), Worker::default(), Stops::default());
        let (pages, sites) = stub_with_site([0x11; 5]);
        let ended = EndedSession { processes: vec![own], stopped: Duration::ZERO, is_complete: true };
        assert_eq!(worker.end_session(own, pages.start(), None, &sites, &mut stops), Ok(ended));
        // A process whose code was restored before has written the jump itself. It is not stopped again.
        let (pages, sites) = stub_with_site([0xe9, 1, 2, 3, 4]);
        worker.restored.insert(own);
        assert_eq!(worker.end_session(own, pages.start(), None, &sites, &mut stops), Err(PatchRefusal::Busy));
        assert!(worker.patcher.is_none(), "nothing was stopped");
    }

    #[test]
    fn later_searches_look_for_new_processes() {
        let stub = |inode| PatchedStub { base: AbsAddr(4096), file: Inode { device: 1, inode } };
        let (own, gone) = (Pid(std::process::id()), Pid(u32::MAX));
        let at = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).expect("the machine runs longer");
        let found = |seconds| FoundStubs {
            at: at(seconds),
            last_pid: None,
            processes: BTreeSet::from([own, gone]),
            stubs: vec![(own, stub(2)), (gone, stub(2)), (own, stub(3))],
        };
        let mut worker = Worker { found: Some(found(50)), ..Worker::default() };
        // The maps of this process are not read again: it has no such stub.
        assert_eq!(worker.processes_with(stub(2)), [own]);
        assert_eq!((worker.processes_with(stub(3)), worker.processes_with(stub(4))), (vec![own], vec![]));
        let known = worker.found.expect("few stubs");
        assert!(known.processes.len() > 1 && !known.processes.contains(&gone), "{:?}", known.processes);
        assert!(known.at.elapsed() >= Duration::from_secs(50), "the time of the search in all processes");
        let wrapped = FoundStubs { last_pid: Some(Pid(u32::MAX)), ..found(50) };
        let mut worker = Worker { found: Some(wrapped), ..Worker::default() };
        assert!(worker.processes_with(stub(2)).is_empty(), "a process can have the pid of one that has ended");
        let mut worker = Worker { found: Some(found(61)), ..Worker::default() };
        assert!(worker.processes_with(stub(2)).is_empty());
        assert!(Worker::default().processes_with(stub(2)).is_empty());
    }

    #[test]
    fn earlier_stub_states_its_own_functions_and_gaps() {
        let object = Arc::new(Object { path: "/lib/libj.so".into(), handle: None, build_id: None, root: None });
        let gaps = ["valloc (/lib/libj.so): no site", "mallocx (/lib/libj.so): no site"].map(String::from);
        let summary = Arc::new(PlanSummary {
            object,
            kinds: String::from("jemalloc"),
            functions: 3,
            gaps: gaps.into_iter().collect(),
        });
        let planned = [planned("malloc", 0x10), planned("free", 0x20), planned("calloc", 0x30)];
        // Today's plan has no site for mallocx. The earlier one has none for calloc.
        let stub = [record("malloc", 0x70_0010), record("free", 0x70_0020), record("mallocx", 0x70_0040)];
        let mut worker = Worker::default();
        let adopted = worker.summary_of_adopted(&summary, &planned, &stub[..2]);
        assert_eq!((adopted.functions, adopted.gaps.len()), (2, 3));
        assert_eq!(adopted.gaps[0], "calloc: the stub of an earlier trace has no code for it");
        let other = worker.summary_of_adopted(&summary, &planned, &stub);
        assert_eq!((other.functions, other.gaps.len()), (3, 2));
        assert_eq!(other.gaps[1], "valloc (/lib/libj.so): no site");
        assert!(
            Arc::ptr_eq(&other, &worker.summary_of_adopted(&summary, &planned, &stub)),
            "forked processes share it"
        );
        let same = [record("malloc", 0x70_0010), record("free", 0x70_0020), record("calloc", 0x70_0030)];
        assert!(Arc::ptr_eq(&summary, &worker.summary_of_adopted(&summary, &planned, &same)));
    }
}
