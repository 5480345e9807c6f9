//! Thinning of samples in several shards.

use memtrace_model::{Quantity, Variance};

use super::*;
use crate::ledger::Ledger;

const SALT: u64 = 0xabcd;
const IMAGE: ImageId = ImageId { pid: Pid(1), ordinal: 0 };

/// Returns 3,000 samples at the levels 0 to 2, and frees of some of them.
fn events() -> Vec<Event> {
    let mut events = Vec::new();
    for nth in 0..3000_u64 {
        let address = AbsAddr(0x7f00_0000_0000 + nth * 48);
        let size = Bytes(nth % 100 + 1);
        let kind = EventKind::SampledAlloc {
            address,
            size,
            sample: Box::new(Sample::of_poisson(size, Bytes(256), rounding_key(address, Tick(0)))),
            thinning: (nth / 1000) as u8,
            stack: StackId(nth % 13 + 3),
            allocator: AllocatorId::UNKNOWN,
            tag: TagId::UNTAGGED,
        };
        events.push(Event { kind, ..alloc(16, 1) });
        if nth % 5 == 0 {
            events.push(Event { kind: EventKind::SampledFree { address }, ..alloc(16, 1) });
        }
    }
    events
}

fn start(shards: u32) -> Shards {
    let settings = Settings { lifetimes: true, ..Settings::UNLIMITED };
    Shards::start(sources(&events(), shards), settings, EventClass::ALL, &Sinks::default()).unwrap()
}

fn heap_of(mut shards: Shards) -> Snapshot {
    let totals = shards.finish(NOW);
    assert!(totals.failures.is_empty(), "{:?}", totals.failures);
    totals.snapshots.0[&EventClass::Heap].clone()
}

#[test]
fn thinned_totals_are_equal_for_any_number_of_shards() {
    let thinned = |count: u32| {
        let shards = start(count);
        let deadline = Instant::now() + Duration::from_secs(20);
        while shards.progress().events < 3600 {
            assert!(Instant::now() < deadline, "{:?}", shards.progress());
            thread::yield_now();
        }
        shards.thin(IMAGE, 1, SALT);
        shards.thin(IMAGE, 3, SALT);
        heap_of(shards)
    };
    let one = thinned(1);
    // Of 2,400 live samples, one in eight, four or two stays: 100 + 200 + 400, with a standard deviation of 20.
    let samples = one.images[&IMAGE].total[Quantity::HeldSamples];
    assert!((600..800).contains(&samples), "{samples}");
    for count in [2, 4, 7] {
        assert_eq!(thinned(count), one, "{count} shards");
    }
}

#[test]
fn live_totals_do_not_depend_on_the_time_of_the_command() {
    let live = |snapshot: &Snapshot| {
        let usage = &snapshot.images[&IMAGE].total;
        let variance = usage.variance(Variance::HeldBytes);
        (usage.live(), usage[Quantity::HeldSamples], variance)
    };
    let before = start(3);
    before.thin(IMAGE, 3, SALT);
    let before = heap_of(before);
    let mut ledger = Ledger::new(Settings::UNLIMITED);
    ledger.apply_all(&mut events());
    ledger.thin(IMAGE, 3, SALT);
    assert_eq!(live(&before), live(&ledger.snapshot(EventClass::Heap, NOW)));
    assert_eq!(before.losses.total(), 0);
}
