//! Tags that a victim sets itself, compared with the victim's own counters.

mod alone;

use std::collections::BTreeMap;

use memtrace_common::vocabulary::LossReason;
use memtrace_tests::totals_by_tag::{self, roots};
use memtrace_tests::{Outcome, Scratch, Totals, Trace, Victim, recording_report, victim};

/// Starts the victim in a mode. `steps`: number of steps of each of its eight threads.
fn start(mode: &str, steps: &str) -> Victim {
    victim::start_with("modules", &[mode, steps])
}

/// Traces the victim in a mode. Returns the victim's own totals by module, and the outcome.
fn traced(mode: &str, options: &[&str]) -> (BTreeMap<String, Totals>, Outcome) {
    totals_by_tag::traced("modules", &[mode, "20000"], options)
}

fn assert_equal(mode: &str, options: &[&str], modules: usize) {
    totals_by_tag::assert_equal("modules", &[mode, "20000"], options, modules);
}

#[test]
fn modules_have_the_totals_of_the_victim() {
    assert_equal("set", &["--tag-from", "set=set_module(id=arg0)"], 200);
}

#[test]
fn nested_names_have_the_totals_of_the_victim() {
    assert_equal("nested", &["--tag-from", "enter=enter_module(name=arg0),leave=leave_module"], 26);
}

#[test]
fn usable_sizes_by_handle_equal_those_of_the_victim() {
    let libc = "set=pthread_setspecific(id=arg1,if=arg0==2)";
    let (expected, outcome) = traced("specific", &["--tag-from", libc, "--size", "usable"]);
    assert_eq!(expected.len(), 200);
    // A null handle is the number 0.
    let mut found = roots(&outcome.report());
    let none = found.remove("0").expect("blocks without a module");
    assert!(found.insert(String::from("[no tag]"), none).is_none(), "each thread sets a handle before it allocates");
    assert_eq!(found, expected);
}

#[test]
fn results_of_getters_are_tags() {
    assert_equal("getter", &["--tag-from", "get=current_module()->ret"], 200);
}

/// Functions of the victim that allocate a block and ask for its module.
const WRAPPERS: &str = "get=current_module()->ret,within=server_malloc,within=server_calloc,within=server_realloc,\
                        within=server_retry";

#[test]
fn getters_in_a_wrapper_tag_the_block_of_the_call() {
    let (expected, outcome) = traced("late", &["--tag-from", WRAPPERS]);
    let report = outcome.report();
    assert!(report.losses.values().all(|count| *count == 0), "{:?}", report.losses);
    assert_eq!((roots(&report), expected.len()), (expected, 201));
    let [getter, wrappers @ ..] = report.tag_functions.as_slice() else { panic!("no functions: {report:?}") };
    // The victim also asks once for each step outside of the wrappers.
    assert_eq!((&*getter.rule, getter.calls - getter.effective_calls), ("get=current_module()->ret", 160_000));
    let nested = wrappers[3].calls;
    assert_eq!(wrappers[3].rule, "within=server_retry");
    let outermost: u64 = wrappers.iter().map(|wrapper| wrapper.calls).sum::<u64>() - nested;
    assert_eq!(getter.effective_calls, outermost, "each outermost call asks once");
}

#[test]
fn blocks_in_a_wrapper_are_recorded_once() {
    let functions = "get=current_module()->ret,within=server_share";
    let (expected, outcome) = traced("shared", &["--tag-from", functions]);
    let report = outcome.report();
    assert!(report.losses.values().all(|count| *count == 0), "{:?}", report.losses);
    assert_eq!((roots(&report), expected.len()), (expected, 3));
}

#[test]
fn accounts_with_late_tags_have_exact_marks() {
    let options = ["--tag-from", WRAPPERS, "--by", "tag"];
    let (expected, accounts) = totals_by_tag::accounts("modules", &["late", "5000"], &options);
    for (name, totals) in expected {
        let account = accounts.assert_equals(&[&name], &totals);
        assert_eq!(account.high_bytes_at_least, account.high_bytes_at_most, "{name}");
    }
}

#[test]
fn fields_of_structures_are_tags() {
    let (expected, outcome) = traced("field", &["--tag-from", "set=set_request(id=*(*(arg0+0x10)+32):32)"]);
    assert_eq!((roots(&outcome.report()), expected.len()), (expected.clone(), 200));
    let (expected, outcome) = traced("field", &["--tag-from", "set=set_request(name=*(*(arg0+16)+0x18))"]);
    let named = expected.into_iter().map(|(id, totals)| (format!("module {id}"), totals));
    assert_eq!(roots(&outcome.report()), named.collect::<BTreeMap<_, _>>());
}

