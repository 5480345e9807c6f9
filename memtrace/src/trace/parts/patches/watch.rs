//! A patched process: its control page and its sampling interval.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrace_host::patcher::Stops;
use memtrace_host::procfs::{self, ControlPage, ControlValues};
use memtrace_model::{AbsAddr, Bytes, Comm, ImageId, MAX_THINNING, PatchedProcess};
use memtrace_object::overlay::layout::SLOTS;

use super::plan::PlanSummary;
use super::rate::{self, Usage};
use super::sites::{self, CheckedSite, CodeState};
use super::stub_file::StubFile;

/// Time of the first reading after the change, and of the next ones until the interval is settled.
const FIRST: Duration = Duration::from_millis(20);
const UNTIL_SETTLED: Duration = Duration::from_millis(100);

/// Time after the change at which the interval is settled.
const SETTLING: Duration = Duration::from_secs(1);

/// Interval of the readings of a process that takes samples, and longest interval for a process that takes none.
///
/// No estimate needs the readings. Each sample has the interval of its draw and the level of its table, and the ledger
/// has the salt before the first sample. A level rises when a sample is inserted. This sample has the new level, and
/// the ledger thins the earlier samples when it receives the sample. Until then, no address of the table is replaced,
/// so each free of an earlier sample is still reported. If the record of the sample is lost, the loss is counted, and a
/// later sample or reading has the level. The reading at the end finds the allocated bytes and the level of each
/// process.
///
/// A late reading changes the interval late, which costs or saves samples, but not their weights. If many processes begin to allocate,
/// the hits of their probes make the list read all processes soon (`WatchList::limit`). The rate of a process that has become idle
/// halves with each of its readings, so that the others get its share of the samples.
const PERIOD: Duration = Duration::from_secs(1);
const LONGEST_PERIOD: Duration = Duration::from_secs(16);

/// Time between two comparisons of the code of a process: if it takes samples, and if it takes none. Damaged code
/// crashes a process that calls it at once, so that only a process without calls can be repaired later.
const CHECK: Duration = Duration::from_secs(10);
const CHECK_IDLE: Duration = Duration::from_secs(60);

/// Number of successive readings that find the page of another session until the page counts as lost. After an exec,
/// the image is removed earlier.
const LOST: u32 = 3;

/// Part of the allocated bytes that may be allocated between the end of the trace and the stop that restores the code.
/// A larger part does not belong to the trace.
const LATE_ONE_IN: u64 = 100;

/// Largest value that memtrace believes of a counter of a process. The process can write any number.
const MOST_COUNTED: u64 = 1 << 48;

/// Largest number of lost samples that a process adds to the losses of the run: a whole table. The facts about the process have the
/// number that it states.
pub(super) const MOST_LOST: u64 = SLOTS;

/// Identity of a stub in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) base: AbsAddr,
    /// Number of the session.
    pub(super) epoch: u64,
    /// Salt of the hash that thins samples.
    pub(super) salt: u64,
}

/// Process whose code is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RestoreRequest {
    pub(super) id: ImageId,
    /// Start of the process, in clock ticks since the boot. A later process with the same pid is not changed.
    pub(super) start_time: u64,
    /// Address of the stub.
    pub(super) base: AbsAddr,
}

