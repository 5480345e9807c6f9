//! Compares the findings of `memtrace doctor` with other tools.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use memtrace_common::vocabulary::{FUNCTIONS, Naming};
use memtrace_tests::doctor;
use memtrace_tests::report::doctor::DoctorReport;
use memtrace_tests::{Scratch, Trace, Victim, breakpoints, process, tracer, victim};

const NO_SUCH_PROCESS: i32 = 3;
const NOT_PERMITTED: i32 = 4;
const NO_ALLOCATOR: i32 = 6;
const UNTRACEABLE: i32 = 8;

const NOBODY: [&str; 6] = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];

/// Runs doctor, and asserts that standard error is empty.
fn doctor_through(before: &[&str], binary: &Path, pid: Option<u32>) -> DoctorReport {
    let output = doctor::run_through(before, binary, pid);
    assert_eq!(output.stderr, "");
    output
}

fn doctor(pid: u32) -> DoctorReport {
    doctor_through(&[], &tracer::binary(), Some(pid))
}

/// Returns the path of the mapped file of process `pid` with this suffix.
fn mapped(pid: u32, end: &str) -> String {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the victim runs");
    let path = maps.split_whitespace().find(|word| word.ends_with(end));
    path.expect("the victim has mapped it").to_owned()
}

/// Returns the names of the standard functions that memtrace hooks in a C library.
fn standard() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().filter(|function| function.naming == Naming::Standard).map(|function| function.name)
}

/// Returns the standard functions that the library defines according to `nm`.
fn defined_by_nm(library: &str) -> BTreeSet<String> {
    let symbols = process::run(Command::new("nm").args(["--dynamic", "--defined-only", library]));
    let names = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)?.split('@').next());
    let ours = names.filter(|name| standard().any(|function| function == *name));
    ours.map(str::to_owned).collect()
}

#[test]
fn allocator_lists_every_hooked_function_that_nm_shows() {
    let glibc = ("exact", "/libc.so.6", "allocator glibc");
    let musl = ("exact.musl", "/libc.so", "allocator musl");
    for (name, library, subject) in [glibc, musl] {
        let victim = victim::start(name);
        let library = mapped(victim.pid(), library);
        let output = doctor(victim.pid());
        assert_eq!(output.code, Some(0), "{output:#?}");
        let [hooked, lacking] = output.findings_on(subject)[..] else { panic!("{output:#?}") };
        let names = hooked.detail.strip_prefix(&format!("{library}: ")).expect("the library's path comes first");
        let hooked_names: BTreeSet<_> = names.split(", ").flat_map(|one| one.split(" = ")).map(str::to_owned).collect();
        assert_eq!((&*hooked.verdict, &hooked_names), ("ok", &defined_by_nm(&library)));
        let names = lacking.detail.strip_prefix("does not define ").expect("a list of functions");
        let lacking_names: BTreeSet<_> = names.split(", ").map(str::to_owned).collect();
        let all: BTreeSet<_> = standard().map(str::to_owned).collect();
        assert_eq!(lacking_names, &all - &hooked_names);
    }
}

#[test]
fn debug_information_of_a_target_is_reported() {
    let victim = victim::start("exact");
    let output = doctor(victim.pid());
    // Victims are compiled with -g.
    let expected = format!("{}: in the file itself", victim::path("exact").display());
    assert!(
        output
            .findings_on("debug information")
            .iter()
            .any(|finding| finding.verdict == "ok" && finding.detail == expected)
    );
}

#[test]
fn doctor_leaves_no_breakpoints_in_the_target() {
    let mut victim = victim::start_with("steady", &["100"]);
    assert_eq!(doctor(victim.pid()).code, Some(0));
    assert_eq!(breakpoints::list(victim.pid()), [""; 0]);
    victim.work();
    victim.finish();
}

#[test]
fn preloaded_wrapper_is_listed_with_the_allocator() {
    let shim = victim::path("libcount_shim.so");
    let scratch = Scratch::new();
    let mut command = Command::new(victim::path("steady"));
    command.arg("100").env("LD_PRELOAD", &shim).env("COUNT_SHIM_FILE", scratch.join("ledger"));
    let victim = Victim::start(&mut command);
    let output = doctor(victim.pid());
    assert_eq!(output.code, Some(0), "{output:#?}");
    let shim_finding = &output.findings_on("allocator libcount_shim.so")[0];
    assert_eq!(shim_finding.verdict, "ok");
    assert!(shim_finding.detail.starts_with(shim.to_str().expect("the path is UTF-8")), "{shim_finding:?}");
    assert_eq!(output.findings_on("allocator glibc")[0].verdict, "ok");
}

