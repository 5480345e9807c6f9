//! Common tools, traced from their first instruction: nearly every allocation has a complete stack.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use memtrace_tests::process::run;
use memtrace_tests::{Report, Scratch, Trace};

const SHARE: f64 = 0.995;

/// Number of allocations by stack end.
type Ends = BTreeMap<String, u64>;

fn ends(report: &Report) -> Ends {
    let mut ends = Ends::new();
    for stack in &report.stacks {
        *ends.entry(stack.end.to_string()).or_default() += stack.totals.alloc_count;
    }
    ends.retain(|_, count| *count > 0);
    ends
}

/// Returns the share of allocations with a stack that reaches the outermost frame.
fn complete(ends: &Ends) -> f64 {
    let reached: u64 = ["complete", "generated"].iter().filter_map(|end| ends.get(*end)).sum();
    reached as f64 / ends.values().sum::<u64>() as f64
}

/// Returns the commands to trace. Their files are created in `directory`.
fn commands(directory: &Path) -> Vec<Vec<OsString>> {
    let source = directory.join("program.cpp");
    let program =
        "#include <vector>\nint main() { std::vector<int> numbers; numbers.push_back(1); return numbers[0]; }\n";
    fs::write(&source, program).expect("the scratch directory is writable");
    let preprocessed = directory.join("program.ii");
    run(Command::new("g++").arg("-E").arg(&source).arg("-o").arg(&preprocessed));
    let compiler = run(Command::new("g++").arg("-print-prog-name=cc1plus"));

    let repository = directory.join("repository");
    run(Command::new("git").args(["init", "--quiet"]).arg(&repository));
    for number in 0..60 {
        let text = format!("{number}\n").repeat(200);
        fs::write(repository.join(format!("file{number}")), text).expect("the scratch directory is writable");
    }
    run(Command::new("git").arg("-C").arg(&repository).args(["add", "."]));

    let python =
        "import ast, inspect, json\nfor module in (ast, inspect, json): ast.dump(ast.parse(inspect.getsource(module)))";
    let perl = "use strict; use Data::Dumper; my %seen; for my $i (1 .. 900) { push @{ $seen{$i % 97} }, { name => \"n$i\", \
                parts => [split //, $i * 7919] } } print length(Dumper(\\%seen)), \"\\n\" =~ s/\\s//r;";
    let sql = "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) insert \
               into t select i, printf('%08x', i * 31 % 997) from n; create index x on t(b); \
               select group_concat(b) from t where a in (select a from t order by b limit 90) group by a % 7;";
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    vec![
        [
            words(&[compiler.trim(), "-quiet", "-O2", "-fpreprocessed"]),
            vec![preprocessed.into()],
            words(&["-o", "/dev/null"]),
        ]
        .concat(),
        words(&["/usr/bin/python3", "-c", python]),
        words(&["/usr/bin/perl", "-e", perl]),
        [words(&["git", "-C"]), vec![repository.into()], words(&["status", "--short"])].concat(),
        words(&["/usr/bin/sqlite3", ":memory:", sql]),
    ]
}

/// Traces a compiler driver, which starts the compiler and the assembler. `cache`: directory for the cache of unwind
/// tables.
fn trace_driver(cache: &Path, source: &Path) -> Ends {
    let command = ["g++".as_ref(), "-c".as_ref(), source.as_os_str(), "-o".as_ref(), "/dev/null".as_ref()];
    let trace = Trace::command(command).options(&["--max-depth", "256", "--ring-size", "64MiB"]);
    let report = trace.environment("XDG_CACHE_HOME", cache).run().report();
    report.assert_nothing_lost();
    let comms: Vec<_> = report.processes.iter().map(|process| &*process.comm).collect();
    assert!(["g++", "cc1plus", "as"].iter().all(|comm| comms.contains(comm)), "{comms:?}");
    ends(&report)
}

#[test]
fn runs_of_a_compiler_driver_have_complete_stacks() {
    let scratch = Scratch::new();
    // memtrace uses no cache that other users can change.
    fs::set_permissions(&*scratch, fs::Permissions::from_mode(0o755)).unwrap();
    let source = scratch.join("program.cpp");
    fs::write(&source, "#include <map>\nint main() { return std::map<int, int>{{1, 2}}.size(); }\n").unwrap();
    let cache = scratch.join("cache");
    let run = |share: f64, name: &str| {
        let ends = trace_driver(&cache, &source);
        println!("{name}: {:.3} % complete  {ends:?}", complete(&ends) * 100.0);
        assert!(complete(&ends) >= share, "{name}: {ends:?}");
    };
    // On a loaded machine, an unoptimized memtrace can take longer for an index than it keeps stack copies.
    run(0.0, "first run");
    run(0.999, "second run");
    // This is the state after a first run that ended before the tables were stored.
    let entries = fs::read_dir(cache.join("memtrace")).unwrap().map(|entry| entry.unwrap().path());
    let tables: Vec<_> = entries.filter(|path| path.extension().is_none_or(|suffix| suffix != "objects")).collect();
    assert!(tables.len() > 5, "{tables:?}");
    tables.into_iter().for_each(|table| fs::remove_file(table).unwrap());
    run(0.999, "second run without stored tables");
}

#[test]
fn nearly_all_stacks_of_common_tools_are_complete() {
    let scratch = Scratch::new();
    let mut all = Ends::new();
    for command in commands(&scratch) {
        let report = Trace::command(command).options(&["--max-depth", "256", "--ring-size", "64MiB"]).run().report();
        report.assert_nothing_lost();
        let ends = ends(&report);
        let last = report.processes.last().expect("a process is reported");
        println!(
            "{:>10}: {:.2} % complete of {:>7}  {ends:?}",
            last.comm,
            complete(&ends) * 100.0,
            ends.values().sum::<u64>()
        );
        for (end, count) in ends {
            *all.entry(end).or_default() += count;
        }
    }
    println!("{:>10}: {:.2} % complete of {:>7}", "all", complete(&all) * 100.0, all.values().sum::<u64>());
    assert!(complete(&all) >= SHARE, "{all:?}");
}