/// A patched process.
pub(super) struct Watched {
    pub(super) id: ImageId,
    /// Start of the process, in clock ticks since the boot.
    start_time: u64,
    comm: Comm,
    pub(super) session: Session,
    pub(super) file: Rc<StubFile>,
    pub(super) summary: Arc<PlanSummary>,
    sites: Rc<[CheckedSite]>,
    /// Control page; `None` if it is opened for each reading.
    page: Option<ControlPage>,
    /// Base of the interval.
    interval_base: Bytes,
    shift: u8,
    /// Smallest permitted shift.
    least: u8,
    /// Largest interval that samples stand for.
    largest: Bytes,
    /// Level of thinning, as far as the ledger knows it.
    level: u8,
    patched_at: Instant,
    /// Time between the last reading and the next one.
    pause: Duration,
    /// Time between two readings once the interval is settled.
    period: Duration,
    counts: Counts,
    /// Bytes and samples a second.
    bytes_per_second: f64,
    samples_per_second: f64,
    /// Counts that the process has from its parent; `None` without one.
    inherited: Option<Inherited>,
    /// Sum of the draws at the end of the trace; `None` before it.
    drawn_at_end: Option<u64>,
    /// Number of readings in a row that have found the page of another session.
    lost: u32,
    /// True if the process held a lock of its memory at the last reading.
    pub(super) is_slow: bool,
    has_noted_change: bool,
    stops: Stops,
}

/// Counts that a child has from its parent when it is first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Inherited {
    values: ControlValues,
    interval: Bytes,
}

/// Numbers of a control page at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    at: Instant,
    values: ControlValues,
}

/// Change that a reading has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// Level that the table of sampled blocks has reached since the last reading.
    pub(super) level: Option<u8>,
    /// True if the process has a new interval.
    pub(super) has_new_interval: bool,
    /// True if the interval of a new process may be raised now.
    pub(super) is_settling: bool,
}

/// New patched process.
pub(super) struct NewProcess {
    pub(super) id: ImageId,
    /// Start of the process, in clock ticks since the boot.
    pub(super) start_time: u64,
    pub(super) comm: Comm,
    pub(super) session: Session,
    pub(super) file: Rc<StubFile>,
    pub(super) summary: Arc<PlanSummary>,
    pub(super) sites: Rc<[CheckedSite]>,
    /// Base of the interval, and its shift.
    pub(super) interval: (Bytes, u8),
    pub(super) stops: Stops,
}

impl Watched {
    /// Adds a process that was patched at `now`. `keeps_page`: true to keep its control page open.
    ///
    /// # Errors
    ///
    /// The control page cannot be read.
    pub(super) fn new(new: NewProcess, now: Instant, keeps_page: bool) -> io::Result<Self> {
        let NewProcess { id, start_time, comm, session, file, summary, sites, interval, stops } = new;
        let (interval_base, shift) = interval;
        let page = ControlPage::open(id.pid, session.base)?;
        let values = read_session(&page, session)?;
        let largest = rate::interval(interval_base, shift);
        Ok(Self {
            id,
            start_time,
            comm,
            session,
            file,
            summary,
            sites,
            page: keeps_page.then_some(page),
            interval_base,
            shift,
            least: 0,
            largest,
            // The table can be full already. Then the next reading finds the level.
            level: 0,
            patched_at: now,
            pause: FIRST,
            period: PERIOD,
            counts: Counts { at: now, values },
            bytes_per_second: 0.0,
            samples_per_second: 0.0,
            inherited: None,
            drawn_at_end: None,
            lost: 0,
            is_slow: false,
            has_noted_change: false,
            stops,
        })
    }

    /// Adds a child of this process, which a fork has created with a copy of the stub.
    ///
    /// # Errors
    ///
    /// The child has no such stub any more.
    pub(super) fn child(&self, id: ImageId, comm: Comm, now: Instant, keeps_page: bool) -> io::Result<Self> {
        // The start time is read before the page, so that another process that gets the pid later is not changed.
        let start_time = procfs::start_time(id.pid).ok_or(io::ErrorKind::NotFound)?;
        let new = NewProcess {
            id,
            start_time,
            comm,
            session: self.session,
            file: Rc::clone(&self.file),
            summary: Arc::clone(&self.summary),
            sites: Rc::clone(&self.sites),
            interval: (self.interval_base, self.shift),
            stops: Stops::default(),
        };
        let mut child = Self::new(new, now, keeps_page)?;
        let values = child.counts.values;
        child.shift = values.shift;
        child.level = values.level.min(MAX_THINNING);
        (child.least, child.largest) = (self.least, self.largest.max(child.interval()));
        child.inherited = Some(Inherited { values, interval: child.interval() });
        child.pause = PERIOD;
        // The parent has settled.
        child.patched_at = now.checked_sub(SETTLING).unwrap_or(now);
        Ok(child)
    }

