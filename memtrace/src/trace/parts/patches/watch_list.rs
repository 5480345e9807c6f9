//! The patched processes of a run: reads their control pages, adapts their intervals, and compares their code.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use memtrace_history::pipeline::Shards;
use memtrace_model::{AbsAddr, Bytes, ImageId, Pid, SampleSource, Sampler, Samplers, plain};

use super::rate::{self, Usage};
use super::sites::CodeState;
use super::stub_file::{StubFile, inode_of};
use super::watch::{RestoreRequest, Watched};
use crate::options::SamplingRate;
use crate::trace::parts::lock_waits::{FairRechecks, LastLockWaits, LockWaits};
use crate::trace::parts::rechecks::Rechecks;

/// Time after a change for which processes are read more often than at each tick.
const SETTLING: Duration = Duration::from_secs(1);

/// Number of ticks between two controls of the intervals: a second.
const CONTROL_EVERY: u32 = 10;

/// Shortest time between two comparisons of the hits of probes with the rate of the samples.
const HITS_EVERY: Duration = Duration::from_millis(20);

/// Number of hits of a sample: at its allocation, and at its free.
const HITS_OF_SAMPLE: f64 = 2.0;

/// Maximum ratio of all hits to the hits of the samples, and number of hits that is never too large.
const MOST_HITS: f64 = 4.0;
const FEW_HITS: f64 = 50.0;

/// Adapting intervals because of too many hits, or for new processes, takes at most one part in this number of the
/// time. Other probes can cause the hits.
const ADAPTED_ONE_IN: u32 = 50;

/// Maximum number of processes that are read at once because of too many hits. Reading them takes about 2 ms. The other
/// processes follow. Until all are read, the readings take at most one part in the second number of the time.
const MOST_SWEPT: usize = 128;
const SWEPT_ONE_IN: u32 = 10;

/// Maximum number of processes that are read in a tick: the larger one of a fixed number and a part of all processes.
/// So 5,000 busy processes are read within 2 s, and idle processes that are due at the same time are spread over the
/// ticks.
const MOST_READ: usize = 64;
const READ_ONE_IN: usize = 20;

/// Maximum number of processes whose code is compared in a tick.
const MOST_CHECKED: usize = 32;

/// Number of control pages that stay open. The control pages of other processes are opened for each reading.
const MAX_OPEN_PAGES: usize = 512;

/// Reason why the patch of a process with samples of its own ends.
const TAKES_SAMPLES: &str = "it takes samples itself, so its blocks have counted twice for some time";

/// A process whose code must be restored, because it was damaged, or because the process takes samples itself.
pub(super) struct DamagedProcess {
    request: RestoreRequest,
    pub(super) reason: String,
    /// Number of attempts that have failed, and time of the next one.
    pub(super) attempts: u32,
    pub(super) next: Instant,
}

impl DamagedProcess {
    pub(super) fn new(request: RestoreRequest, reason: String) -> Self {
        Self { request, reason, attempts: 0, next: Instant::now() }
    }
}

/// Patched processes.
pub(super) struct WatchList {
    pub(super) rate: SamplingRate,
    pub(super) processes: BTreeMap<ImageId, Watched>,
    pub(super) samplers: Samplers,
    pub(super) damaged: VecDeque<DamagedProcess>,
    /// Times of the next readings, and of the next comparisons of the code. Processes that are not in the list any more are left out
    /// when they are due.
    readings: FairRechecks,
    checks: Rechecks,
    /// Waits of the readings of patched processes, and of processes that may be patched.
    pub(super) waits: LockWaits,
    /// Processes whose last readings have found the page of another session.
    lost: Vec<ImageId>,
    /// Processes whose functions were called for the first time.
    called: Vec<ImageId>,
    settling_until: Instant,
    /// True if a new process was read since the last control of new processes, and the time of the next control.
    has_unsettled: bool,
    next_control: Instant,
    ticks: u32,
    /// Hits at the last comparison, and its time.
    hits: (u64, Instant),
    /// Time of the next comparison, or of the next readings because of too many hits.
    next_hits: Instant,
    /// Processes that are read because of too many hits, and the time that this has taken.
    sweep: VecDeque<ImageId>,
    swept: Duration,
}

