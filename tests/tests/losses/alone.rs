//! Tests that use the whole machine.

use super::*;

#[test]
fn cgroups_removed_while_their_ring_is_full_are_counted() {
    /// Number of records that fit into the ring. Each has a header of 8 bytes, and one byte of the ring stays free.
    const FIT: usize = ((256 << 10) - 1) / (size_of::<RemovedCgroupRecord>() + 8);
    const REMOVED: usize = FIT + 50;
    let scratch = Scratch::new();
    let program = scratch.copy(victim::path("steady"), "mt-removals");
    let victim = Victim::start(Command::new(program).arg("100"));
    let tracer = Trace::system_wide().options(&["--comm", "mt-removals"]).start();
    tracer.suspend();
    for _ in 0..REMOVED {
        drop(Cgroup::new());
    }
    tracer.resume();
    let lost = tracer.stop().report_with_code(LOST).loss_count(LossReason::RingFullCgroup);
    // Other processes of the machine may have removed some cgroups too.
    assert!((50..60).contains(&lost), "{lost}");
    victim.finish();
}
