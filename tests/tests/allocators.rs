//! Traces of every supported allocator, linked in every supported way, match the victim's own totals exactly.

use std::process::Command;
use std::sync::LazyLock;

use memtrace_tests::{Report, Trace, TracedTogether, Victim, VictimTotals, victim};

/// Number of allocator calls of a victim in C or C++.
const ROUNDS: &str = "2000";

/// Number of calls of a victim in C++ that throw.
const THROWS: u64 = 20;

const RING: &[&str] = &["--ring-size", "64MiB"];

/// Argument of `--hook` for the pool's functions. Their signatures differ from the signatures in a C library.
const POOL: &str = "alloc=pool_take(size=arg1)->ret,alloc=pool_array(size=arg1*arg2)->ret,\
                    alloc=pool_make(size=arg1)->arg2,realloc=pool_grow(old=arg1,size=arg2)->ret,free=pool_give(arg1)";

fn trace(name: &str, arguments: &[&str], options: &[&str]) -> (Report, VictimTotals) {
    let mut victim = Victim::start(Command::new(victim::path(name)).args(arguments));
    let tracer = Trace::victim(&victim).options(RING).options(options).start();
    let expected = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    (outcome.report(), expected)
}

fn assert_exact(name: &str, arguments: &[&str], options: &[&str]) {
    let (report, expected) = trace(name, arguments, options);
    report.assert_equals(&expected);
    assert_eq!(report.notes_of_target(), [""; 0]);
}

/// Victims that call the functions of one allocator each.
static FAMILIES: LazyLock<TracedTogether> = LazyLock::new(|| {
    let names = [
        "family.jemalloc",
        "family.jemalloc_in",
        "family.jemalloc_static",
        "family.je",
        "family.tcmalloc",
        "family.tcmalloc_in",
        "family.mimalloc",
        "family.static",
        "family.static_pie",
        "family.musl_static",
    ];
    TracedTogether::victims(&names, &[ROUNDS], RING)
});

/// Victims that call the operators of C++ over one allocator each.
static OPERATORS: LazyLock<TracedTogether> = LazyLock::new(|| {
    let names = [
        "operators",
        "operators.static",
        "operators.jemalloc",
        "operators.jemalloc_in",
        "operators.jemalloc_static",
        "operators.tcmalloc",
        "operators.tcmalloc_in",
        "operators.mimalloc",
    ];
    TracedTogether::victims(&names, &[ROUNDS, "0"], RING)
});

#[test]
fn jemalloc_shared_library_with_its_extended_functions() {
    FAMILIES.assert_equals("family.jemalloc");
}

#[test]
fn jemalloc_linked_into_an_executable() {
    FAMILIES.assert_equals("family.jemalloc_in");
}

#[test]
fn jemalloc_in_a_static_executable() {
    FAMILIES.assert_equals("family.jemalloc_static");
}

#[test]
fn prefixed_jemalloc_together_with_libc_malloc() {
    FAMILIES.assert_equals("family.je");
}

#[test]
fn tcmalloc_shared_library() {
    FAMILIES.assert_equals("family.tcmalloc");
}

#[test]
fn tcmalloc_linked_into_an_executable() {
    FAMILIES.assert_equals("family.tcmalloc_in");
}

#[test]
fn mimalloc_shared_library_with_mi_functions() {
    FAMILIES.assert_equals("family.mimalloc");
}

#[test]
fn glibc_in_static_and_static_pie_executables() {
    FAMILIES.assert_equals("family.static");
    FAMILIES.assert_equals("family.static_pie");
}

#[test]
fn musl_in_a_static_executable() {
    FAMILIES.assert_equals("family.musl_static");
}

#[test]
fn cpp_operators_over_glibc_count_once() {
    OPERATORS.assert_equals("operators");
    OPERATORS.assert_equals("operators.static");
}

#[test]
fn cpp_operators_of_jemalloc() {
    OPERATORS.assert_equals("operators.jemalloc");
}

#[test]
fn cpp_operators_of_jemalloc_linked_into_an_executable() {
    OPERATORS.assert_equals("operators.jemalloc_in");
    OPERATORS.assert_equals("operators.jemalloc_static");
}

#[test]
fn cpp_operators_of_tcmalloc() {
    OPERATORS.assert_equals("operators.tcmalloc");
}

#[test]
fn cpp_operators_of_tcmalloc_linked_into_an_executable() {
    OPERATORS.assert_equals("operators.tcmalloc_in");
}

#[test]
fn cpp_operators_of_mimalloc() {
    OPERATORS.assert_equals("operators.mimalloc");
}

