//! Conditions that memtrace meets when it runs for weeks: reused pids, many processes, transient cgroups, upgraded
//! libraries, changes of the clock, rotated files.

mod long;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use memtrace_common::vocabulary::LossReason;
use memtrace_tests::pids::{self, SmallestPidMax};
use memtrace_tests::wall_clock::WallClock;
use memtrace_tests::{Cgroup, Report, Scratch, Totals, Trace, Victim, VictimTotals, kernel, process, victim};

/// Returns the totals that `short_lived` prints, with its live blocks held at exit.
fn totals_of(child: Child) -> Totals {
    let output = child.wait_with_output().expect("the victim exits");
    let printed: VictimTotals = serde_json::from_slice(&output.stdout).expect("the totals are valid JSON");
    printed.totals.at_exit()
}

/// Starts an executable. If no pid is free, tries again with pids from `first` on.
fn start_with_a_pid_from(first: u32, command: &mut Command) -> Child {
    let is_refused = |error: &io::Error| error.kind() == ErrorKind::WouldBlock;
    let mut started = command.stdout(Stdio::piped()).spawn();
    for _ in 0..1000 {
        if started.as_ref().err().is_none_or(|error| !is_refused(error)) {
            break;
        }
        pids::continue_at(first);
        started = command.spawn();
    }
    started.expect("a pid is free, and the program is executable")
}

/// The pids wrap around after a few processes. In a guest, `pid_max` has this effect too.
#[test]
fn processes_that_reuse_a_pid_have_separate_totals() {
    const RUNS: usize = 100;
    const PIDS: usize = 10;
    const FIRST: u32 = 280;
    let scratch = Scratch::new();
    let program = scratch.copy(victim::path("short_lived"), "mt-reused-pid");
    let tracer = Trace::system_wide().options(&["--comm", "mt-reused-pid"]).start();
    let limit = kernel::is_guest().then(SmallestPidMax::new);
    let mut expected: BTreeMap<u32, Vec<Totals>> = BTreeMap::new();
    for run in 0..RUNS {
        if run % PIDS == 0 {
            pids::continue_at(FIRST);
        }
        let child = start_with_a_pid_from(FIRST, &mut Command::new(&program));
        expected.entry(child.id()).or_default().push(totals_of(child));
    }
    drop(limit);
    let report = tracer.stop().report();
    assert!(expected.values().any(|runs| runs.len() >= RUNS / PIDS / 2), "the pids were not reused: {expected:?}");
    report.assert_nothing_lost();
    report.assert_consistent();
    let own = |pid| report.entries_of(pid).into_iter().filter(|entry| entry.comm == "mt-reused-pid");
    for (&pid, expected) in &expected {
        let found: Vec<Totals> = own(pid).map(|entry| entry.totals).collect();
        assert_eq!((found.len(), &found), (expected.len(), expected), "pid {pid}");
    }
    // Each process has its own load addresses. With the mappings of another process, a stack would have no function of
    // the executable.
    for stack in &report.stacks {
        let names = stack.names_in(&program);
        assert!(names.ends_with(&["keep"]), "{stack:#?}");
    }
}

/// A package manager replaces a library by renaming a new file over it. The old file stays mapped until the library is
/// closed.
#[test]
fn replaced_library_keeps_its_symbols() {
    let scratch = Scratch::new();
    let library = scratch.copy(victim::path("libone.so"), "libupgraded.so");
    let upgrade = scratch.copy(victim::path("libother.so"), "libupgraded.so.new");
    let mut victim = Victim::start(Command::new(victim::path("plugins")).args([&library, &library]).arg("unload"));
    let mut tracer = Trace::victim(&victim).option("-vv").start();
    victim.process().write_line("");
    assert_eq!(victim.process().read_line(), "loaded");
    tracer.wait_for_table(&library);
    fs::rename(&upgrade, &library).expect("the library can be replaced");
    victim.process().write_line("");
    assert_eq!(victim.process().read_line(), "loaded");
    tracer.wait_for_table(&library);
    victim.process().write_line("");
    victim.read_totals();
    victim.finish();
    let report = tracer.wait().report();
    report.assert_nothing_lost();
    let chain = |size: u64| {
        let stacks = report.stacks.iter().filter(|stack| stack.totals.alloc_bytes == stack.totals.alloc_count * size);
        let chains: Vec<_> = stacks.map(|stack| (&*stack.end, stack.names_in(&library))).collect();
        chains
    };
    assert_eq!(chain(1001), [("complete", [&["take"][..], &["one_descend"; 4], &["one_leaf"]].concat())]);
    assert_eq!(chain(2002), [("complete", [&["take"][..], &["other_descend"; 7], &["other_leaf"]].concat())]);
}