impl WatchList {
    pub(super) fn new(rate: SamplingRate) -> Self {
        let now = Instant::now();
        Self {
            rate,
            processes: BTreeMap::new(),
            samplers: Samplers::default(),
            damaged: VecDeque::new(),
            readings: FairRechecks::default(),
            checks: Rechecks::default(),
            waits: LockWaits::new(),
            lost: Vec::new(),
            called: Vec::new(),
            settling_until: now,
            has_unsettled: false,
            next_control: now,
            ticks: 0,
            hits: (0, now),
            next_hits: now,
            sweep: VecDeque::new(),
            swept: Duration::ZERO,
        }
    }

    /// Returns the base of the first interval of a process, and its shift.
    pub(super) const fn first_interval(&self) -> (Bytes, u8) {
        match self.rate {
            SamplingRate::Interval(interval) => (interval, 0),
            SamplingRate::PerSecond(_) => (rate::BASE, rate::FIRST_SHIFT),
        }
    }

    /// Returns true if the control page of another process can stay open.
    pub(super) fn keeps_page(&self) -> bool {
        self.processes.len() < MAX_OPEN_PAGES
    }

    /// Adds a process that was patched at `now`.
    pub(super) fn add(&mut self, watched: Watched, now: Instant) {
        self.settling_until = now + SETTLING;
        self.samplers.add(watched.id.pid, sampler(watched.largest_interval()));
        self.readings.set(watched.id, now + watched.pause(), false);
        self.checks.set(watched.id, now + watched.pause_of_checks());
        self.called.extend(watched.has_calls().then_some(watched.id));
        self.processes.insert(watched.id, watched);
    }

    /// Returns the file of this stub, if patched processes have it: those that a fork has created.
    pub(super) fn file_of(&self, stub: &OwnedFd) -> Option<Rc<StubFile>> {
        let inode = inode_of(stub)?;
        let mut files = self.processes.values().map(|watched| &watched.file);
        files.find(|file| file.inode == Some(inode)).cloned()
    }

    /// Returns the processes with a stub at `base`.
    pub(super) fn with_stub_at(&self, base: AbsAddr) -> impl Iterator<Item = &Watched> {
        self.processes.values().filter(move |watched| watched.session.base == base)
    }

    /// Names the sampler of a child with a copy of the stub at `base`, unless it has one.
    pub(super) fn name_child(&mut self, pid: Pid, base: AbsAddr) {
        let interval = self.with_stub_at(base).next().map(Watched::largest_interval);
        if let Some(interval) = interval.filter(|_| self.samplers.of(pid).next().is_none()) {
            self.samplers.add(pid, sampler(interval));
        }
    }

    /// Waits until each process has called one of its functions, but not after `deadline`. Returns the processes that have called
    /// none.
    pub(super) fn await_calls(&mut self, deadline: Instant, pause: Duration, shards: &Shards) -> Vec<Pid> {
        loop {
            self.poll(shards);
            self.read_slow(shards);
            let idle = self.processes.values().filter(|watched| !watched.has_calls());
            let idle: Vec<_> = idle.map(|watched| watched.id.pid).collect();
            if idle.is_empty() || Instant::now() >= deadline {
                return idle;
            }
            std::thread::sleep(pause);
        }
    }

    /// Reads new processes. They are read more often than at each tick, until their interval is settled.
    pub(super) fn poll(&mut self, shards: &Shards) {
        let now = Instant::now();
        if now >= self.settling_until {
            return;
        }
        let is_settling = self.read_due(now, shards);
        self.has_unsettled |= is_settling;
        if self.has_unsettled && now >= self.next_control {
            self.has_unsettled = false;
            self.control(now, |usage, _| !usage.is_settled);
            self.next_control = now + now.elapsed() * ADAPTED_ONE_IN;
        }
    }