/// Traces operators that throw. `nested`: further arguments of the victim. `exceptions`: number of its exceptions.
fn assert_throwing_operators_match(nested: &[&str], exceptions: u64) {
    let names = [
        "operators",
        "operators.static",
        "operators.jemalloc",
        "operators.jemalloc_in",
        "operators.jemalloc_static",
        "operators.tcmalloc",
        "operators.tcmalloc_in",
    ];
    for name in names {
        let throws = THROWS.to_string();
        let (report, expected) = trace(name, &[&["500", throws.as_str()][..], nested].concat(), &[]);
        report.assert_nothing_lost();
        assert_eq!(report.processes.len(), 1, "{:#?}", report.processes);
        let process = &report.processes[0];
        let (traced, expected) = (process.totals, expected.totals);
        assert_eq!((traced.live_bytes, traced.live_count), (expected.live_bytes, expected.live_count), "{name}");
        // The exception object is a block too.
        assert_eq!(traced.alloc_count, expected.alloc_count + exceptions, "{name}");
        assert_eq!(traced.free_count, expected.free_count + exceptions, "{name}");
        assert_eq!(process.unmatched_frees, 0, "{name}");
    }
}

/// A uretprobe on a throwing operator would terminate the process, because the unwinder would not recognize the
/// trampoline of the uretprobe.
#[test]
fn exceptions_propagate_through_probed_operators() {
    assert_throwing_operators_match(&[], THROWS);
}

/// A call fails, and calls a handler with a call that fails too.
#[test]
fn failed_calls_inside_failed_calls_are_interrupted() {
    assert_throwing_operators_match(&["nested"], 2 * THROWS);
}

#[test]
fn stack_of_a_throwing_operator_starts_at_its_caller() {
    for name in ["operators", "operators.jemalloc", "operators.tcmalloc_in"] {
        let (report, expected) = trace(name, &["300", "0"], &[]);
        let caller = |name: &str| name.contains("take");
        let taken = report.stacks.iter().filter(|stack| stack.names().last().is_some_and(|name| caller(name)));
        let count: u64 = taken.map(|stack| stack.totals.alloc_count).sum();
        // With libstdc++'s operators, the allocator is malloc, and the operator is a frame of the stack.
        if name != "operators" {
            assert_eq!(count, expected.totals.alloc_count, "{name}: {:?}", report.leaves());
        }
        assert!(report.stacks.iter().all(|stack| stack.names().iter().any(|name| caller(name))), "{name}");
    }
}

#[test]
fn sizes_of_whole_pages_are_those_requested() {
    for name in ["whole_pages", "whole_pages.tcmalloc", "whole_pages.mimalloc"] {
        assert_exact(name, &[], &[]);
    }
}

#[test]
fn jemalloc_in_rust_together_with_libc_malloc() {
    assert_exact("victim-rust-jemalloc", &[], &[]);
}

#[test]
fn mimalloc_in_rust_together_with_libc_malloc() {
    assert_exact("victim-rust-mimalloc", &[], &[]);
}

#[test]
fn custom_global_allocator_in_rust() {
    assert_exact("victim-rust-own", &[], &[]);
}

#[test]
fn methods_of_an_allocator_in_rust_that_are_called_directly() {
    assert_exact("rust_direct", &[], &[]);
}

#[test]
fn allocator_option_traces_functions_with_a_prefix() {
    assert_exact("family.prefixed", &["500"], &["--allocator", "libprefixed.so:mine_"]);
}

#[test]
fn hook_option_traces_a_pool_together_with_malloc() {
    assert_exact("pool", &[], &["--hook", POOL]);
}

#[test]
fn stripped_static_executable_is_refused_with_the_reason() {
    let victim = Victim::start(Command::new(victim::path("family.stripped")).arg("10"));
    let outcome = Trace::victim(&victim).run();
    assert_ne!(outcome.code, Some(0));
    assert!(outcome.stderr.contains("statically linked and stripped"), "{}", outcome.stderr);
}

#[test]
fn command_with_linked_jemalloc_is_traced_from_its_first_call() {
    let outcome = Trace::command([victim::path("family.jemalloc_static").as_os_str(), "200".as_ref()]);
    let mut tracer = outcome.option("--ring-size").option("64MiB").start();
    let process = tracer.process();
    let ready = process.read_line();
    assert!(ready.starts_with("ready "), "{ready}");
    process.write_line("");
    let expected: VictimTotals = serde_json::from_str(&process.read_line()).expect("the totals are valid JSON");
    process.write_line("");
    let report = tracer.wait().report();
    report.assert_nothing_lost();
    // The expected totals lack one block that was allocated before the barrier. Blocks allocated before main belong to
    // the C library.
    let by_main = report.stacks.iter().filter(|stack| stack.names().contains(&"main"));
    assert_eq!(by_main.map(|stack| stack.totals.alloc_count).sum::<u64>(), expected.totals.alloc_count + 1);
    assert!(report.totals.alloc_count > expected.totals.alloc_count + 1);
}