    /// Returns the request to restore the code of the process.
    pub(super) const fn restore_request(&self) -> RestoreRequest {
        RestoreRequest { id: self.id, start_time: self.start_time, base: self.session.base }
    }

    /// Returns true if the first second has passed.
    fn is_settled(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.patched_at) >= SETTLING
    }

    /// Returns the time between the last reading and the next one.
    pub(super) const fn pause(&self) -> Duration {
        self.pause
    }

    /// Returns the time between the last comparison of the code and the next one.
    pub(super) fn pause_of_checks(&self) -> Duration {
        if self.period < LONGEST_PERIOD { CHECK } else { CHECK_IDLE }
    }

    /// Returns true if a thread has begun to count.
    pub(super) const fn has_calls(&self) -> bool {
        self.counts.values.first_draws > 0
    }

    fn interval(&self) -> Bytes {
        rate::interval(self.interval_base, self.shift)
    }

    /// Returns the largest interval that samples stand for: it bounds the bytes of a stack without samples.
    pub(super) const fn largest_interval(&self) -> Bytes {
        self.largest
    }

    /// Returns the level of thinning, as far as it is known.
    pub(super) const fn level(&self) -> u8 {
        self.level
    }

    /// Returns true if these values of a control page belong to the session.
    pub(super) fn has_session_of(&self, values: ControlValues) -> bool {
        of_session(values, self.session).is_ok()
    }

    /// Returns true if the control page belongs to another session.
    pub(super) const fn is_lost(&self) -> bool {
        self.lost >= LOST
    }

    /// Records that the last reading was made at the end of the trace.
    pub(super) const fn set_trace_end(&mut self) {
        self.drawn_at_end = Some(self.counts.values.drawn);
    }

    /// Returns true if the bytes that are allocated after the end of the trace are known.
    pub(super) const fn has_trace_end(&self) -> bool {
        self.drawn_at_end.is_some()
    }

    /// Reads the control page.
    ///
    /// # Errors
    ///
    /// The image has ended, or the page is not the one of the session any more.
    pub(super) fn read(&mut self, now: Instant) -> io::Result<Reading> {
        let read = match &self.page {
            Some(page) => page.read(),
            None => ControlPage::read_once(self.id.pid, self.session.base),
        };
        let values = match read.and_then(|values| of_session(values, self.session)) {
            Ok(values) => values,
            Err(error) => {
                let is_other = error.kind() == io::ErrorKind::InvalidData;
                self.lost = if is_other { self.lost.saturating_add(1) } else { 0 };
                // A failure must not be tried again at once.
                self.pause = if self.is_lost() { LONGEST_PERIOD } else { PERIOD };
                return Err(error);
            }
        };
        self.lost = 0;
        self.count(now, values);
        let mut reading = Reading { is_settling: !self.is_settled(now), ..Reading::default() };
        let level = values.level.min(MAX_THINNING);
        if level > self.level {
            let levels = level - self.level;
            // The remaining samples equal samples with an interval that is twice as long for each level.
            self.largest = self.largest.max(Bytes(self.interval().0.saturating_mul(1 << levels)));
            self.least = rate::raised(self.interval_base, self.shift, levels);
            self.level = level;
            reading.level = Some(level);
            reading.has_new_interval = true;
        }
        // If this fails, the next reading tries it again.
        reading.has_new_interval |= self.shift < self.least && self.set_shift(self.least);
        self.pause = if reading.is_settling { UNTIL_SETTLED } else { self.period };
        Ok(reading)
    }

    /// Computes the rates since the last reading.
    fn count(&mut self, now: Instant, values: ControlValues) {
        let before = std::mem::replace(&mut self.counts, Counts { at: now, values });
        let seconds = now.saturating_duration_since(before.at).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let drawn = growth(before.values.drawn, values.drawn) as f64 / seconds;
        let samples = growth(before.values.samples, values.samples) as f64 / seconds;
        // Later, the few samples of one second say less than the samples of several seconds.
        let weight = if self.is_settled(now) { 0.5 } else { 1.0 };
        self.bytes_per_second += weight * (drawn - self.bytes_per_second);
        self.samples_per_second = samples;
        if values.drawn != before.values.drawn {
            self.period = PERIOD;
        } else if now.saturating_duration_since(before.at) >= self.period {
            self.period = (self.period * 2).min(LONGEST_PERIOD);
        }
    }

    /// Returns the time of the last reading.
    pub(super) const fn last_read(&self) -> Instant {
        self.counts.at
    }

    /// Returns the rates of the process, for the control of its interval.
    pub(super) fn usage(&self, now: Instant) -> Usage {
        Usage {
            bytes_per_second: self.bytes_per_second,
            samples_per_second: self.samples_per_second,
            shift: self.shift,
            least: self.least,
            is_settled: self.is_settled(now),
        }
    }

    /// Changes the interval. Returns true if it has changed.
    pub(super) fn set_shift(&mut self, shift: u8) -> bool {
        if shift == self.shift {
            return false;
        }
        let set = self.with_page(|page, session| {
            // The page of another image at this address is not written.
            read_session(page, session)?;
            page.set_shift(shift)
        });
        match set {
            Ok(()) => {
                self.shift = shift;
                self.largest = self.largest.max(self.interval());
                true
            }
            Err(error) => {
                log::debug!("process {}: its sampling interval stays: {error}", self.id.pid);
                false
            }
        }
    }

    fn with_page<T>(&self, work: impl FnOnce(&ControlPage, Session) -> io::Result<T>) -> io::Result<T> {
        match &self.page {
            Some(page) => work(page, self.session),
            None => work(&ControlPage::open(self.id.pid, self.session.base)?, self.session),
        }
    }

    /// Records that the user knows a change of the code. Returns false if it was recorded before.
    pub(super) fn set_change_noted(&mut self) -> bool {
        !std::mem::replace(&mut self.has_noted_change, true)
    }

    /// Compares the code at the sites with the jumps. Returns `None` if the code cannot be read.
    pub(super) fn check(&self) -> Option<CodeState> {
        sites::state(self.id.pid, self.session.base, &self.sites).ok()
    }

    /// Returns the facts for the report. `stops`: stops that restored the code; `None` if the process has ended.
    /// `is_read`: true if the last reading was after these stops. Otherwise, the allocated bytes are not known.
    pub(super) fn finish(self, stops: Option<&Stops>, is_read: bool) -> PatchedProcess {
        let Self { id, comm, summary, inherited, counts: Counts { values, .. }, level, .. } = &self;
        let countdowns = stops.map(|stops| stops.countdowns.as_slice());
        let of_parent = inherited.map_or(0, |before| counted_bytes(&before.values, None, before.interval));
        let late = self.drawn_at_end.map_or(0, |drawn| growth(drawn, values.drawn));
        let (allocated, is_exact) = allocated(values, countdowns, self.interval(), of_parent, late);
        let own = |counter: u64, before: fn(&ControlValues) -> u64| {
            let before = inherited.map_or(0, |inherited| before(&inherited.values));
            counter.saturating_sub(before).min(MOST_COUNTED)
        };
        let all = [Some(&self.stops), stops];
        let longest = all.iter().flatten().map(|stops| stops.one.max(stops.all)).max().unwrap_or_default();
        let rewound = all.iter().flatten().fold(0_u32, |sum, stops| sum.saturating_add(stops.rewound));
        PatchedProcess {
            pid: id.pid,
            comm: comm.clone(),
            functions: summary.functions,
            gaps: summary.gaps.clone(),
            allocated: is_read.then_some(allocated),
            exact: is_read && is_exact && inherited.is_none(),
            samples: own(values.samples, |values| values.samples),
            // A table gives up a sample at the highest level only.
            not_inserted: if *level < MAX_THINNING {
                0
            } else {
                own(values.not_inserted, |values| values.not_inserted)
            },
            level: *level,
            stop: longest,
            rewound,
        }
    }
}

