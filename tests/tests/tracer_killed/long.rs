//! SIGKILL at fifty moments of a trace.

use std::thread;
use std::time::Duration;

use memtrace_tests::{Trace, breakpoints, victim};

use super::kill;

/// Reproducible pseudorandom delays (the generator of Numerical Recipes).
struct Moments(u32);

impl Moments {
    fn below(&mut self, most: Duration) -> Duration {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        most.mul_f64(f64::from(self.0) / f64::from(u32::MAX))
    }
}

#[test]
fn sigkill_at_any_moment_leaves_no_probe_and_no_damage() {
    let mut victim = victim::start("churn");
    victim.process().write_line("");
    let mut moments = Moments(1);
    let mut killed = 0;
    for round in 0..50 {
        let trace = Trace::victim(&victim);
        // The delay waits for nothing: the test kills memtrace at different moments.
        let outcome = match round % 5 {
            // memtrace is killed while it traces.
            3 => {
                let tracer = trace.start();
                thread::sleep(moments.below(Duration::from_millis(100)));
                kill(tracer)
            }
            // memtrace is killed while it detaches, or after that.
            4 => {
                let mut tracer = trace.start();
                tracer.process().signal(libc::SIGINT);
                thread::sleep(moments.below(Duration::from_millis(200)));
                kill(tracer)
            }
            // memtrace is killed while it loads, attaches or estimates.
            _ => {
                let tracer = trace.start_without_waiting();
                thread::sleep(moments.below(Duration::from_millis(1000)));
                kill(tracer)
            }
        };
        killed += u32::from(outcome.code.is_none());
        breakpoints::wait_until_removed(victim.pid());
        assert!(victim.process().is_running(), "round {round}");
    }
    // In the other rounds, memtrace had already ended.
    assert!(killed >= 40, "{killed}");

    let newcomer = victim::start_with("steady", &["100"]);
    assert_eq!(breakpoints::list(newcomer.pid()), [""; 0]);
    newcomer.finish();

    let expected = victim.work();
    assert!(expected.totals.alloc_count > 1000, "{expected:?}");
    assert_eq!(
        (expected.totals.live_count, expected.totals.live_bytes, expected.unmatched_frees),
        (0, 0, 0),
        "{expected:?}"
    );
    victim.finish();
}
