//! Images that end during a run.

use std::sync::atomic::{AtomicBool, Ordering};

use memtrace_model::{EndedImage, ImageEnd, ImageId, Snapshots};

use super::*;

/// Returns a snapshot of one ended image.
fn snapshot_of(image: &EndedImage, class: EventClass) -> Snapshot {
    let usage = image.usage.iter().filter(|(of, _)| *of == class);
    let images: BTreeMap<_, _> = usage.map(|(_, usage)| (image.id, usage.clone())).collect();
    let is_reported = image.end != ImageEnd::Exec || !image.usage.is_empty();
    let ends = is_reported.then_some((image.id, (image.end, image.at))).into_iter().collect();
    Snapshot { images, ends, stacks: image.stacks.clone(), ..Snapshot::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn ended_images_in_the_sink_complete_the_snapshots(
        steps in prop::collection::vec(any_step(), 0..300),
        shards in 1..4_u32,
        capacity in 0..3_usize,
        max_stacks in prop::sample::select(vec![1, 4, usize::MAX]),
    ) {
        let events = events_of(steps);
        let expected = finish(&events, 1, Settings::UNLIMITED).snapshots;
        let (sink, receiver) = ended_channel(capacity, max_stacks);
        let sinks = Sinks { ended: Some(sink), ..Sinks::default() };
        let mut running = Shards::start(sources(&events, shards), Settings::UNLIMITED, EventClass::ALL, &sinks).unwrap();
        drop(sinks);
        let RunTotals { mut snapshots, ended: unsent, .. } = running.finish(NOW);
        let mut pieces = BTreeMap::<_, u32>::new();
        for (_, images) in receiver.iter().chain(unsent) {
            for image in images {
                *pieces.entry(image.id).or_default() += 1;
                let all = EventClass::ALL.iter().map(|&class| (class, snapshot_of(&image, class)));
                snapshots.merge(Snapshots(all.collect()));
            }
        }
        prop_assert_eq!(snapshots, expected);
        prop_assert!(pieces.values().all(|&count| count == shards), "{:?}", pieces);
    }
}

#[test]
fn an_image_whose_exit_was_lost_in_a_ring_is_ended() {
    let id = ImageId { pid: Pid(1), ordinal: 0 };
    let (feeds, (channels, _names)): (Vec<_>, (Vec<_>, Vec<_>)) = (0..2)
        .map(|_| {
            let ((feed, records), (name, names)) = (channel(), channel());
            (feed, (ChannelSource { records, name }, names))
        })
        .unzip();
    let (sink, receiver) = ended_channel(8, usize::MAX);
    let mut shards =
        Shards::start(channels, Settings::UNLIMITED, EventClass::ALL, &Sinks { ended: Some(sink), ..Sinks::default() })
            .unwrap();
    feeds[1].send(Some(alloc(32, 20))).unwrap();
    feeds[0].send(Some(alloc(16, 10))).unwrap();
    feeds[0].send(Some(Event { kind: EventKind::Exit, ..alloc(16, 10) })).unwrap();
    let (first, images) = receiver.iter().next().unwrap();
    assert_eq!((first, images[0].id, images.len()), (0, id, 1));
    // Both shards get the command. The first shard has ended the image before.
    shards.end_images(vec![(id, ImageEnd::Exit, Tick(7))], NOW);
    let (second, images) = receiver.iter().next().unwrap();
    assert_eq!((second, images[0].id, images[0].at, images.len()), (1, id, Tick(7), 1));
    assert_eq!(images[0].usage[0].1.total.exit().bytes, Bytes(20));
    let totals = shards.finish(NOW);
    assert!(totals.ended.is_empty());
    assert!(totals.snapshots.0[&EventClass::Heap].images.is_empty());
}

/// Source that always has further records until the end of the test. The time advances by 50 ticks with each read.
struct Endless {
    tick: u32,
    has_ended: Arc<AtomicBool>,
}

impl Source for Endless {
    fn drain<F: FnMut(Event)>(&mut self, limit: usize, mut sink: F) -> Drained {
        if self.has_ended.load(Ordering::Relaxed) {
            return Drained::default();
        }
        self.tick += 50;
        let records = limit.min(1 << 14);
        (0..records).for_each(|_| sink(Event { tick: Tick(self.tick), ..alloc(16, 10) }));
        Drained { records, bad: 0 }
    }

    fn wait(&mut self, _: Duration) {}
}

#[test]
fn an_image_ends_although_the_ring_never_becomes_empty() {
    let id = ImageId { pid: Pid(1), ordinal: 0 };
    let has_ended = Arc::new(AtomicBool::new(false));
    let (sink, receiver) = ended_channel(8, usize::MAX);
    let sinks = Sinks { ended: Some(sink), ..Sinks::default() };
    let source = Endless { tick: 0, has_ended: Arc::clone(&has_ended) };
    let mut shards = Shards::start(vec![source], Settings::UNLIMITED, EventClass::ALL, &sinks).unwrap();
    shards.end_images(vec![(id, ImageEnd::Exit, Tick(2))], Tick(3));
    let (_, images) = receiver.iter().next().unwrap();
    assert_eq!((images[0].id, images[0].end, images[0].at), (id, ImageEnd::Exit, Tick(2)));
    let allocated = images[0].heap().map_or(0, |heap| heap.total.alloc().count);
    assert!(allocated >= 2 << 14, "all records from before the command are applied: {allocated}");
    has_ended.store(true, Ordering::Relaxed);
    assert!(shards.finish(NOW).failures.is_empty());
}

/// Source whose first record is incomplete until `records` are there. Counts the reads.
struct Blocked {
    reads: Sender<()>,
    records: Receiver<Vec<Event>>,
    is_complete: bool,
}

impl Source for Blocked {
    fn drain<F: FnMut(Event)>(&mut self, _: usize, sink: F) -> Drained {
        let _ = self.reads.send(());
        let Ok(events) = self.records.try_recv() else { return Drained::default() };
        self.is_complete = true;
        let records = events.len();
        events.into_iter().for_each(sink);
        Drained { records, bad: 0 }
    }

    fn has_unread(&mut self) -> bool {
        !self.is_complete
    }

    fn wait(&mut self, _: Duration) {
        thread::yield_now();
    }
}

#[test]
fn an_image_does_not_end_before_records_behind_an_incomplete_one() {
    let id = ImageId { pid: Pid(1), ordinal: 0 };
    let ((reads, read), (feed, records)) = (channel(), channel());
    let (sink, receiver) = ended_channel(8, usize::MAX);
    let sinks = Sinks { ended: Some(sink), ..Sinks::default() };
    let source = Blocked { reads, records, is_complete: false };
    let mut shards = Shards::start(vec![source], Settings::UNLIMITED, EventClass::ALL, &sinks).unwrap();
    shards.end_images(vec![(id, ImageEnd::Exit, Tick(7))], NOW);
    // The shard takes the command before the second of these reads at the latest.
    (0..read.try_iter().count() + 3).for_each(|_| read.recv().unwrap());
    let exit = Event { kind: EventKind::Exit, tick: Tick(5), ..alloc(16, 10) };
    feed.send(vec![Event { tick: Tick(4), ..alloc(16, 10) }, exit]).unwrap();
    let (_, images) = receiver.iter().next().unwrap();
    let ends: Vec<_> = images.iter().map(|image| (image.id, image.at)).collect();
    assert_eq!(ends, [(id, Tick(5))], "the record ends the image, and the command no further one");
    assert_eq!(images[0].heap().map(|heap| heap.total.alloc().bytes), Some(Bytes(10)));
    let totals = shards.finish(NOW);
    assert!(totals.ended.is_empty() && totals.failures.is_empty());
}

#[test]
fn an_image_that_other_processes_share_is_kept() {
    assert_is_kept(Some(EventKind::Exit));
    // The record of the exit was lost.
    assert_is_kept(None);
}

/// Ends an image while another process shares its memory. `exit`: record of its end.
fn assert_is_kept(exit: Option<EventKind>) {
    let id = ImageId { pid: Pid(1), ordinal: 0 };
    let ((feed, records), (name, _names)) = (channel(), channel());
    let (sink, receiver) = ended_channel(8, usize::MAX);
    let sinks = Sinks { ended: Some(sink), ..Sinks::default() };
    let source = ChannelSource { records, name };
    let mut shards = Shards::start(vec![source], Settings::UNLIMITED, EventClass::ALL, &sinks).unwrap();
    let send = |pid, kind| feed.send(Some(Event { pid: Pid(pid), kind, ..alloc(16, 10) })).unwrap();
    send(1, alloc(16, 10).kind);
    send(1, EventKind::Share { child: Pid(2), is_traced: true });
    exit.into_iter().for_each(|exit| send(1, exit));
    shards.end_images(vec![(id, ImageEnd::Exit, Tick(7))], NOW);
    let kept = loop {
        let kept = shards.take_kept();
        if !kept.is_empty() {
            break kept;
        }
        thread::yield_now();
    };
    assert_eq!(kept, [id]);
    send(2, EventKind::Exit);
    let (_, images) = receiver.iter().next().unwrap();
    assert_eq!(images.iter().map(|image| image.id.pid.0).collect::<Vec<_>>(), [2, 1]);
    assert!(shards.finish(NOW).ended.is_empty());
}
