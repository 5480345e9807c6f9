//! Tests that use the whole machine.

use super::*;

#[test]
fn objects_without_probes_are_refused() {
    let mut victim = victim::start_with("modules", &["set", "1"]);
    let run = |from: &str| Trace::victim(&victim).options(&["--tag-from", from]).run();
    run("probes").assert_refused(2, &["cannot take tags from the probes of the targets", "no probe of memtrace.h"]);
    run("/bin/true:probes").assert_refused(2, &["cannot take tags from the probes of /bin/true"]);
    run("/nothing:probes").assert_refused(2, &["cannot take tags from the probes of /nothing", "cannot be read"]);
    let all = Trace::system_wide().options(FROM).run();
    all.assert_refused(2, &["no file is given for the probes"]);
    victim.process().write_line("");
    let _: BTreeMap<String, Totals> = victim.read_json();
    victim.finish();
}