#[test]
fn every_allocator_is_listed_with_its_functions() {
    let victim = Victim::start(Command::new(victim::path("operators.jemalloc")).args(["1", "0"]));
    let output = doctor(victim.pid());
    assert_eq!(output.code, Some(0), "{output:#?}");
    let hooked = &output.findings_on("allocator jemalloc")[0];
    assert_eq!(hooked.verdict, "ok");
    let names: Vec<_> = hooked.detail.split(": ").nth(1).unwrap_or_default().split(", ").collect();
    for name in ["malloc", "free", "mallocx", "rallocx", "xallocx", "dallocx", "sdallocx"] {
        assert!(names.contains(&name), "{name}: {hooked:?}");
    }
    for name in ["operator new(size)", "operator new(size, align)", "operator delete(block, size)"] {
        assert!(hooked.detail.contains(name), "{name}: {hooked:?}");
    }
    // Forwarding functions are marked as such.
    let passed_on =
        output.findings_on("allocator jemalloc").into_iter().find(|finding| finding.detail.contains("_ZdlPv,"));
    assert!(
        passed_on.is_some_and(|finding| finding.detail.contains("only calls another hooked function")),
        "{output:#?}"
    );
    let allocators: Vec<_> =
        output.findings.iter().filter(|finding| finding.subject.starts_with("allocator ")).collect();
    let others = allocators
        .iter()
        .filter(|finding| !finding.subject.ends_with("jemalloc") && !finding.subject.ends_with("glibc"));
    assert_eq!(others.count(), 0, "libstdc++ wraps malloc: {allocators:#?}");
}

#[test]
fn stripped_static_executable_fails_with_inspected_files() {
    let victim = Victim::start(Command::new(victim::path("family.stripped")).arg("1"));
    let output = doctor(victim.pid());
    assert_eq!(output.code, Some(NO_ALLOCATOR), "{output:#?}");
    assert_eq!(output.subjects("fail"), ["allocator"]);
    assert!(output.findings_on("allocator")[0].detail.contains("statically linked"), "{output:#?}");
    let path = victim::path("family.stripped");
    let examined = output.findings_on("examined");
    assert!(examined.iter().any(|finding| finding.detail.starts_with(&format!("{}: ", path.display()))), "{output:#?}");
}

#[test]
fn untraceable_pid_fails_with_the_exit_code_of_a_run() {
    let threads = victim::start("threads");
    let tasks = fs::read_dir(format!("/proc/{}/task", threads.pid())).expect("the victim runs");
    let names = tasks.map(|task| task.expect("a task").file_name().into_string().expect("a number"));
    let thread = names.map(|name| name.parse().expect("a number")).find(|&id: &u32| id != threads.pid());
    let thread = thread.expect("the victim has threads");
    let pid_max = fs::read_to_string("/proc/sys/kernel/pid_max").expect("pid_max is readable");
    let unused = pid_max.trim().parse().expect("a number");
    for (pid, code) in [(thread, UNTRACEABLE), (2, UNTRACEABLE), (unused, NO_SUCH_PROCESS)] {
        let output = doctor(pid);
        assert_eq!((output.code, output.subjects("fail")), (Some(code), vec![format!("process {pid}").as_str()]));
    }
    let remedy = format!("give --pid {}", threads.pid());
    assert_eq!(doctor(thread).findings_on(&format!("process {thread}"))[0].remedy.as_deref(), Some(&*remedy));
}

#[test]
fn missing_capabilities_are_named_and_untried_checks_warn() {
    let scratch = Scratch::new();
    let victim = victim::start_with("steady", &["100"]);
    let output = doctor_through(&NOBODY, &scratch.copy(tracer::binary(), "memtrace"), Some(victim.pid()));
    assert_eq!(output.code, Some(NOT_PERMITTED), "{output:#?}");
    let process = format!("process {}", victim.pid());
    assert_eq!(output.subjects("fail"), ["CAP_BPF", "CAP_PERFMON", &process]);
    assert!(output.findings_on(&process)[0].detail.contains("CAP_SYS_PTRACE"), "{output:#?}");
    for (subject, missing) in [
        ("ring buffers", "CAP_BPF"),
        ("BPF programs", "CAP_BPF and CAP_PERFMON"),
        ("probes", "CAP_BPF and CAP_PERFMON"),
        ("perf mmap events", "CAP_PERFMON"),
    ] {
        let [finding] = output.findings_on(subject)[..] else { panic!("{subject}: {output:#?}") };
        assert_eq!(finding.verdict, "warn");
        assert_eq!(finding.detail, format!("not known: the trial needs {missing}"));
    }
    for finding in output.findings.iter().filter(|finding| finding.subject.starts_with("CAP_")) {
        let remedy = finding.remedy.as_ref().expect("a missing capability has a remedy");
        assert!(remedy.contains("sudo") && remedy.contains("setcap"), "{finding:?}");
    }
}

#[test]
fn capabilities_named_by_the_remedy_suffice_to_trace() {
    let scratch = Scratch::new();
    let copy = scratch.copy(tracer::binary(), "memtrace");
    let output = doctor_through(&NOBODY, &copy, None);
    let remedy = output.findings_on("CAP_BPF")[0].remedy.clone().expect("a missing capability has a remedy");
    let named = remedy.split("setcap ").nth(1).and_then(|rest| rest.split("=ep ").next()).expect("a call of setcap");
    let given = named.split(',').map(|name| name.replace("cap_", "+")).collect::<Vec<_>>().join(",");
    let (inheritable, ambient) = (format!("--inh-caps={given}"), format!("--ambient-caps={given}"));
    let before = [&NOBODY[..], &[&inheritable, &ambient]].concat();

    let mut victim = victim::start_with("steady", &["100"]);
    let output = doctor_through(&before, &copy, Some(victim.pid()));
    assert_eq!((output.code, output.subjects("fail")), (Some(0), vec![]));
    let tracer = Trace::victim(&victim).binary(&copy).wrapped_in(&before).start();
    let expected = victim.work();
    tracer.stop().report().assert_equals(&expected);
    victim.finish();
}
