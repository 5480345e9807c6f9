//! Deltas of a run.

use std::sync::mpsc;

use memtrace_model::{
    BlockQuantity, Delta, ImageId, ImageRusage, ImageUsage, Owner, PageFaults, Quantity, Rusage, Snapshots, StackEnd,
};

use super::*;

/// Source that returns few events at a time, so that a shard with an interval of zero takes many deltas.
struct SlowSource {
    events: VecDeque<Event>,
    step: usize,
}

impl Source for SlowSource {
    fn drain<F: FnMut(Event)>(&mut self, _: usize, sink: F) -> Drained {
        let records = self.events.len().min(self.step);
        self.events.drain(..records).for_each(sink);
        Drained { records, bad: u64::from(records == 1) }
    }

    fn wait(&mut self, _: Duration) {
        thread::yield_now();
    }
}

/// Returns the images of a snapshot with only the numbers that deltas have.
fn additive(images: BTreeMap<ImageId, ImageUsage>) -> BTreeMap<ImageId, ImageUsage> {
    let additive = |(id, mut usage): (ImageId, ImageUsage)| {
        usage.touched.clear();
        usage.copy_of = None;
        if usage.ended.is_none() {
            usage.peak = None;
            usage.by_stack.values_mut().for_each(|stack| stack[Quantity::AtPeakBytes] = 0);
            usage.counts = ImageRusage::default();
            usage.histograms.values_mut().for_each(|histograms| histograms.clear(BlockQuantity::Age));
            usage.histograms.retain(|_, histograms| !histograms.is_empty());
        }
        (id, usage)
    };
    images.into_iter().map(additive).filter(|(_, usage)| *usage != ImageUsage::default()).collect()
}

