//! Go program with the last reading of its heap profile, and the events of a new reading.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::RangeInclusive;
use std::time::Instant;

use memtrace_model::{
    AbsAddr, AllocatorId, Bytes, Event, EventKind, ImageId, ImageStart, ProfileChange, SampleSum, Stack, StackEnd,
    StackId, Tick, Tid, split_frame,
};
use memtrace_object::go::{HeapProfile, ProfileChanges, ProfileDifference};

use super::reader_threads::{Known, Program};

/// Number of failed readings in a row after which a process that was never read is given up. A reading can fail because the
/// profile changes.
const MOST_FAILURES: u32 = 5;

/// Meaning of the blocks in the first reading of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstReading {
    /// The program ran before the trace: the live blocks count.
    Live,
    /// The program has started during the trace: all blocks count.
    All,
    /// A fork has started the process during the trace. It has copies of the blocks of its parent, which do not count as its own.
    Inherited,
}

impl FirstReading {
    /// `start`: start of the image. `trace`: start of the trace.
    pub(super) fn of(start: ImageStart, trace: Tick) -> Self {
        match start {
            ImageStart::Exec(_) => Self::All,
            ImageStart::Fork(at) if at >= trace => Self::Inherited,
            ImageStart::Fork(_) | ImageStart::Unseen => Self::Live,
        }
    }
}

/// Go program that is read.
pub(super) struct GoProcess {
    pub(super) program: Program,
    /// RSS when the program was found.
    pub(super) rss: Bytes,
    /// Time of the next check whether the process is selected.
    pub(super) next_check: Instant,
    pub(super) first: FirstReading,
    /// Number of finished collections at the last reading; `None` before the first one.
    collections: Option<u32>,
    /// True if the next reading can be left out unless another collection has finished.
    is_settled: bool,
    /// Time when the last finished collection was first seen.
    pub(super) seen: Tick,
    /// Number of readings that became events.
    readings: u32,
    /// True if the blocks that the process has inherited are known.
    has_inherited: bool,
    /// True if the ledger has lost the first reading, and refuses the next ones.
    pub(super) is_refused: bool,
    /// Number of readings in a row that have failed.
    pub(super) failures: u32,
    /// True if the profile was read.
    pub(super) was_read: bool,
    /// Number of stacks that count towards the limit.
    pub(super) stacks: usize,
    /// Number of stacks that the reading in progress may add.
    pub(super) granted: usize,
    /// True if the stacks did not fit into the granted part of the free stacks.
    pub(super) needs_all: bool,
    changes: ProfileChanges,
    /// Stack of each bucket of the last reading.
    of_buckets: Vec<StackId>,
}

impl GoProcess {
    pub(super) fn new(program: Program, rss: Bytes, first: FirstReading, next_check: Instant) -> Self {
        Self {
            program,
            rss,
            next_check,
            first,
            collections: None,
            is_settled: false,
            seen: Tick(0),
            readings: 0,
            has_inherited: false,
            is_refused: false,
            failures: 0,
            was_read: false,
            stacks: 0,
            granted: 0,
            needs_all: false,
            changes: ProfileChanges::default(),
            of_buckets: Vec::new(),
        }
    }

    /// Begins a reading, when no other one is pending. If the ledger has lost the first reading, the new reading counts
    /// as the first.
    pub(super) fn begin_reading(&mut self) {
        if std::mem::take(&mut self.is_refused) {
            (self.collections, self.is_settled, self.readings) = (None, false, 0);
            self.changes.restart();
            self.of_buckets.clear();
        }
    }

    /// Returns what the next reading need not repeat.
    pub(super) fn known(&self) -> Known {
        Known {
            collections: self.collections.filter(|_| self.is_settled),
            buckets: self.of_buckets.len(),
            most: self.stacks + self.granted,
            // Blocks that the parent has allocated must not count as blocks of the child when the runtime publishes them.
            with_unpublished: self.first == FirstReading::Inherited && !self.has_inherited,
        }
    }

