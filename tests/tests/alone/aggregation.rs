//! Groups of ended processes have the totals of their processes.

use std::collections::BTreeMap;
use std::process::Command;

use memtrace_tests::report::Blocks;
use memtrace_tests::{Cgroup, Report, Scratch, Totals, Trace, process};

/// Number of runs of each executable.
const RUNS: u64 = 3;

/// Script with executables of different lifetimes, numbers of stacks and amounts of memory. `bash` enters the cgroup
/// and is replaced, so that all other processes are in the cgroup from their start.
const SCRIPT: &str = r#"
echo $$ > "$1" && exec sh -c '
    for run in $(seq "$0"); do
        g++ -O1 -c source.cpp -o source.o && python3 -S -c "import json; json.dumps(list(range(1000)))" && ls -l /usr/bin
    done > /dev/null' "$0"
"#;

const SOURCE: &[u8] = b"
template <int N> struct Sum { static int of(const int *values) { return values[N] + Sum<N - 1>::of(values); } };
template <> struct Sum<0> { static int of(const int *values) { return values[0]; } };
int sum(const int *values) { return Sum<100>::of(values); }
";

/// Sums of the processes of an executable, which are equal in both reports.
#[derive(Debug, Default, PartialEq)]
struct Sums {
    images: u64,
    totals: Totals,
    discarded: Blocks,
    unmatched_frees: u64,
    inherited_frees: u64,
    repeated_frees: u64,
}

fn sums_by_executable(report: &Report) -> BTreeMap<String, Sums> {
    let mut all: BTreeMap<String, Sums> = BTreeMap::new();
    for entry in &report.processes {
        let sums = all.entry(entry.exe.as_deref().expect("each process has an executable").to_owned()).or_default();
        sums.images += entry.runs();
        sums.totals += entry.totals;
        sums.discarded.bytes += entry.discarded.bytes;
        sums.discarded.count += entry.discarded.count;
        sums.unmatched_frees += entry.unmatched_frees;
        sums.inherited_frees += entry.inherited_frees;
        sums.repeated_frees += entry.repeated_frees;
    }
    all.retain(|exe, _| !exe.ends_with("bash"));
    all
}

/// Both traces run at the same time and see the same processes: two runs of a compiler differ in the names of its temporary
/// files.
#[test]
fn groups_have_the_totals_of_processes_listed_one_by_one() {
    let (scratch, cgroup) = (Scratch::new(), Cgroup::new());
    scratch.write("source.cpp", SOURCE);
    let trace = |options: &[&str]| {
        let trace = Trace::system_wide().option("--cgroup").option(cgroup.path());
        trace.option("--all-stacks").options(options).start()
    };
    let run = |times: u64| {
        let mut command = Command::new("bash");
        command.args(["-c", SCRIPT, &times.to_string()]).arg(cgroup.path().join("cgroup.procs"));
        process::run(command.current_dir(&*scratch));
    };
    // A process joins its group when its stacks are complete. After this first trace, the unwind tables are in the
    // cache.
    let first = trace(&[]);
    run(1);
    drop(first.stop());
    let (single, grouped) = (trace(&["--keep-ended", "100000", "--max-depth", "0"]), trace(&["--keep-ended", "0"]));
    run(RUNS);
    let [single, grouped] = [single, grouped].map(|tracer| tracer.stop().report());
    for report in [&single, &grouped] {
        report.assert_nothing_lost();
        report.assert_consistent();
        assert_eq!(report.untraced.total.count, 0);
    }
    assert!(single.processes.iter().all(|entry| entry.group.is_none()), "each process has a row");
    // Processes that ended shortly before the end of the trace may have rows of their own in both
    // reports.
    assert!(grouped.processes.iter().any(|entry| entry.group.is_some()), "there are groups");
    let (expected, found) = (sums_by_executable(&single), sums_by_executable(&grouped));
    for program in ["cc1plus", "as", "ls"] {
        let of_program = |exe: &str| exe.rsplit(['/', '-']).next() == Some(program);
        let sums = expected.iter().find(|(exe, _)| of_program(exe)).map(|(_, sums)| sums).expect("it was traced");
        assert_eq!(sums.images, RUNS, "{program}");
        assert!(sums.totals.alloc_count > 0, "{program}");
    }
    assert_eq!(found, expected);
}