    /// Raises intervals at once if the probes have far more hits than the samples should have: a process that was idle has begun
    /// to allocate. `hits`: returns the number of hits so far of the probes that report samples, and of other probes.
    pub(super) fn limit(&mut self, hits: impl Fn() -> u64, shards: &Shards) {
        let now = Instant::now();
        let SamplingRate::PerSecond(total) = self.rate else { return };
        if self.processes.is_empty() || now < self.next_hits {
            return;
        }
        if self.sweep.is_empty() {
            let (before, at) = std::mem::replace(&mut self.hits, (hits(), now));
            if is_too_many(self.hits.0.saturating_sub(before), total, now.saturating_duration_since(at)) {
                self.begin_sweep();
            }
        }
        let part = self.next_of_sweep();
        if !part.is_empty() {
            self.read(&part, now, shards);
            self.control(now, |usage, shift| shift > usage.shift);
        }
        let time = now.elapsed();
        self.swept += time;
        let pause = if self.sweep.is_empty() {
            if !part.is_empty() {
                // The hits until now belong to the earlier intervals.
                self.hits = (hits(), Instant::now());
            }
            std::mem::take(&mut self.swept) * ADAPTED_ONE_IN
        } else {
            time * SWEPT_ONE_IN
        };
        self.next_hits = now + HITS_EVERY.max(pause);
    }

    /// Lets all processes be read, because any of them can have caused the hits. Processes that were read the longest time
    /// ago come first: they allocated nothing then.
    fn begin_sweep(&mut self) {
        let prompt = self.processes.values().filter(|watched| !watched.is_slow);
        let mut all: Vec<_> = prompt.map(|watched| (watched.last_read(), watched.id)).collect();
        all.sort_unstable();
        self.sweep = all.into_iter().map(|(_, id)| id).collect();
    }

    /// Removes and returns the processes that are read next because of too many hits.
    fn next_of_sweep(&mut self) -> Vec<ImageId> {
        let count = self.sweep.len().min(MOST_SWEPT);
        self.sweep.drain(..count).collect()
    }

    /// Reads the processes that are due, and adapts the intervals. Returns true once a second.
    pub(super) fn tick(&mut self, shards: &Shards) -> bool {
        self.ticks = self.ticks.wrapping_add(1);
        let now = Instant::now();
        let is_settling = self.read_due(now, shards);
        let is_second = self.ticks.is_multiple_of(CONTROL_EVERY);
        if is_settling || is_second {
            self.control(now, |usage, _| is_second || !usage.is_settled);
        }
        is_second
    }

    /// Reads a control page that is due, and whose last reading was slow. Call it last: a wait delays all readings that follow.
    pub(super) fn read_slow(&mut self, shards: &Shards) {
        if let Some(now) = self.waits.begin()
            && let Some(id) = self.readings.take_slow(now)
        {
            self.read(&[id], now, shards);
        }
    }

    /// Reads the control pages that are due, without those whose last reading was slow. Returns true if the interval of a new
    /// process may be raised now.
    fn read_due(&mut self, now: Instant, shards: &Shards) -> bool {
        let due = self.readings.take_due(now, MOST_READ.max(self.processes.len() / READ_ONE_IN));
        self.read(&due, now, shards)
    }

    /// Reads the control pages of processes. Returns true if the interval of a new process may be raised now.
    fn read(&mut self, ids: &[ImageId], now: Instant, shards: &Shards) -> bool {
        let Self { processes, samplers, readings, lost, called, waits, .. } = self;
        let mut is_settling = false;
        for id in ids {
            let Some(watched) = processes.get_mut(id) else { continue };
            let Some(begin) = waits.begin() else {
                // The process is among the first ones to be read after the pause.
                readings.set(*id, now, watched.is_slow);
                continue;
            };
            let had_calls = watched.has_calls();
            let result = watched.read(now);
            let has_timed_out = result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
            watched.is_slow = waits.end(begin) || has_timed_out;
            called.extend((!had_calls && watched.has_calls()).then_some(*id));
            match result {
                Ok(reading) => {
                    is_settling |= reading.is_settling;
                    if let Some(level) = reading.level {
                        shards.thin(watched.id, level, watched.session.salt);
                    }
                    if reading.has_new_interval {
                        samplers.add(watched.id.pid, sampler(watched.largest_interval()));
                    }
                }
                // The process may have ended.
                Err(error) => {
                    log::debug!("process {}: its control page is not read: {error}", watched.id.pid);
                    lost.extend(watched.is_lost().then_some(*id));
                }
            }
            readings.set(*id, now + watched.pause(), watched.is_slow);
        }
        is_settling
    }

