//! Tests that use the whole machine.

use super::*;

#[test]
fn functions_that_are_not_found_are_refused() {
    let mut victim = start("set", "1");
    let run = |function: &str| Trace::victim(&victim).options(&["--tag-from", function]).run();
    run("set=no_such_function(id=arg0)")
        .assert_refused(2, &["cannot take tags from no_such_function", "no such function"]);
    run("set=/nothing:f(id=arg0)").assert_refused(2, &["cannot take tags from /nothing:f", "cannot be read"]);
    let all = Trace::system_wide().options(&["--tag-from", "set=set_module(id=arg0)"]).run();
    all.assert_refused(2, &["no file is given for the tags of set_module"]);
    victim.process().write_line("");
    let _: BTreeMap<String, Totals> = victim.read_json();
    victim.finish();
}
