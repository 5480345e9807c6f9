//! Stacks from C code to the goroutine that called it.

use std::fs;
use std::path::Path;
use std::process::Command;

use memtrace_tests::process::run;
use memtrace_tests::{Scratch, Trace, Victim};

#[test]
fn stacks_of_cgo_lead_to_the_goroutine() {
    let scratch = Scratch::new();
    let victims = Path::new(env!("CARGO_MANIFEST_DIR")).join("victims");
    for name in ["cgo.go", "ledger.c", "ledger.h"] {
        fs::copy(victims.join(name), scratch.join(name)).expect("the scratch directory is writable");
    }
    let mut build = Command::new("go");
    build.args(["build", "-o", "cgo"]).current_dir(&*scratch).env("GO111MODULE", "off").env("CGO_ENABLED", "1");
    run(build.env("GOCACHE", scratch.join("cache")).env("GOPATH", scratch.join("path")));
    let mut victim = Victim::start(&mut Command::new(scratch.join("cgo")));
    let tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    let report = tracer.stop().report();
    victim.finish();
    // The C library allocates too, when the runtime of Go starts threads.
    let of_victim = report.stacks.iter().filter(|stack| stack.names().contains(&"allocate"));
    let mut found: Vec<_> = of_victim
        .map(|stack| {
            let names = stack.names();
            assert!(names[0].starts_with("runtime.goexit"), "{names:?}");
            // The go statement adds a function with a name that depends on the compiler.
            let is_own = |name: &&str| name.starts_with("main.") && !name.starts_with("main.main.");
            let functions: Vec<String> = names.into_iter().filter(is_own).map(String::from).collect();
            (functions, stack.end.to_string(), stack.totals.alloc_count)
        })
        .collect();
    found.sort_unstable();
    let chain = |first: &str| [first, "main.outer", "main.inner", "main._Cfunc_allocate"].map(String::from).to_vec();
    let complete = |first| (chain(first), String::from("generated"), 30);
    assert_eq!(found, [complete("main.main"), complete("main.work")]);
    assert_eq!(expected.totals.alloc_count, 60);
}