#[test]
fn unreadable_fields_are_counted() {
    let untagged = |expected: &BTreeMap<String, Totals>| {
        BTreeMap::from([(String::from("[no tag]"), expected.values().copied().sum::<Totals>())])
    };
    // The first word of a request is the address 8.
    let (expected, outcome) = traced("field", &["--tag-from", "set=set_request(id=*(*(arg0)))"]);
    let report = outcome.report_with_code(20);
    report.assert_only_lost(LossReason::TagFieldUnreadable, 160_000);
    assert_eq!(roots(&report), untagged(&expected));
    // The second word is a null pointer: the request has no module.
    let (expected, outcome) = traced("field", &["--tag-from", "set=set_request(name=*(*(arg0+8)+16))"]);
    assert_eq!(roots(&outcome.report()), untagged(&expected));
}

#[test]
fn functions_without_an_effect_are_reported_with_the_tested_values() {
    let wrong_key = "set=pthread_setspecific(id=arg1,if=arg0==7)";
    let (_, outcome) = traced("specific", &["--tag-from", wrong_key, "--tag-from", "set=set_phase(id=arg0)"]);
    let report = outcome.report();
    let [with_key, never] = report.tag_functions.as_slice() else { panic!("not two functions: {report:?}") };
    assert_eq!((&*with_key.rule, with_key.calls, with_key.effective_calls), (wrong_key, 160_000, 0));
    let values: Vec<_> = with_key.tested_values.iter().flatten().map(|seen| (seen.value, seen.calls)).collect();
    assert_eq!((with_key.tested_argument, values, with_key.other_values_calls), (Some(0), vec![(2, 160_000)], Some(0)));
    assert_eq!((&*never.rule, never.calls, never.effective_calls), ("set=set_phase(id=arg0)", 0, 0));
    assert_eq!((never.tested_argument, &never.tested_values), (None, &None));
    for sentence in ["had no effect in 160,000 calls; arg0 = 2 (160,000 calls)", "the function was never called"] {
        let words = outcome.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(sentence), "{}", outcome.stderr);
    }
}

#[test]
fn recordings_by_thread_have_tags_too() {
    let scratch = Scratch::new();
    let recording = scratch.path("run.memtrace");
    let recording_text = recording.to_str().expect("the path is text");
    let options = ["--tag-from", "set=set_module(id=arg0)", "--by", "thread", "--record", recording_text];
    let (expected, outcome) = traced("set", &options);
    let report = outcome.report();
    assert_eq!(report.by, "thread");
    assert_eq!(report.tag_functions.iter().map(|function| function.calls).collect::<Vec<_>>(), [160_000]);
    let by_thread = recording_report::read(&recording, &[]);
    assert_eq!((by_thread.by.as_ref(), roots(&by_thread)), ("thread", roots(&report)));
    assert_eq!(by_thread.tag_functions, report.tag_functions);
    let sum = |totals: &BTreeMap<String, Totals>| -> Totals { totals.values().copied().sum() };
    assert_eq!(sum(&roots(&report)), sum(&expected));
    assert_eq!(roots(&recording_report::read(&recording, &["--by", "tag"])), expected);
    let hexadecimal = expected.into_iter().map(|(id, totals)| {
        let id: u64 = id.parse().expect("the victim numbers its modules");
        (format!("{id:#x}"), totals)
    });
    let in_hex = recording_report::read(&recording, &["--by", "tag", "--tag-format", "hex"]);
    assert_eq!(roots(&in_hex), hexadecimal.collect::<BTreeMap<_, _>>());
}

#[test]
fn threads_without_a_tag_have_that_of_their_process() {
    assert_equal("process", &["--tag-from", "process=set_phase(id=arg0),set=set_module(id=arg0)"], 200);
}