/// Returns the files in `directory` that a process has open. Deleted files have the kernel's
/// suffix.
fn open_files_in(directory: &Path, pid: u32) -> Vec<String> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs and the test runs as root");
    let links = descriptors.filter_map(|descriptor| fs::read_link(descriptor.ok()?.path()).ok());
    links.filter(|link| link.starts_with(directory)).map(|link| link.to_string_lossy().into_owned()).collect()
}

fn wait_for_open_files(directory: &Path, pid: u32, is_reached: impl Fn(&[String]) -> bool) -> Vec<String> {
    let deadline = Instant::now() + process::TIMEOUT;
    loop {
        let files = open_files_in(directory, pid);
        if is_reached(&files) {
            return files;
        }
        assert!(Instant::now() < deadline, "{files:#?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// With 512 descriptors, memtrace has at most 256 object files open. Up to an eighth of them may be deleted files. memtrace
/// can open the same number of files before it looks for deleted files again.
#[test]
fn deleted_executables_do_not_use_up_descriptors() {
    const RUNS: usize = 140;
    const BATCH: usize = 20;
    const MOST: usize = 2 * 256 / 8 + 2 * BATCH;
    let scratch = Scratch::new();
    let path = |run: usize| scratch.path(&format!("{run}/mt-deleted"));
    let trace = Trace::system_wide().options(&["--comm", "mt-deleted", "--all-stacks"]);
    let mut tracer = trace.wrapped_in(&["prlimit", "--nofile=512:512"]).start();
    let pid = tracer.process().pid();
    for batch in 0..RUNS / BATCH {
        let runs = batch * BATCH..(batch + 1) * BATCH;
        for run in runs.clone() {
            fs::create_dir(scratch.path(&run.to_string())).expect("the scratch directory is writable");
            fs::copy(victim::path("short_lived"), path(run)).expect("the victim is readable");
            totals_of(Command::new(path(run)).stdout(Stdio::piped()).spawn().expect("the copy is executable"));
        }
        let is_open = |files: &[String], run| files.contains(&path(run).to_string_lossy().into_owned());
        wait_for_open_files(&scratch.path(""), pid, |files| runs.clone().all(|run| is_open(files, run)));
        runs.for_each(|run| fs::remove_file(path(run)).expect("the copy exists"));
    }
    wait_for_open_files(&scratch.path(""), pid, |files| files.len() <= MOST);
    let report = tracer.stop().report();
    report.assert_nothing_lost();
    let mut names: BTreeMap<&str, Vec<Result<&str, &str>>> = BTreeMap::new();
    for frame in report.stacks.iter().flat_map(|stack| &stack.frames) {
        if let Some(object) = frame.object.as_deref().filter(|object| object.ends_with("/mt-deleted")) {
            let name = frame.name.as_deref().ok_or(frame.unnamed.as_deref().unwrap_or_default());
            names.entry(object).or_default().push(name);
        }
    }
    assert_eq!(names.len(), RUNS);
    let (named, closed): (Vec<_>, Vec<_>) = names.values().partition(|names| names.contains(&Ok("keep")));
    let reason = "the object was deleted while too many deleted files were open";
    assert!(closed.iter().all(|names| names.iter().all(|name| *name == Err(reason))), "{closed:#?}");
    assert!((1..=MOST).contains(&named.len()), "{} of {RUNS} have names", named.len());
    let note = format!("the functions of {} deleted objects have no names", closed.len());
    assert!(report.notes.iter().any(|line| line.starts_with(&note)), "{:#?}", report.notes);
}

/// Returns the path of the C library of this process.
fn libc() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").expect("the mappings are readable");
    let mut paths = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    paths.find(|path| path.ends_with("/libc.so.6")).expect("the tests use glibc").into()
}

/// Replaces the C library of an executable several times. After each replacement, starts some processes at once, and
/// one after memtrace has seen the library. Each process starts as a shell, which maps the library too, and then executes
/// the victim. Each process must be traced exactly, or counted as late.
fn assert_upgrades_are_traced(cgroup: &Cgroup, filter: &[&OsStr]) {
    const UPGRADES: usize = 5;
    const AT_ONCE: usize = 4;
    let scratch = Scratch::new();
    let program = scratch.copy(victim::path("short_lived"), "mt-upgraded");
    let libraries = scratch.subdirectory("lib");
    let library = libraries.join("libc.so.6");
    let script = format!("echo $$ > {}/cgroup.procs && exec {}", cgroup.path().display(), program.display());
    let run = || {
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env("LD_LIBRARY_PATH", &libraries).stdout(Stdio::piped());
        let child = command.spawn().expect("sh is installed");
        (child.id(), totals_of(child))
    };
    let mut tracer = filter.iter().fold(Trace::system_wide().option("-vv"), Trace::option).start();
    let (mut at_once, mut later) = (Vec::new(), Vec::new());
    for _ in 0..UPGRADES {
        fs::rename(scratch.copy(libc(), "upgrade"), &library).expect("the library can be replaced");
        at_once.extend((0..AT_ONCE).map(|_| run()));
        // Each copy is probed once, possibly for an exited process of the copy before it: both copies have the same
        // build ID.
        let pids: Vec<u32> = at_once.iter().chain(&later).map(|&(pid, _)| pid).collect();
        tracer.wait_for_probes(&pids);
        later.push(run());
    }
    let outcome = tracer.stop();
    let report = outcome.report_with_code(20);
    report.assert_consistent();
    let late = report.losses[LossReason::AllocatorLate.name()];
    report.assert_only_lost(LossReason::AllocatorLate, late);
    let is_exact = |&(pid, totals): &(u32, Totals)| {
        let mut entries = report.entries_of(pid).into_iter().filter(|entry| entry.comm == "mt-upgraded");
        entries.any(|entry| entry.totals == totals)
    };
    assert!(later.iter().all(is_exact), "{:#?}", report.processes);
    let inexact = at_once.iter().filter(|run| !is_exact(run)).count() as u64;
    // A shell can be late too. After the next upgrade, memtrace may read the recorded mappings of an exited process. It then
    // counts the process for the next copy, which has the same build ID.
    let most = 2 * (at_once.len() + later.len()) as u64;
    assert!((inexact..=most).contains(&late), "{inexact} processes are incomplete, {late} are late");
    assert!(late >= UPGRADES as u64, "the first process maps the library before memtrace can probe it");
}

#[test]
fn programs_of_an_upgraded_libc_are_exact_or_late() {
    assert_upgrades_are_traced(&Cgroup::new(), &["--comm".as_ref(), "mt-upgraded".as_ref()]);
}

/// The cgroup of a process that has exited is known later than its mappings.
#[test]
fn programs_of_an_upgraded_libc_in_a_cgroup_are_exact_or_late() {
    let cgroup = Cgroup::new();
    assert_upgrades_are_traced(&cgroup, &["--cgroup".as_ref(), cgroup.path().as_os_str()]);
}

/// The test changes the clock of the machine only in a guest.
#[test]
fn change_of_the_clock_does_not_change_durations() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let mut victim = victim::start_with("steady", &["300"]);
    let start = Instant::now();
    let tracer = Trace::victim(&victim).start();
    let first = victim.work();
    let change = kernel::is_guest().then(|| WallClock::forward(DAY));
    let second = victim.work();
    drop(change);
    victim.process().signal(libc::SIGKILL);
    let report = tracer.wait().report();
    let elapsed = start.elapsed().as_secs_f64();
    report.assert_nothing_lost();
    assert_eq!(report.totals, second.totals.at_exit());
    assert!(second.totals.alloc_count > first.totals.alloc_count);
    let [process] = &report.processes[..] else { panic!("not one process: {:#?}", report.processes) };
    let ended_s = process.ended_s.expect("it has ended");
    for seconds in [report.duration_s, process.traced_s, ended_s] {
        assert!((0.0..elapsed).contains(&seconds), "{seconds} of {elapsed} s");
    }
}

/// A container can have its own monotonic clock. BPF programs and perf events use the kernel's
/// clock.
#[test]
fn trace_in_a_time_namespace_is_exact() {
    let program = victim::path("short_lived");
    let outcome =
        Trace::command([&program]).wrapped_in(&["unshare", "--time", "--fork", "--monotonic", "100000"]).run();
    let report = outcome.report();
    let expected: VictimTotals = serde_json::from_str(outcome.stdout.trim()).expect("the totals are valid JSON");
    report.assert_nothing_lost();
    assert_eq!(report.totals, expected.totals.at_exit());
    let [process] = &report.processes[..] else { panic!("not one process: {:#?}", report.processes) };
    assert_eq!(process.comm, "short_lived");
    let ended_s = process.ended_s.expect("it has ended");
    assert!(ended_s > 0.0 && ended_s <= report.duration_s + 0.002, "{ended_s} of {}", report.duration_s);
    assert!(report.stacks.iter().all(|stack| stack.names_in(&program).ends_with(&["keep"])), "{:#?}", report.stacks);
}

/// Returns the capabilities of the systemd unit in the guide, as setpriv(1) expects them.
fn capabilities_of_the_unit(setting: &str) -> String {
    let unit = include_str!("../../../docs/guide/memtrace.service");
    let names = unit.lines().find_map(|line| line.strip_prefix(setting)).expect("the unit has the setting");
    let names = names.split_whitespace().map(|name| name.strip_prefix("CAP_").expect("a capability").to_lowercase());
    names.fold(String::from("-all"), |all, name| format!("{all},+{name}"))
}

#[test]
fn capabilities_of_the_systemd_unit_suffice() {
    let scratch = Scratch::new();
    let program = scratch.copy(victim::path("exact"), "mt-other-user");
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let mut victim = Victim::start(Command::new("setpriv").args(nobody).arg(program));
    let (bounding, ambient) =
        (capabilities_of_the_unit("CapabilityBoundingSet="), capabilities_of_the_unit("AmbientCapabilities="));
    assert_eq!(bounding, ambient);
    let wrapper = ["setpriv", "--no-new-privs", "--bounding-set", &bounding, "--inh-caps", &ambient];
    let tracer = Trace::system_wide().options(&["--comm", "mt-other-user"]).wrapped_in(&wrapper).start();
    let expected = victim.work();
    let report = tracer.stop().report();
    victim.finish();
    report.assert_equals(&expected);
    for site in &expected.sites {
        report.assert_site("exact.c", site);
    }
}

/// Rotation renames the earlier report and may create an empty file in its place.
#[test]
fn rotated_report_is_kept() {
    let scratch = Scratch::new();
    let path = scratch.write("report.json", b"earlier");
    let rotated = scratch.path("report.json.1");
    let mut victim = victim::start("exact");
    let tracer = Trace::victim(&victim).option("-o").option(&path).start();
    let expected = victim.work();
    fs::rename(&path, &rotated).expect("the file can be renamed");
    fs::write(&path, "").expect("the scratch directory is writable");
    tracer.stop().assert_code(0);
    victim.finish();
    assert_eq!(fs::read_to_string(&rotated).expect("the earlier report exists"), "earlier");
    let text = fs::read_to_string(&path).expect("the report exists");
    Report::read(&text).expect("it is a report").assert_equals(&expected);
}