/// Adds the records that precede the end of each image.
fn with_records_of_ends(events: Vec<Event>) -> Vec<Event> {
    let records = |event: Event| {
        let mut all = vec![event];
        if matches!(all[0].kind, EventKind::Exec | EventKind::Exit) {
            let faults = PageFaults { minor: all[0].tick.0.into(), major: 0 };
            let counts = Some(Rusage { faults, peak_rss: Bytes(1) });
            let owner = Owner { uid: all[0].tick.0, ..Owner::default() };
            for kind in [EventKind::Rusage { counts, is_traced: true }, EventKind::Owner(Box::new(owner))] {
                all.insert(0, Event { kind, ..all[0].clone() });
            }
        }
        all
    };
    events.into_iter().flat_map(records).collect()
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let parts = prop::sample::select(vec![PartKeys::NONE, PartKeys::THREAD]);
    let limits = (prop::sample::select(vec![5, u64::MAX]), prop::sample::select(vec![3, u32::MAX]));
    (limits, any::<(bool, bool)>(), parts).prop_map(|((blocks, stacks), (track_peak, lifetimes), parts)| Settings {
        blocks,
        stacks,
        track_peak,
        lifetimes,
        parts,
        ..Settings::UNLIMITED
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn deltas_sum_to_the_snapshots(
        steps in prop::collection::vec(any_step(), 0..300),
        settings in any_settings(),
        (shards, step) in (1..4_u32, 1..40_usize),
        (capacity, room) in (0..3_usize, prop::sample::select(vec![0, 3, usize::MAX])),
        interval in prop::sample::select(vec![Duration::ZERO, Duration::from_micros(50), Duration::from_secs(1000)]),
    ) {
        let events = with_records_of_ends(events_of(steps));
        let (sender, receiver) = mpsc::sync_channel(capacity);
        // If `room` is 0, a shard has at most one waiting delta with stacks.
        let waiting = WaitingStacks::new(shards as usize, room);
        let deltas = DeltaSink { interval, start: Instant::now(), sender, waiting: waiting.clone() };
        let sinks = Sinks { deltas: Some(deltas), ..Sinks::default() };
        let sources = sources(&events, shards).into_iter().map(|source| SlowSource { events: source.0, step }).collect();
        let mut running = Shards::start(sources, settings, EventClass::ALL, &sinks).unwrap();
        drop(sinks);
        // A capacity of zero delivers no delta before the end, unless the receiver waits.
        let mut sum = Delta::default();
        let mut until = BTreeMap::new();
        for _ in 0..step {
            if let Ok((shard, delta)) = receiver.recv_timeout(Duration::from_micros(200)) {
                prop_assert!(until.insert(shard, delta.until) <= Some(delta.until));
                waiting.release(shard, delta.stack_count());
                sum.merge(delta);
            }
        }
        let totals = running.finish(NOW);
        prop_assert_eq!(&totals.failures, &[""; 0]);
        let mut last = BTreeMap::new();
        for (shard, delta) in receiver.iter().chain(totals.deltas) {
            last.insert(shard, delta.until);
            sum.merge(delta);
        }
        prop_assert!(last.len() == shards as usize && last.values().all(|&until| until == NOW), "{:?}", last);
        for (class, snapshot) in totals.snapshots.0 {
            let images = sum.usage.remove(&class).unwrap_or_default();
            prop_assert_eq!(images, additive(snapshot.images), "{:?}", class);
            prop_assert_eq!(&sum.ends, &snapshot.ends);
            prop_assert_eq!(&sum.owners, &snapshot.owners);
            prop_assert_eq!(&sum.oom_kills, &snapshot.oom_kills);
            prop_assert_eq!(&sum.losses, &snapshot.losses);
            for id in snapshot.stacks.ids().filter(|&id| snapshot.stacks.end_of(id) != StackEnd::Merged) {
                // If the ledger merged a stack that arrived again, the deltas have the time of its first arrival.
                let mut stacks = sum.stacks.values().filter_map(|stacks| stacks.get(id));
                let frames = snapshot.stacks.get(id).unwrap().frames;
                prop_assert!(stacks.any(|stack| stack.frames == frames), "{:?}", id);
            }
        }
        prop_assert!(sum.usage.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn unsent_stacks_complete_the_deltas(
        steps in prop::collection::vec(any_step(), 0..300),
        blocks_and_stacks in (prop::sample::select(vec![5, u64::MAX]), prop::sample::select(vec![3, u32::MAX])),
        (shards, step) in (1..4_u32, 1..40_usize),
        interval in prop::sample::select(vec![Duration::ZERO, Duration::from_micros(50), Duration::from_secs(1000)]),
        age in prop::sample::select(vec![Duration::ZERO, Duration::from_micros(300), Duration::from_secs(1000)]),
        start in 0..3_usize,
    ) {
        let events = events_of(steps);
        let (sender, receiver) = mpsc::sync_channel(100);
        let (ended, ends) = ended_channel(1000, usize::MAX);
        let deltas = DeltaSink { interval, start: Instant::now(), sender, waiting: WaitingStacks::new(0, 0) };
        let sinks = Sinks { deltas: Some(deltas), ended: Some(ended), ..Sinks::default() };
        let sources = sources(&events, shards).into_iter().map(|source| SlowSource { events: source.0, step }).collect();
        let (blocks, stacks) = blocks_and_stacks;
        let settings = Settings { blocks, stacks, ..Settings::UNLIMITED };
        let mut running = Shards::start(sources, settings, &[EventClass::Heap], &sinks).unwrap();
        drop(sinks);
        let mut sum = Delta::default();
        // Some images run when the deferral starts, and some shards start it earlier than others.
        (0..start).filter_map(|_| receiver.recv_timeout(Duration::from_micros(200)).ok()).for_each(|(_, delta)| sum.merge(delta));
        running.defer_stacks(age);
        let RunTotals { mut snapshots, ended, deltas, .. } = running.finish(NOW);
        receiver.iter().chain(deltas).for_each(|(_, delta)| sum.merge(delta));
        let mut parts = EndedParts::new(shards as usize);
        ends.iter().chain(ended).for_each(|(_, images)| parts.add(images));
        for image in parts.finish() {
            image.unsent_change().into_iter().for_each(|change| sum.add_usage(EventClass::Heap, image.id, change));
            image.add_to(&mut snapshots);
        }
        let Snapshots(mut snapshots) = snapshots;
        let images = sum.usage.remove(&EventClass::Heap).unwrap_or_default();
        prop_assert_eq!(images, additive(snapshots.remove(&EventClass::Heap).unwrap().images));
    }
}

#[test]
fn interval_without_events_has_no_changes() {
    let (sender, receiver) = mpsc::sync_channel(0);
    let deltas =
        DeltaSink { interval: Duration::ZERO, start: Instant::now(), sender, waiting: WaitingStacks::new(0, 0) };
    let sinks = Sinks { deltas: Some(deltas), ..Sinks::default() };
    let ((feed, records), (name, _names)) = (channel(), channel());
    let shards =
        Shards::start(vec![ChannelSource { records, name }], Settings::UNLIMITED, EventClass::ALL, &sinks).unwrap();
    feed.send(Some(alloc(16, 10))).unwrap();
    let live = |delta: &Delta| delta.usage.get(&EventClass::Heap).map(|images| images[&ID].total.live().bytes.0);
    while receiver.recv().map(|(_, delta)| live(&delta)).unwrap() != Some(10) {}
    let (_, next) = receiver.recv().unwrap();
    assert_eq!(next, Delta { until: next.until, ..Delta::default() });
    feed.send(Some(Event { kind: EventKind::Free { address: AbsAddr(16), is_last: false }, ..alloc(16, 10) })).unwrap();
    let change = receiver.iter().find_map(|(_, delta)| live(&delta)).unwrap();
    assert_eq!(change, 10_u64.wrapping_neg());
    drop(shards);
}

const ID: ImageId = ImageId { pid: Pid(1), ordinal: 0 };

/// Source that reports each drain, and then waits for events.
struct GatedSource {
    started: Sender<()>,
    events: Receiver<Vec<Event>>,
}

impl Source for GatedSource {
    fn drain<F: FnMut(Event)>(&mut self, _: usize, sink: F) -> Drained {
        let _ = self.started.send(());
        let events = self.events.recv().unwrap_or_default();
        let records = events.len();
        events.into_iter().for_each(sink);
        Drained { records, bad: 0 }
    }

    fn wait(&mut self, _: Duration) {}
}

#[test]
fn delta_ends_at_the_mark() {
    let (sender, receiver) = mpsc::sync_channel(1);
    let deltas = DeltaSink {
        interval: Duration::from_secs(1000),
        start: Instant::now(),
        sender,
        waiting: WaitingStacks::new(0, 0),
    };
    let sinks = Sinks { deltas: Some(deltas), ..Sinks::default() };
    let ((started, drains), (feed, events)) = (channel(), channel());
    let source = GatedSource { started, events };
    let mut shards = Shards::start(vec![source], Settings::UNLIMITED, EventClass::ALL, &sinks).unwrap();
    let at = |tick, bytes| Event { tick: Tick(tick), ..alloc(u64::from(tick) * 16, bytes) };
    let drain = |events| {
        drains.recv().unwrap();
        feed.send(events).unwrap();
    };
    drain(vec![at(5, 1)]);
    drains.recv().unwrap();
    // The shard receives the marks after this drain and before the next one.
    shards.mark(Tick(10));
    shards.mark(Tick(30));
    feed.send(vec![at(7, 20)]).unwrap();
    drain(vec![at(10, 300), at(11, 4000), at(12, 50_000)]);
    let live = |delta: &Delta| {
        let images = delta.usage.get(&EventClass::Heap);
        (delta.is_marked, delta.until, images.map_or(0, |images| images[&ID].total.live().bytes.0))
    };
    assert_eq!(live(&receiver.recv().unwrap().1), (true, Tick(10), 321));
    // The source has no later event, so the second mark is reached. The channel holds one delta.
    drain(vec![at(31, 600_000)]);
    drop(feed);
    let totals = shards.finish(NOW);
    let deltas: Vec<_> = receiver.try_iter().chain(totals.deltas).map(|(_, delta)| live(&delta)).collect();
    assert_eq!(deltas, [(true, Tick(30), 54_000), (false, NOW, 600_000)]);
}

#[test]
fn no_interval_ends_after_the_trace() {
    let (sender, receiver) = mpsc::sync_channel(10);
    // Each poll ends an interval, at a time after the end of the trace.
    let start = Instant::now().checked_sub(Duration::from_secs(3)).unwrap();
    let deltas = DeltaSink { interval: Duration::ZERO, start, sender, waiting: WaitingStacks::new(0, 0) };
    let sinks = Sinks { deltas: Some(deltas), ..Sinks::default() };
    let ((started, drains), (feed, events)) = (channel(), channel());
    let source = GatedSource { started, events };
    let mut shards = Shards::start(vec![source], Settings::UNLIMITED, EventClass::ALL, &sinks).unwrap();
    // The trace ends while the shard reads events.
    drains.recv().unwrap();
    shards.stop(NOW);
    feed.send(vec![alloc(16, 10)]).unwrap();
    drop(feed);
    let totals = shards.finish(NOW);
    let ends: Vec<_> = receiver.try_iter().chain(totals.deltas).map(|(_, delta)| delta.until).collect();
    assert_eq!(ends, [NOW]);
}