    /// Returns true if the next events have all live blocks from before the trace.
    pub(super) fn reads_older_blocks(&self) -> bool {
        self.readings == 0 && self.first == FirstReading::Live
    }

    /// Makes the next reading read the profile in any case.
    pub(super) const fn read_again(&mut self) {
        self.is_settled = false;
    }

    /// Counts a failed reading. Returns true if no further reading is worth the time. A program that was read before can be
    /// read again after a stall. `is_off`: true if the program has switched sampling off, and can switch it on again.
    pub(super) const fn add_failure(&mut self, is_off: bool) -> bool {
        self.failures = self.failures.saturating_add(1);
        !is_off && !self.was_read && self.failures >= MOST_FAILURES
    }

    /// Returns the events of a reading at `at`: new stacks, and the changes since the last reading. Blocks with other sizes than
    /// `sizes` do not count. Also returns the number of buckets with lower counts than before. In a valid profile, counts only
    /// grow.
    pub(super) fn events(
        &mut self,
        id: ImageId,
        profile: &HeapProfile,
        at: Tick,
        allocator: AllocatorId,
        sizes: &RangeInclusive<Bytes>,
    ) -> (Vec<Event>, u64) {
        let event = |kind| Event { pid: id.pid, tid: Tid(id.pid.0), tick: at, kind };
        let mut events = Vec::new();
        self.of_buckets.reserve_exact(profile.buckets.len().saturating_sub(self.of_buckets.len()));
        for new in &profile.new_stacks {
            if new.bucket != self.of_buckets.len() {
                // An earlier reading had the stack.
                continue;
            }
            let frames: Box<[AbsAddr]> = new.frames.iter().map(|&frame| split_frame(frame).0).collect();
            let stack = stack_id(id, &frames);
            self.of_buckets.push(stack);
            let end = if new.is_truncated { StackEnd::Truncated } else { StackEnd::Complete };
            let frames = Box::new(Stack { frames, end, taken: at.since_start() });
            events.push(event(EventKind::Stack { id: stack, stack: frames }));
        }
        let first = (self.readings == 0).then_some(self.first);
        let inherits = self.first == FirstReading::Inherited && !self.has_inherited;
        let ProfileDifference { changes: differences, decreased } = if inherits {
            self.has_inherited = true;
            self.changes.inherit(profile);
            ProfileDifference::default()
        } else {
            self.changes.apply(profile)
        };
        let mut changes: BTreeMap<StackId, ProfileChange> = BTreeMap::new();
        for change in differences {
            let Some(bucket) = profile.buckets.get(change.bucket) else { continue };
            let Some(&stack) = self.of_buckets.get(change.bucket).filter(|_| sizes.contains(&bucket.size)) else {
                continue;
            };
            let (alloc, free) = match first {
                Some(FirstReading::Live) => (change.alloc - change.free, SampleSum::default()),
                _ => (change.alloc, change.free),
            };
            let none = ProfileChange { stack, allocator, alloc: SampleSum::default(), free: SampleSum::default() };
            let of_stack = changes.entry(stack).or_insert(none);
            of_stack.alloc += alloc;
            of_stack.free += free;
        }
        let changes = changes.into_values().collect();
        events.push(event(EventKind::HeapProfile { image: id, reading: self.readings, changes }));
        self.readings = self.readings.saturating_add(1);
        self.was_read = true;
        // The runtime publishes more numbers when the memory of a collection is swept, which does not change the number of
        // collections.
        let is_known = self.collections == Some(profile.collections);
        self.is_settled = is_known && profile.is_published && !profile.is_mixed;
        self.collections = Some(profile.collections);
        if !is_known {
            self.seen = at;
        }
        (events, decreased)
    }
}