#[test]
fn recordings_have_the_tags_of_the_run() {
    let scratch = Scratch::new();
    let (recording, rules) = (scratch.path("run.memtrace"), scratch.path("tags.toml"));
    std::fs::write(&rules, "[[rule]]\ntag = 'network'\nnumber = 7").expect("the file can be written");
    let [recording_text, rules] = [&recording, &rules].map(|path| path.to_str().expect("the path is text"));
    let options = ["--tag-from", "set=set_module(id=arg0)", "--record", recording_text];
    let (mut expected, outcome) = traced("set", &options);
    assert_eq!(roots(&outcome.report()), expected);
    assert_eq!(roots(&recording_report::read(&recording, &[])), expected);
    let seventh = expected.remove("7").expect("the victim has a module 7");
    expected.insert(String::from("network"), seventh);
    assert_eq!(roots(&recording_report::read(&recording, &["--tags", rules])), expected);
}

#[test]
fn hooked_functions_have_tags_among_their_arguments() {
    assert_equal("hook", &["--hook", "alloc=take(size=arg0,tag=arg1)->ret,free=give(arg0)"], 200);
}

#[test]
fn tag_of_the_process_is_that_of_all_threads() {
    let (expected, outcome) = traced("process", &["--tag-from", "process=set_phase(id=arg0)"]);
    let sum: Totals = expected.values().copied().sum();
    assert_eq!(roots(&outcome.report()), BTreeMap::from([(String::from("199"), sum)]));
}

#[test]
fn accounts_by_object_and_tag_have_the_totals_of_the_victim() {
    let options = ["--tag-from", "set=set_module(id=arg0)", "--by", "object,tag"];
    let (expected, accounts) = totals_by_tag::accounts("modules", &["set", "5000"], &options);
    let object = victim::path("modules").display().to_string();
    for (name, totals) in expected {
        accounts.assert_equals(&[&object, &name], &totals);
    }
}

#[test]
fn accounts_by_allocator_and_tag_have_the_totals_of_the_victim() {
    let options = ["--tag-from", "set=set_module(id=arg0)", "--by", "allocator,tag"];
    let (expected, accounts) = totals_by_tag::accounts("modules", &["set", "5000"], &options);
    let allocator = accounts.accounts[0].names[0].clone();
    assert!(allocator.contains("glibc"), "{allocator}");
    for (name, totals) in expected {
        let account = accounts.assert_equals(&[&allocator, &name], &totals);
        assert_eq!(account.high_bytes_at_least, account.high_bytes_at_most, "{name}");
        assert!(account.free_by_others_count > Some(0), "{name}");
    }
}

#[test]
fn accounts_by_tag_have_the_totals_of_the_victim() {
    let scratch = Scratch::new();
    let rules = scratch.path("tags.toml");
    std::fs::write(&rules, "[[rule]]\ntag = 'network'\nnumber = 7").expect("the file can be written");
    let mut victim = start("set", "5000");
    let process = format!("modules ({})", victim.pid());
    let trace = Trace::victim(&victim).options(&["--tag-from", "set=set_module(id=arg0)", "--by", "process"]);
    let tracer = trace.option("--tags").option(&rules).accounts().start();
    victim.process().write_line("");
    let mut expected: BTreeMap<String, Totals> = victim.read_json();
    let outcome = tracer.stop();
    victim.finish();
    let accounts = outcome.accounts();
    accounts.assert_consistent();
    assert_eq!(accounts.keys, ["process", "tag"]);
    assert_eq!(accounts.accounts.len(), expected.len());
    let seventh = expected.remove("7").expect("the victim has a module 7");
    expected.insert(String::from("network"), seventh);
    for (name, totals) in expected {
        let account = accounts.assert_equals(&[&process, &name], &totals);
        let Totals { live_bytes, live_count, .. } = totals;
        assert_eq!([account.current_bytes, account.current_count], [live_bytes, live_count], "{name}");
        assert_eq!(account.high_bytes_at_least, account.high_bytes_at_most, "a tag of one process has exact marks");
        assert!(account.high_bytes_at_least >= Some(live_bytes), "{name}");
        assert!(account.free_by_others_count > Some(0), "{name}");
    }
}

#[test]
fn other_processes_of_the_same_file_set_no_tags() {
    let (mut victim, mut other) = (start("set", "2000"), start("set", "2000"));
    let function = format!("set={}:set_module(id=arg0)", victim::path("modules").display());
    let tracer = Trace::victim(&victim).options(&["--tag-from", &function]).start();
    other.process().write_line("");
    let _: BTreeMap<String, Totals> = other.read_json();
    victim.process().write_line("");
    let expected: BTreeMap<String, Totals> = victim.read_json();
    let outcome = tracer.stop();
    [victim, other].into_iter().for_each(Victim::finish);
    assert_eq!(roots(&outcome.report()), expected);
}