    /// Adapts intervals to the rate of the samples. `is_adapted` returns true for a process that gets this shift.
    fn control(&mut self, now: Instant, is_adapted: impl Fn(&Usage, u8) -> bool) {
        let SamplingRate::PerSecond(total) = self.rate else { return };
        let Self { processes, samplers, waits, .. } = self;
        let usages: Vec<_> = processes.values().map(|watched| watched.usage(now)).collect();
        let shifts = rate::shifts(&usages, total, rate::BASE);
        for ((watched, usage), shift) in processes.values_mut().zip(usages).zip(shifts) {
            if watched.is_slow || shift == usage.shift || !is_adapted(&usage, shift) {
                continue;
            }
            // The next control changes the others.
            let Some(begin) = waits.begin() else { return };
            let has_changed = watched.set_shift(shift);
            watched.is_slow |= waits.end(begin);
            if has_changed {
                samplers.add(watched.id.pid, sampler(watched.largest_interval()));
            }
        }
    }

    /// Reads all control pages at the end of the trace, as far as the processes hold no locks.
    pub(super) fn end_trace(&mut self, shards: &Shards) {
        let mut waits = LastLockWaits::new();
        // The processes whose last reading was slow come last.
        for is_slow in [false, true] {
            for watched in self.processes.values_mut().filter(|watched| watched.is_slow == is_slow) {
                if waits.read(|| read_last(watched, shards)) == Some(true) {
                    watched.set_trace_end();
                }
            }
        }
    }

    /// Lets the code of processes be restored if they have begun to take samples themselves, so that no block counts twice.
    pub(super) fn end_doubled(&mut self, takes_samples: impl Fn(ImageId) -> bool) {
        let Self { processes, damaged, .. } = self;
        for watched in processes.values().filter(|watched| takes_samples(watched.id)) {
            let request = watched.restore_request();
            if !damaged.iter().any(|process| process.request.id == request.id) {
                damaged.push_back(DamagedProcess::new(request, String::from(TAKES_SAMPLES)));
            }
        }
    }

    /// Returns the next process whose code must be restored, and makes it the first one of `damaged`.
    pub(super) fn next_damaged(&mut self, now: Instant) -> Option<RestoreRequest> {
        let due = self.damaged.iter().position(|process| process.next <= now)?;
        let process = self.damaged.remove(due)?;
        let next = process.request;
        self.damaged.push_front(process);
        Some(next)
    }

    /// Lets the code of the first process of `damaged` be restored again at `at`.
    pub(super) fn postpone_damaged(&mut self, at: Instant) {
        if let Some(process) = self.damaged.pop_front() {
            let attempts = process.attempts + 1;
            self.damaged.push_back(DamagedProcess { attempts, next: at, ..process });
        }
    }

    /// Removes and returns the processes whose functions were called for the first time since the last call.
    pub(super) fn take_called(&mut self) -> Vec<ImageId> {
        std::mem::take(&mut self.called)
    }

    /// Returns the running processes whose control pages have begun to belong to another session, each once: the process has
    /// changed its page, or a memtrace in another PID namespace has.
    pub(super) fn take_lost(&mut self, is_running: impl Fn(ImageId) -> bool) -> Vec<Pid> {
        let Self { processes, lost, .. } = self;
        let mut has_changed = |id: ImageId| processes.get_mut(&id).is_some_and(Watched::set_change_noted);
        lost.drain(..).filter(|&id| is_running(id) && has_changed(id)).map(|id| id.pid).collect()
    }