/// Returns the ID of a stack of the image `id`.
fn stack_id(id: ImageId, frames: &[AbsAddr]) -> StackId {
    let mut hasher = DefaultHasher::new();
    (id, frames).hash(&mut hasher);
    let stack = StackId(hasher.finish());
    // Small numbers are IDs of missing stacks.
    if stack.has_frames() { stack } else { StackId(u64::MAX - stack.0) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtrace_model::{Amount, FileOffset, Mapping, Pid};
    use memtrace_object::go::{Bucket, BucketStack};

    use super::*;

    const ID: ImageId = ImageId { pid: Pid(7), ordinal: 1 };
    const GO: AllocatorId = AllocatorId(3);
    const ANY_SIZE: RangeInclusive<Bytes> = Bytes(0)..=Bytes(u64::MAX);

    fn process(first: FirstReading) -> GoProcess {
        let mapping = Mapping { start: AbsAddr(0), end: AbsAddr(4096), offset: FileOffset(0), object: None };
        GoProcess::new(Program::New(mapping), Bytes(0), first, Instant::now())
    }

    /// Returns a profile of all allocations. `buckets`: size, number of allocated and of freed blocks. `stacks`: bucket and frames.
    fn profile(collections: u32, buckets: &[(u64, u64, u64)], stacks: &[(usize, &[u64])]) -> HeapProfile {
        let bucket = |&(size, allocs, frees): &(u64, u64, u64)| Bucket { size: Bytes(size), allocs, frees };
        let stack = |&(bucket, frames): &(usize, &[u64])| {
            let frames = frames.iter().copied().map(AbsAddr).collect();
            BucketStack { bucket, frames, is_truncated: bucket == 2 }
        };
        HeapProfile {
            collections,
            is_published: true,
            is_mixed: false,
            rate: Bytes(1),
            changed: 0,
            buckets: buckets.iter().map(bucket).collect(),
            new_stacks: stacks.iter().map(stack).collect(),
        }
    }

    /// Number of the reading, and allocated and freed bytes and blocks by stack.
    type Read = (u32, Vec<(StackId, [(u64, u64); 2])>);

    /// Returns the new stacks and the changes of a reading.
    fn read(
        process: &mut GoProcess,
        profile: &HeapProfile,
        sizes: &RangeInclusive<Bytes>,
    ) -> (Vec<(StackId, StackEnd)>, Read) {
        let (mut events, decreased) = process.events(ID, profile, Tick::at(Duration::from_secs(1)), GO, sizes);
        assert_eq!(decreased, 0);
        assert!(events.iter().all(|event| event.pid == ID.pid));
        let Some(EventKind::HeapProfile { image: ID, reading, changes }) = events.pop().map(|event| event.kind) else {
            panic!("the last event is the reading");
        };
        let stack = |event: &Event| match &event.kind {
            EventKind::Stack { id, stack } => (*id, stack.end),
            other => panic!("{other:?}"),
        };
        let amount = |Amount { bytes, count }: Amount| (bytes.0, count);
        let change = |change: &ProfileChange| {
            assert_eq!(change.allocator, GO);
            (change.stack, [amount(change.alloc.amount), amount(change.free.amount)])
        };
        (events.iter().map(stack).collect(), (reading, changes.iter().map(change).collect()))
    }

    fn id_of(frames: &[u64]) -> StackId {
        stack_id(ID, &frames.iter().copied().map(AbsAddr).collect::<Vec<_>>())
    }

    /// Returns the changes in the order of the stacks.
    fn sorted(mut changes: Vec<(StackId, [(u64, u64); 2])>) -> Vec<(StackId, [(u64, u64); 2])> {
        changes.sort_unstable();
        changes
    }

    #[test]
    fn first_reading_of_a_running_program_has_its_live_blocks() {
        let mut process = process(FirstReading::Live);
        let (first, other) = (id_of(&[1, 2]), id_of(&[3]));
        let stacks: &[(usize, &[u64])] = &[(0, &[1, 2]), (1, &[1, 2]), (2, &[3])];
        let start = profile(5, &[(100, 10, 4), (200, 3, 2), (50, 2, 0)], stacks);
        assert!(process.reads_older_blocks());
        let (new, (reading, changes)) = read(&mut process, &start, &ANY_SIZE);
        assert_eq!(new, [(first, StackEnd::Complete), (first, StackEnd::Complete), (other, StackEnd::Truncated)]);
        assert_eq!(reading, 0);
        assert_eq!(changes, sorted(vec![(first, [(800, 7), (0, 0)]), (other, [(100, 2), (0, 0)])]));
        assert!(!process.reads_older_blocks());
        let later = profile(6, &[(100, 15, 5), (200, 3, 3), (50, 2, 0), (8, 1, 0)], &[(2, &[3]), (3, &[4])]);
        let (new, (reading, changes)) = read(&mut process, &later, &ANY_SIZE);
        let newest = id_of(&[4]);
        assert_eq!((new, reading), (vec![(newest, StackEnd::Complete)], 1));
        assert_eq!(changes, sorted(vec![(first, [(500, 5), (300, 2)]), (newest, [(8, 1), (0, 0)])]));
    }

    #[test]
    fn first_reading_of_a_new_program_has_all_its_blocks() {
        let start = profile(5, &[(100, 10, 4), (50, 2, 0)], &[(0, &[1]), (1, &[3])]);
        let (_, (_, changes)) = read(&mut process(FirstReading::All), &start, &ANY_SIZE);
        assert_eq!(changes, sorted(vec![(id_of(&[1]), [(1000, 10), (400, 4)]), (id_of(&[3]), [(100, 2), (0, 0)])]));
        let (_, (_, changes)) = read(&mut process(FirstReading::All), &start, &(Bytes(51)..=Bytes(100)));
        assert_eq!(changes, [(id_of(&[1]), [(1000, 10), (400, 4)])]);
    }

    #[test]
    fn a_refused_profile_is_read_again_as_a_whole() {
        let mut process = process(FirstReading::Live);
        let start = profile(5, &[(100, 10, 4)], &[(0, &[1])]);
        read(&mut process, &start, &ANY_SIZE);
        process.begin_reading();
        let later = profile(6, &[(100, 15, 5)], &[]);
        assert_eq!(read(&mut process, &later, &ANY_SIZE).1, (1, vec![(id_of(&[1]), [(500, 5), (100, 1)])]));
        process.is_refused = true;
        process.begin_reading();
        assert_eq!((process.known().collections, process.known().buckets), (None, 0));
        assert!(process.reads_older_blocks());
        let whole = profile(6, &[(100, 15, 5)], &[(0, &[1])]);
        let (new, (reading, changes)) = read(&mut process, &whole, &ANY_SIZE);
        assert_eq!((new, reading), (vec![(id_of(&[1]), StackEnd::Complete)], 0));
        assert_eq!(changes, [(id_of(&[1]), [(1000, 10), (0, 0)])]);
    }

    #[test]
    fn first_reading_of_a_forked_program_has_the_blocks_of_its_parent() {
        let mut process = process(FirstReading::Inherited);
        assert!(process.known().with_unpublished && !process.reads_older_blocks());
        let inherited =
            HeapProfile { is_published: false, ..profile(5, &[(100, 10, 4), (50, 2, 0)], &[(0, &[1]), (1, &[3])]) };
        let (new, first) = read(&mut process, &inherited, &ANY_SIZE);
        assert_eq!((new.len(), first, process.known().with_unpublished), (2, (0, vec![]), false));
        // Of the six inherited blocks, five are freed. All others are its own.
        let (_, later) = read(&mut process, &profile(6, &[(100, 13, 9), (50, 2, 0)], &[]), &ANY_SIZE);
        assert_eq!(later, (1, vec![(id_of(&[1]), [(300, 3), (0, 0)])]));
        let (_, later) = read(&mut process, &profile(7, &[(100, 13, 12), (50, 2, 2)], &[]), &ANY_SIZE);
        assert_eq!(later, (2, vec![(id_of(&[1]), [(0, 0), (200, 2)])]));
        // After a loss, its own blocks count again.
        process.is_refused = true;
        process.begin_reading();
        assert!(!process.known().with_unpublished);
        let whole = profile(8, &[(100, 14, 12), (50, 2, 2)], &[(0, &[1]), (1, &[3])]);
        assert_eq!(read(&mut process, &whole, &ANY_SIZE).1, (0, vec![(id_of(&[1]), [(400, 4), (200, 2)])]));
    }

    #[test]
    fn fork_during_the_trace_is_inherited() {
        let of = |start| FirstReading::of(start, Tick(100));
        assert_eq!(of(ImageStart::Unseen), FirstReading::Live);
        assert_eq!([99, 100].map(|at| of(ImageStart::Fork(Tick(at)))), [FirstReading::Live, FirstReading::Inherited]);
        assert_eq!([99, 100].map(|at| of(ImageStart::Exec(Tick(at)))), [FirstReading::All; 2]);
    }

    #[test]
    fn only_programs_that_were_never_read_are_given_up() {
        let mut process = process(FirstReading::Live);
        assert_eq!([false; 6].map(|is_off| process.add_failure(is_off)), [false, false, false, false, true, true]);
        assert!(!process.add_failure(true));
        process.failures = 0;
        read(&mut process, &profile(5, &[(100, 10, 4)], &[(0, &[1])]), &ANY_SIZE);
        assert!((0..100).all(|_| !process.add_failure(false)));
    }

    #[test]
    fn decreased_numbers_are_counted() {
        let mut process = process(FirstReading::Live);
        read(&mut process, &profile(5, &[(100, 10, 4), (50, 2, 0)], &[(0, &[1]), (1, &[3])]), &ANY_SIZE);
        let fallen = profile(6, &[(100, 9, 4), (50, 3, 0)], &[]);
        let (events, decreased) = process.events(ID, &fallen, Tick(7), GO, &ANY_SIZE);
        let Some(EventKind::HeapProfile { changes, .. }) = events.last().map(|event| &event.kind) else {
            panic!("the last event is the reading");
        };
        assert_eq!((decreased, changes.len(), changes[0].stack), (1, 1, id_of(&[3])));
    }

    #[test]
    fn profile_is_read_twice_after_each_collection() {
        let mut process = process(FirstReading::Live);
        let known = |process: &GoProcess| (process.known().collections, process.known().buckets);
        assert_eq!((known(&process), process.was_read), ((None, 0), false));
        let at = |collections| profile(collections, &[(8, 1, 0)], &[(0, &[1])]);
        let expected = [(5, None), (5, Some(5)), (6, None), (6, Some(6))];
        for (collections, settled) in expected {
            read(&mut process, &at(collections), &ANY_SIZE);
            assert_eq!((known(&process), process.was_read), ((settled, 1), true), "{collections}");
        }
        process.read_again();
        assert_eq!(known(&process), (None, 1));
        let unpublished = HeapProfile { is_published: false, ..at(6) };
        read(&mut process, &unpublished, &ANY_SIZE);
        assert_eq!(known(&process), (None, 1));
    }

    #[test]
    fn equal_stacks_of_an_image_have_one_id() {
        let of = |id, addresses: &[u64]| stack_id(id, &addresses.iter().copied().map(AbsAddr).collect::<Vec<_>>());
        assert_eq!(of(ID, &[1, 2]), of(ID, &[1, 2]));
        let ids = [
            of(ID, &[1, 2]),
            of(ID, &[2, 1]),
            of(ID, &[1]),
            of(ID, &[]),
            of(ImageId { ordinal: 2, ..ID }, &[1, 2]),
            of(ImageId { pid: Pid(8), ..ID }, &[1, 2]),
        ];
        let distinct: std::collections::BTreeSet<_> = ids.into_iter().collect();
        assert_eq!(distinct.len(), ids.len());
        assert!(ids.into_iter().all(StackId::has_frames));
    }
}
