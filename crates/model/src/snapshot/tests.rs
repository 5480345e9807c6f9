//! Addition and subtraction of snapshots.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{
    AbsAddr, Amount, Bytes, CgroupId, ImageEnd, LossReason, Part, Pid, Quantity, Stack, StackEnd, StackId, StackKey,
    Tick, Tid,
};

fn any_amount() -> impl Strategy<Value = Amount> {
    (any::<u64>(), any::<u64>()).prop_map(|(bytes, count)| Amount { bytes: Bytes(bytes), count })
}

fn any_usage() -> impl Strategy<Value = Quantities> {
    let amounts = (any_amount(), any_amount(), any_amount(), any_amount(), any_amount());
    amounts.prop_map(|(live, exit, alloc, free, temporary)| {
        Quantities::ZERO
            .with_amount(Quantity::LiveBytes, live)
            .with_amount(Quantity::ExitBytes, exit)
            .with_amount(Quantity::AllocBytes, alloc)
            .with_amount(Quantity::TemporaryBytes, temporary)
            .with_free(free)
    })
}

fn any_stack_usage() -> impl Strategy<Value = Quantities> {
    let numbers = (any_usage(), any::<u64>(), any::<u64>(), any::<(u64, u64)>(), any::<u64>());
    numbers.prop_map(|(usage, at_peak, major_faults, (live, alloc), resident)| {
        usage
            .with(Quantity::AtPeakBytes, at_peak)
            .with(Quantity::ResidentBytes, resident)
            .with(Quantity::MajorFaults, major_faults)
            .with(Quantity::LiveVariance, live)
            .with(Quantity::AllocVariance, alloc)
    })
}

fn any_image() -> impl Strategy<Value = ImageUsage> {
    let ended = prop_oneof![Just(None), Just(Some(ImageEnd::Exit)), Just(Some(ImageEnd::Exec))];
    let peak = prop::option::of(any::<u64>().prop_map(Bytes));
    let part = prop_oneof![Just(Part::WHOLE), (0..2u32).prop_map(|tid| Part::WHOLE.with_thread(Tid(tid)))];
    let key = ((0..6u64).prop_map(StackId), part).prop_map(|(stack, part)| StackKey { stack, part });
    let by_stack = prop::collection::btree_map(key, any_stack_usage(), 0..4);
    (ended, any_usage(), any::<u64>(), peak, by_stack).prop_map(|(ended, total, unmatched_frees, peak, by_stack)| {
        ImageUsage { ended, total, unmatched_frees, peak, by_stack, ..ImageUsage::default() }
    })
}

fn any_snapshot() -> impl Strategy<Value = Snapshot> {
    let image_id = (1..3u32, 0..2u32).prop_map(|(pid, ordinal)| ImageId { pid: Pid(pid), ordinal });
    let images = prop::collection::btree_map(image_id, any_image(), 0..4);
    // The id of a stack is a hash of its frames, so an id has the same frames in every shard. The frames may be sent
    // twice.
    let stacks = prop::collection::btree_map(2..8u64, 0..4u64, 0..4).prop_map(|ids| {
        let stack = |id, taken| Stack {
            frames: [AbsAddr(id)].into(),
            end: StackEnd::Complete,
            taken: Duration::from_nanos(taken),
        };
        ids.into_iter().map(|(id, taken)| (StackId(id), stack(id, taken))).collect()
    });
    let losses = prop::collection::vec((prop::sample::select(LossReason::ALL), any::<u64>()), 0..4);
    let kill = (1..3u32, 0..4u32).prop_map(|(pid, at)| OomKill {
        at: Tick(at),
        victim: ImageId { pid: Pid(pid), ordinal: 0 },
        comm: String::new(),
        by: Pid(pid),
        by_comm: String::new(),
        group: CgroupId::of(pid.into()),
        full: None,
    });
    let oom_kills = prop::collection::btree_set(kill, 0..4);
    let end = (prop::sample::select(vec![ImageEnd::Exit, ImageEnd::OomKill, ImageEnd::Exec]), (0..4u32).prop_map(Tick));
    let id = (1..3u32, 0..2u32).prop_map(|(pid, ordinal)| ImageId { pid: Pid(pid), ordinal });
    let ends = prop::collection::btree_map(id, end, 0..4);
    (images, stacks, ends, oom_kills, losses).prop_map(|(images, stacks, ends, oom_kills, lost)| {
        let mut losses = Losses::default();
        lost.into_iter().for_each(|(reason, count)| losses.add(reason, count));
        // All shards have the same owner of an image.
        let owner = |id: &ImageId| (*id, Owner { uid: id.pid.0, real_uid: id.ordinal, ..Owner::default() });
        let owners = ends.keys().map(owner).collect();
        Snapshot { images, stacks, ends, owners, oom_kills, losses }
    })
}