    /// Compares the code of the processes with the jumps: each process once in some seconds. Returns notes about
    /// changes.
    pub(super) fn check_code(&mut self) -> Vec<String> {
        let now = Instant::now();
        let Self { processes, damaged, checks, waits, .. } = self;
        let mut notes = Vec::new();
        for id in checks.take_due(now, MOST_CHECKED) {
            let Some(watched) = processes.get_mut(&id) else { continue };
            let Some(begin) = waits.begin() else {
                checks.set(id, now);
                continue;
            };
            checks.set(id, now + watched.pause_of_checks());
            if watched.is_slow {
                continue;
            }
            let state = watched.check();
            waits.end(begin);
            let request = watched.restore_request();
            match state {
                Some(CodeState::Damaged(function)) if !damaged.iter().any(|process| process.request.id == id) => {
                    let function = plain(&function);
                    let reason = format!("the removal of a probe of another tool has damaged the code of {function}");
                    damaged.push_back(DamagedProcess::new(request, reason));
                }
                Some(CodeState::Changed(function)) if watched.set_change_noted() => {
                    let function = plain(&function);
                    notes.push(format!(
                        "process {}: another tool has changed the code of {function}, so samples are missing",
                        id.pid
                    ));
                }
                Some(CodeState::Patched | CodeState::Changed(_) | CodeState::Damaged(_)) | None => {}
            }
        }
        notes
    }
}

/// Reads the control page of a process for the last time, or for the last time in the trace. Returns false if it cannot be read.
pub(super) fn read_last(watched: &mut Watched, shards: &Shards) -> bool {
    match watched.read(Instant::now()) {
        Ok(reading) => {
            if let Some(level) = reading.level {
                shards.thin(watched.id, level, watched.session.salt);
            }
            true
        }
        Err(error) => {
            log::debug!("process {}: its control page is not read at the end: {error}", watched.id.pid);
            false
        }
    }
}

/// Returns true if probes have far more hits than `total` samples a second should have.
fn is_too_many(hits: u64, total: u64, passed: Duration) -> bool {
    let expected = total as f64 * HITS_OF_SAMPLE * passed.as_secs_f64();
    hits as f64 > (expected * MOST_HITS).max(FEW_HITS)
}

