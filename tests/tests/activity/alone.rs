//! Tests that use the whole machine.

use super::*;

#[test]
fn programs_without_probes_and_unknown_functions_are_refused() {
    let mut victim = victim::start("exact");
    let path = victim::path("exact");
    let run = |from: &str| Trace::victim(&victim).options(&["--span", from]).run();
    run("probes")
        .assert_refused(2, &["cannot trace tasks by the probes of the targets", "build the program with memtrace.h"]);
    run("/bin/true:probes").assert_refused(2, &["cannot trace tasks by the probes of /bin/true", "--span "]);
    let missing = format!("{}:missing", path.display());
    run(&missing).assert_refused(2, &["cannot trace calls of", "missing", "nm -C FILE"]);
    let similar = format!("{}:to_librray", victim::path("tail_calls").display());
    run(&similar).assert_refused(2, &["no such function", "did you mean `to_library`"]);
    let many = format!("{}:*", victim::path("heaps.static").display());
    run(&many).assert_refused(2, &["functions match, and at most 64 can be traced", "give more of the name"]);
    run("/nothing:main").assert_refused(2, &["cannot trace calls of /nothing:main", "cannot be read"]);
    Trace::system_wide().options(&["--span", "probes"]).run().assert_refused(2, &["no file is given for the probes"]);
    victim.work();
    victim.finish();
}