fn merged(mut one: Snapshot, other: &Snapshot) -> Snapshot {
    one.merge(other.clone());
    one
}

proptest! {
    #[test]
    fn merging_is_commutative(a in any_snapshot(), b in any_snapshot()) {
        prop_assert_eq!(merged(a.clone(), &b), merged(b, &a));
    }

    #[test]
    fn merging_is_associative(a in any_snapshot(), b in any_snapshot(), c in any_snapshot()) {
        prop_assert_eq!(merged(merged(a.clone(), &b), &c), merged(a, &merged(b, &c)));
    }

    #[test]
    fn merging_nothing_changes_nothing(a in any_snapshot()) {
        prop_assert_eq!(&merged(a.clone(), &Snapshot::default()), &a);
        prop_assert_eq!(&merged(Snapshot::default(), &a), &a);
    }

    #[test]
    fn nothing_has_changed_since_the_same_snapshot(a in any_snapshot()) {
        let change = a.diff(&a);
        prop_assert!(change.images.is_empty() && change.ends.is_empty() && change.owners.is_empty());
        prop_assert_eq!(change.losses, Losses::default());
        prop_assert_eq!(change.stacks, a.stacks);
    }
}

#[test]
fn an_end_that_one_shard_missed_ends_its_part_of_the_image() {
    let id = ImageId { pid: Pid(1), ordinal: 0 };
    let shard = |ended: Option<ImageEnd>, held: u64| {
        let held = Amount::one(Bytes(held));
        let (live, exit) = if ended.is_none() { (held, Amount::default()) } else { (Amount::default(), held) };
        let usage = Quantities::ZERO
            .with_amount(Quantity::LiveBytes, live)
            .with_amount(Quantity::ExitBytes, exit)
            .with_amount(Quantity::AllocBytes, held);
        let by_stack = BTreeMap::from([(StackId(2).into(), usage)]);
        let image = ImageUsage { ended, total: usage, by_stack, ..ImageUsage::default() };
        let ends = ended.map(|end| (id, (end, Tick(7)))).into_iter().collect();
        Snapshot { images: BTreeMap::from([(id, image)]), ends, ..Snapshot::default() }
    };
    let ended_as = |class| {
        let mut snapshot = merged(shard(Some(ImageEnd::Exit), 10), &shard(None, 20));
        snapshot.end_images(class);
        let image = snapshot.images.remove(&id).unwrap();
        assert_eq!((image.ended, image.by_stack[&StackId(2).into()]), (Some(ImageEnd::Exit), image.total));
        [image.total.live(), image.total.exit(), image.total.free()].map(|amount| amount.bytes.0)
    };
    assert_eq!(ended_as(EventClass::Heap), [0, 30, 0]);
    assert_eq!(ended_as(EventClass::Map), [0, 10, 20]);
    let mut before_exec =
        merged(shard(None, 20), &Snapshot { ends: [(id, (ImageEnd::Exec, Tick(7)))].into(), ..Snapshot::default() });
    before_exec.end_images(EventClass::Heap);
    let image = &before_exec.images[&id];
    assert_eq!(
        (image.ended, image.total.discarded(), image.total.live()),
        (Some(ImageEnd::Exec), Amount::one(Bytes(20)), Amount::default())
    );
}

#[test]
fn a_difference_has_the_events_in_between() {
    let id = ImageId { pid: Pid(1), ordinal: 0 };
    let totals = |live, alloc, free, unmatched_frees| {
        let amount = |bytes| Amount { bytes: Bytes(bytes), count: bytes / 10 };
        let usage = Quantities::ZERO
            .with_amount(Quantity::LiveBytes, amount(live))
            .with_amount(Quantity::AllocBytes, amount(alloc))
            .with_free(amount(free));
        let by_stack = BTreeMap::from([(StackId(2).into(), usage.with(Quantity::AtPeakBytes, live))]);
        let image = ImageUsage { total: usage, unmatched_frees, by_stack, ..ImageUsage::default() };
        Snapshot { images: BTreeMap::from([(id, image)]), ..Snapshot::default() }
    };
    let change = totals(50, 90, 40, 3).diff(&totals(20, 30, 10, 1));
    let mut expected = totals(30, 60, 30, 2);
    expected
        .images
        .values_mut()
        .flat_map(|image| image.by_stack.values_mut())
        .for_each(|s| s[Quantity::AtPeakBytes] = 0);
    assert_eq!(change, expected);
}
