//! Recording of a memtrace that was killed.

use std::path::Path;

use crate::{Totals, Trace, Victim, victim};

/// Records a victim until `wait_for` has found the victim's totals in the recording, and then kills memtrace. Returns
/// the victim, which still runs, and its totals.
pub fn record(recording: &Path, wait_for: impl Fn(&Path, Totals)) -> (Victim, Totals) {
    let mut victim = victim::start_with("steady", &["100"]);
    let mut tracer = Trace::victim(&victim).option("-i").option("100ms").option("--record").option(recording).start();
    let expected = victim.work();
    wait_for(recording, expected.totals);
    tracer.process().signal(libc::SIGKILL);
    assert_eq!(tracer.wait().code, None);
    (victim, expected.totals)
}