/// Reads a control page, if it belongs to the session.
fn read_session(page: &ControlPage, session: Session) -> io::Result<ControlValues> {
    of_session(page.read()?, session)
}

/// Returns the values of a control page, if it belongs to the session.
fn of_session(values: ControlValues, session: Session) -> io::Result<ControlValues> {
    let is_same = (values.epoch, values.salt) == (session.epoch, session.salt);
    if is_same { Ok(values) } else { Err(io::Error::new(io::ErrorKind::InvalidData, "another control page")) }
}

/// Returns the growth of a counter. A process can write any number.
const fn growth(before: u64, now: u64) -> u64 {
    let growth = now.wrapping_sub(before);
    if growth > u64::MAX / 2 { 0 } else { growth }
}

/// Returns the bytes that all threads have allocated, and true if the number is exact. `countdowns`: countdowns of the threads
/// that run; `None` if they are not known. `interval`: mean of the countdown of a thread that has ended or is not known.
/// `of_parent`: bytes that a parent has allocated before the fork. `late`: bytes that were drawn after the end of the trace.
fn allocated(
    values: &ControlValues,
    countdowns: Option<&[u64]>,
    interval: Bytes,
    of_parent: i128,
    late: u64,
) -> (Bytes, bool) {
    let allocated = counted_bytes(values, countdowns, interval) - of_parent;
    let allocated = u64::try_from(allocated.max(0)).unwrap_or(u64::MAX);
    let is_late = late > allocated / LATE_ONE_IN;
    let allocated = allocated.saturating_sub(if is_late { late } else { 0 });
    (Bytes(allocated), countdowns.is_some() && unknown_threads(values, countdowns) == 0 && !is_late)
}