const fn sampler(interval: Bytes) -> Sampler {
    Sampler { source: SampleSource::Patched, interval: Some(interval) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use memtrace_object::overlay::layout;

    use super::super::watch::tests::{pages, watched};
    use super::*;

    #[test]
    fn first_interval_follows_from_the_rate() {
        let first = |rate| WatchList::new(rate).first_interval();
        assert_eq!(first(SamplingRate::Interval(Bytes(4096))), (Bytes(4096), 0));
        let (base, shift) = first(SamplingRate::PerSecond(1000));
        assert_eq!(rate::interval(base, shift), Bytes(512 << 10));
    }

    #[test]
    fn hits_may_be_four_times_those_of_the_samples() {
        // 1,000 samples a second have 40 hits in 20 ms.
        let of = |hits, total| is_too_many(hits, total, Duration::from_millis(20));
        assert_eq!([of(160, 1000), of(161, 1000), of(50, 10), of(51, 10)], [false, true, false, true]);
        assert!(!is_too_many(8000, 1000, Duration::from_secs(1)));
    }

    #[test]
    fn many_processes_are_not_read_at_once() {
        let mut list = list_with(140, Instant::now());
        let id = |ordinal| ImageId { pid: Pid(std::process::id()), ordinal };
        list.processes.get_mut(&id(7)).expect("it is in the list").is_slow = true;
        list.begin_sweep();
        let parts: Vec<_> =
            std::iter::repeat_with(|| list.next_of_sweep()).take_while(|part| !part.is_empty()).collect();
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [128, 11]);
        let all: Vec<_> = parts.concat().iter().map(|id| id.ordinal).collect();
        assert_eq!(all, (0..140).filter(|ordinal| *ordinal != 7).collect::<Vec<_>>(), "each one once");
    }

    #[test]
    fn list_without_processes_has_nothing_to_do() {
        let mut list = WatchList::new(SamplingRate::default());
        assert!(list.keeps_page() && list.check_code().is_empty());
        assert_eq!(list.with_stub_at(AbsAddr(0)).count(), 0);
        list.end_doubled(|_| true);
        assert!(list.damaged.is_empty() && list.take_lost(|_| true).is_empty());
    }

    /// Returns a list with `count` images of this process, which were patched at `now`.
    fn list_with(count: u32, now: Instant) -> WatchList {
        let (pages, mut list) = (pages(), WatchList::new(SamplingRate::default()));
        for ordinal in 0..count {
            let mut process = watched(&pages, now, false);
            process.id.ordinal = ordinal;
            list.add(process, now);
        }
        list
    }

    #[test]
    fn code_of_many_processes_is_compared_in_several_ticks() {
        let now = Instant::now();
        let before = now.checked_sub(Duration::from_secs(11)).expect("the machine runs longer");
        let mut list = list_with(40, before);
        assert!(list.check_code().is_empty());
        let due: Vec<_> = list.checks.take_due(now, 100).into_iter().map(|id| id.ordinal).collect();
        assert_eq!(due, (32..40).collect::<Vec<_>>());
        let later = list.checks.take_due(now + Duration::from_secs(11), 100);
        assert_eq!(later.len(), 32);
    }

    #[test]
    fn code_is_compared_later_after_a_wait() {
        let now = Instant::now();
        let before = now.checked_sub(Duration::from_secs(11)).expect("the machine runs longer");
        let mut list = list_with(3, before);
        list.waits.add(Duration::from_millis(70), now + Duration::from_secs(3600));
        assert!(list.check_code().is_empty());
        let due = list.checks.take_due(Instant::now(), 100);
        assert_eq!(due.len(), 3, "none of them was compared");
    }

    #[test]
    fn first_call_of_a_process_is_found_once() {
        let (pages, now) = (pages(), Instant::now());
        let mut list = WatchList::new(SamplingRate::default());
        list.add(watched(&pages, now, false), now);
        assert!(list.take_called().is_empty());
        pages.write(layout::CODE_SIZE + layout::FIRST_DRAWS, 1);
        // A child has the calls of its parent.
        let process = watched(&pages, now, false);
        let id = process.id;
        list.add(process, now);
        assert_eq!(list.take_called(), [id]);
        assert!(list.take_called().is_empty());
    }

    #[test]
    fn lost_page_is_noted_once_for_a_running_process() {
        let mut list = list_with(2, Instant::now());
        let (own, first) = (Pid(std::process::id()), ImageId { pid: Pid(std::process::id()), ordinal: 0 });
        list.lost = vec![first];
        assert!(list.take_lost(|_| false).is_empty());
        list.lost = vec![first, first, ImageId { ordinal: 7, ..first }];
        assert_eq!(list.take_lost(|_| true), [own]);
        assert!(list.take_lost(|_| true).is_empty());
    }

    #[test]
    fn damaged_process_that_does_not_stop_lets_others_pass() {
        let mut list = WatchList::new(SamplingRate::default());
        let request = |ordinal: u32| RestoreRequest {
            id: ImageId { pid: Pid(7), ordinal },
            start_time: 3,
            base: AbsAddr(ordinal.into()),
        };
        for ordinal in [1, 2] {
            list.damaged.push_back(DamagedProcess::new(request(ordinal), String::new()));
        }
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        assert_eq!(list.next_damaged(now), Some(request(1)));
        list.postpone_damaged(later);
        assert_eq!(list.next_damaged(now), Some(request(2)));
        list.damaged.pop_front();
        assert_eq!(list.next_damaged(now), None);
        assert_eq!(list.next_damaged(later), Some(request(1)));
        assert_eq!(list.damaged[0].attempts, 1);
    }

    #[test]
    fn stub_file_is_found_by_its_inode() {
        let open = |path: &str| OwnedFd::from(File::options().read(true).open(path).unwrap());
        let list = list_with(2, Instant::now());
        let file = list.file_of(&open("/dev/null")).expect("both processes have it");
        assert!(list.processes.values().any(|watched| Rc::ptr_eq(&watched.file, &file)));
        assert!(list.file_of(&open("/dev/zero")).is_none());
    }
}