/// Returns the sum of the draws less the countdowns. The mean replaces countdowns that are not known, so the result can
/// be negative.
fn counted_bytes(values: &ControlValues, countdowns: Option<&[u64]>, interval: Bytes) -> i128 {
    // A thread that was stopped between its subtraction and its next draw has a negative countdown.
    let countdown = |countdown: &u64| i128::from(countdown.cast_signed());
    let left: i128 = countdowns.unwrap_or_default().iter().map(countdown).sum();
    let unknown = unknown_threads(values, countdowns);
    i128::from(values.drawn) - left - i128::from(unknown) * i128::from(interval.0)
}

/// Returns the number of threads that have begun to count, and whose countdown is not known.
fn unknown_threads(values: &ControlValues, countdowns: Option<&[u64]>) -> u64 {
    values.first_draws.saturating_sub(countdowns.unwrap_or_default().len() as u64)
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs::File;

    use harness::fixtures::Anonymous;
    use memtrace_model::{Object, Pid};
    use memtrace_object::overlay::layout;

    use super::*;

    const R: Bytes = Bytes(1000);

    /// Returns the allocated bytes of a process without a parent, whose code was restored at the end of the trace.
    fn allocated_by(values: &ControlValues, countdowns: Option<&[u64]>) -> (Bytes, bool) {
        allocated(values, countdowns, R, 0, 0)
    }

    fn values(drawn: u64, first_draws: u64) -> ControlValues {
        ControlValues { drawn, first_draws, ..ControlValues::default() }
    }

    #[test]
    fn allocated_bytes_are_draws_less_countdowns() {
        // Two threads have drawn 700 and 800 bytes, and have 250 and 1 left.
        assert_eq!(allocated_by(&values(1500, 2), Some(&[250, 1])), (Bytes(1249), true));
        assert_eq!(allocated_by(&values(0, 0), Some(&[])), (Bytes(0), true));
        let negative = 0_u64.wrapping_sub(48);
        assert_eq!(allocated_by(&values(1500, 2), Some(&[250, negative])), (Bytes(1298), true));
    }

    #[test]
    fn ended_threads_have_a_mean_countdown() {
        // One of three threads runs.
        assert_eq!(allocated_by(&values(90_000, 3), Some(&[250])), (Bytes(90_000 - 250 - 2000), false));
        // The process has ended.
        assert_eq!(allocated_by(&values(90_000, 3), None), (Bytes(87_000), false));
        // A stack with a countdown was used again, so there are more countdowns than first draws.
        assert_eq!(allocated_by(&values(5000, 1), Some(&[10, 20])), (Bytes(4970), true));
    }

    #[test]
    fn forged_numbers_are_no_allocated_bytes() {
        assert_eq!(allocated_by(&values(10, 1), Some(&[u64::MAX / 4])).0, Bytes(0));
        assert_eq!(allocated_by(&values(10, u64::MAX), None).0, Bytes(0));
        assert_eq!([growth(5, 7), growth(7, 5), growth(0, u64::MAX)], [2, 0, 0]);
    }

    #[test]
    fn bytes_after_the_trace_are_left_out() {
        let of = |late| allocated(&values(10_500, 1), Some(&[500]), R, 0, late);
        assert_eq!([of(0), of(100)], [(Bytes(10_000), true); 2], "one of a hundred bytes");
        assert_eq!(of(101), (Bytes(9899), false));
        assert_eq!(of(u64::MAX), (Bytes(0), false));
    }

    #[test]
    fn child_has_allocated_the_difference() {
        // The parent had three threads, of which the child has one. Each had 1,000 bytes left on average.
        let before = counted_bytes(&values(90_000, 3), None, R);
        assert_eq!(before, 87_000);
        // The thread has drawn 10,000 bytes since, and has 400 left. It has allocated its 1,000 bytes, too.
        let (Bytes(bytes), _) = allocated(&values(100_000, 3), Some(&[400]), R, before, 0);
        assert_eq!(bytes, 10_000 - 400 + 1000);
        assert_eq!(counted_bytes(&values(500, 2), None, R), -1500);
    }

    /// Returns pages of this process with the control page of a session.
    pub(in super::super) fn pages() -> Anonymous {
        let pages = Anonymous::new(layout::CODE_SIZE + 4096);
        set(&pages, layout::EPOCH, 7);
        set(&pages, layout::SALT, 9);
        pages
    }

    /// Writes a word of the control page.
    fn set(pages: &Anonymous, offset: u64, word: u64) {
        pages.write(layout::CODE_SIZE + offset, word);
    }

    /// Watches this process, which was patched at `now`.
    pub(in super::super) fn watched(pages: &Anonymous, now: Instant, keeps_page: bool) -> Watched {
        let object = Object { path: "/lib/libx.so".into(), handle: None, build_id: None, root: None };
        let (object, kinds) = (Arc::new(object), String::from("glibc"));
        let null = File::options().read(true).open("/dev/null").unwrap();
        let new = NewProcess {
            id: ImageId { pid: Pid(std::process::id()), ordinal: 0 },
            start_time: 12,
            comm: Comm::from("test"),
            session: Session { base: pages.start(), epoch: 7, salt: 9 },
            file: Rc::new(StubFile::new(null.into())),
            summary: Arc::new(PlanSummary { object, kinds, functions: 4, gaps: Default::default() }),
            sites: CheckedSite::all(&[]),
            interval: (Bytes(1 << 16), 3),
            stops: Stops::default(),
        };
        Watched::new(new, now, keeps_page).unwrap()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn idle_process_is_read_and_compared_less_often() {
        let (pages, start) = (pages(), Instant::now());
        let mut process = watched(&pages, start, false);
        let mut now = start + 2 * SECOND;
        for (seconds, of_checks) in [(2, 10), (4, 10), (8, 10), (16, 60), (16, 60)] {
            process.read(now).unwrap();
            assert_eq!((process.pause(), process.pause_of_checks()), (seconds * SECOND, of_checks * SECOND));
            now += process.pause();
        }
        set(&pages, layout::DRAWN, 1 << 20);
        process.read(now).unwrap();
        assert_eq!((process.pause(), process.pause_of_checks()), (SECOND, 10 * SECOND));
        // Readings because of other processes say little.
        process.read(now + SECOND / 2).unwrap();
        assert_eq!(process.pause(), SECOND);
    }

    #[test]
    fn child_is_restored_by_its_own_start() {
        let (pages, now) = (pages(), Instant::now());
        let parent = watched(&pages, now, false);
        let child = parent.child(parent.id, Comm::from("child"), now, false).unwrap();
        let start_time = procfs::start_time(Pid(std::process::id())).unwrap();
        assert_ne!(start_time, 12, "the start of the parent in this test");
        let expected = RestoreRequest { start_time, ..parent.restore_request() };
        assert_eq!((child.restore_request(), parent.restore_request().start_time), (expected, 12));
    }

    #[test]
    fn reading_after_the_trace_shows_no_end_of_it() {
        let (pages, start) = (pages(), Instant::now());
        let mut process = watched(&pages, start, false);
        process.read(start + SECOND).unwrap();
        assert!(!process.has_trace_end());
        process.set_trace_end();
        assert!(process.has_trace_end());
    }

    #[test]
    fn full_table_raises_the_interval_until_it_is_raised() {
        for keeps_page in [false, true] {
            let (pages, start) = (pages(), Instant::now());
            let mut process = watched(&pages, start, keeps_page);
            set(&pages, layout::LEVEL, 2);
            let reading = process.read(start + 2 * SECOND).unwrap();
            let expected = Reading { level: Some(2), has_new_interval: true, is_settling: false };
            assert_eq!((reading, pages.read(layout::CODE_SIZE + layout::SHIFT)), (expected, 5));
            assert_eq!(process.largest_interval(), Bytes(1 << 21), "64 KiB times 2^3, twice doubled");
            // As after a write that has failed.
            process.shift = 3;
            set(&pages, layout::SHIFT, 3);
            let reading = process.read(start + 3 * SECOND).unwrap();
            assert_eq!(reading, Reading { has_new_interval: true, ..Reading::default() });
            assert_eq!(pages.read(layout::CODE_SIZE + layout::SHIFT), 5);
            assert_eq!(process.read(start + 4 * SECOND).unwrap(), Reading::default());
        }
    }

    #[test]
    fn page_of_another_session_is_lost_after_three_readings() {
        let (pages, start) = (pages(), Instant::now());
        let mut process = watched(&pages, start, false);
        set(&pages, layout::EPOCH, 8);
        for (second, is_lost) in [(2, false), (3, false), (4, true)] {
            assert_eq!(process.read(start + second * SECOND).unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert_eq!((process.is_lost(), process.pause() > SECOND), (is_lost, is_lost), "{second}");
        }
    }

    #[test]
    fn samples_are_lost_at_the_highest_level_only() {
        for (level, expected) in [(14, 0), (15, 1 << 48), (255, 1 << 48)] {
            let (pages, start) = (pages(), Instant::now());
            let mut process = watched(&pages, start, false);
            set(&pages, layout::NOT_INSERTED, u64::MAX);
            set(&pages, layout::LEVEL, level);
            process.read(start + SECOND).unwrap();
            assert_eq!(process.finish(None, true).not_inserted, expected, "{level}");
        }
    }
}
