//! Targets in their own mount namespace, with a C library on another inode than the host's.

use std::path::{Path, PathBuf};
use std::process::Command;

use memtrace_common::vocabulary::LossReason;
use memtrace_tests::{GoProfile, Report, Scratch, Trace, Victim, VictimTotals, breakpoints, process, victim};

/// Script that runs a command in its own mount namespace, on a copy of the directory that no other namespace sees.
const CONTAIN: &str = r#"mount -t tmpfs none "$0/root" && cp -a "$0/files/." "$0/root" && exec chroot "$0/root" "$@""#;

/// Script that runs a command on an overlay over the directory, as container engines do.
const OVERLAY: &str = r#"mount -t tmpfs none "$0/layer" && mkdir "$0/layer/upper" "$0/layer/work" &&
    mount -t overlay none -o "lowerdir=$0/files,upperdir=$0/layer/upper,workdir=$0/layer/work" "$0/root" &&
    exec chroot "$0/root" "$@""#;

/// A directory with executables, their libraries and the dynamic linker at their usual paths.
struct Files(Scratch);

impl Files {
    fn of(programs: &[(&Path, &str)]) -> Self {
        let scratch = Scratch::new();
        let files = scratch.join("files");
        process::run(
            Command::new("mkdir").args(["-p"]).args([scratch.join("root"), scratch.join("layer")]).arg(&files),
        );
        for (program, _) in programs {
            let libraries = process::run(Command::new("ldd").arg(program));
            let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
            for library in libraries {
                // `install` follows links, so that each copy is a separate file.
                let target = files.join(library.trim_start_matches('/'));
                process::run(Command::new("install").args(["-D", "-m", "755", library]).arg(target));
            }
        }
        let files = Self(scratch);
        for (program, name) in programs {
            files.install(program, name);
        }
        files
    }

    /// Returns the directory with a static executable.
    fn of_static(program: &Path, name: &str) -> Self {
        let files = Self::of(&[]);
        files.install(program, name);
        files
    }

    fn install(&self, program: &Path, name: &str) {
        let copy = self.0.join("files").join(&name[1..]);
        process::run(Command::new("install").args(["-m", "755"]).arg(program).arg(copy));
    }

    /// Starts a victim in a container and waits until it is ready.
    fn start(&self, program: &str) -> Victim {
        self.start_by(CONTAIN, program, &[])
    }

    fn start_by(&self, script: &str, program: &str, arguments: &[&str]) -> Victim {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(&*self.0).arg(program).args(arguments);
        Victim::start(&mut command)
    }

    /// Returns the path of the container's root directory, which is empty outside of its namespace.
    fn root(&self) -> PathBuf {
        self.0.join("root")
    }
}

/// Asserts that symbols come from the container's files and that objects have the paths of the container.
fn assert_named(report: &Report, expected: &VictimTotals, program: &str) {
    assert!(expected.sites.len() > 1);
    for site in &expected.sites {
        report.assert_site("exact.c", site);
    }
    for frame in report.stacks.iter().flat_map(|stack| &stack.frames) {
        let object = frame.object.as_deref().expect("each frame is in a mapped file");
        assert!(object == program || object.starts_with("/lib"), "{frame:?}");
        assert!(frame.name.is_some() || object != program, "{frame:?}");
    }
}

#[test]
fn pid_selects_a_process_in_a_container() {
    const PROGRAM: &str = "/mt-by-pid";
    let files = Files::of(&[(&victim::path("exact"), PROGRAM)]);
    for script in [CONTAIN, OVERLAY] {
        let mut victim = files.start_by(script, PROGRAM, &[]);
        assert!(!files.root().join("lib").exists(), "its files are seen from outside");
        let tracer = Trace::victim(&victim).start();
        let expected = victim.work();
        let report = tracer.stop().report();
        breakpoints::wait_until_removed(victim.pid());
        victim.finish();
        report.assert_equals(&expected);
        report.assert_all_end("complete");
        assert_named(&report, &expected, PROGRAM);
    }
}

#[test]
fn comm_and_exe_select_a_process_in_a_container() {
    const PROGRAM: &str = "/mt-chosen";
    let files = Files::of(&[(&victim::path("exact"), PROGRAM)]);
    for (by, script) in ["--comm", "--exe"].iter().flat_map(|by| [(*by, CONTAIN), (*by, OVERLAY)]) {
        let mut victim = files.start_by(script, PROGRAM, &[]);
        let value = if by == "--comm" { PROGRAM[1..].to_owned() } else { format!("/proc/{}/exe", victim.pid()) };
        let tracer = Trace::system_wide().options(&[by, &value]).start();
        let expected = victim.work();
        let report = tracer.stop().report();
        breakpoints::wait_until_removed(victim.pid());
        victim.finish();
        report.assert_equals(&expected);
        assert_named(&report, &expected, PROGRAM);
    }
}

#[test]
fn heap_profile_of_go_is_read_in_a_container() {
    const PROGRAM: &str = "/mt-of-go";
    let files = Files::of_static(&victim::path("go_heap"), PROGRAM);
    for script in [CONTAIN, OVERLAY] {
        // The victim writes its profiles to the root directory of the container.
        let mut victim = files.start_by(script, PROGRAM, &["16384", "/"]);
        assert!(!files.root().join(&PROGRAM[1..]).exists(), "its file is seen from outside");
        let tracer = Trace::victim(&victim).start();
        victim.process().write_line("");
        victim.process().read_line();
        let report = tracer.stop().report();
        let own = GoProfile::read(Path::new(&format!("/proc/{}/root/after", victim.pid())));
        victim.finish();
        report.assert_consistent();
        report.assert_nothing_lost();
        own.assert_held(&report, 0);
        let leaf = report.stacks_with_leaf("main.small").find_map(|stack| stack.leaf());
        let leaf = leaf.expect("the victim has blocks of main.small");
        assert_eq!(leaf.object.as_deref(), Some(PROGRAM));
        assert!(leaf.file.as_deref().is_some_and(|file| file.ends_with("go_heap.go")), "{leaf:?}");
    }
}

#[test]
fn new_process_in_a_known_container_is_traced_from_start() {
    const PROGRAM: &str = "/mt-first";
    const LATER: &str = "/mt-later";
    let files = Files::of(&[(&victim::path("exact"), PROGRAM), (&victim::path("short_lived"), LATER)]);
    let mut first = files.start(PROGRAM);
    let tracer = Trace::system_wide().options(&["--comm", &LATER[1..]]).start();
    let proc_path = |file: &str| format!("/proc/{}/{file}", first.pid());
    let mut command = Command::new("nsenter");
    command.arg(format!("--mount={}", proc_path("ns/mnt"))).arg(format!("--root={}", proc_path("root")));
    let output = process::run(command.arg("--").arg(LATER));
    let report = tracer.stop().report();
    first.work();
    first.finish();
    let expected: VictimTotals = serde_json::from_str(output.trim()).expect("the totals are valid JSON");
    report.assert_equals(&expected);
}

#[test]
fn first_process_of_a_new_container_is_counted_as_late() {
    const PROGRAM: &str = "/mt-late";
    const LATER: &str = "/mt-next";
    let files = Files::of(&[(&victim::path("exact"), PROGRAM), (&victim::path("short_lived"), LATER)]);
    let mut tracer = Trace::system_wide().options(&["--comm", &PROGRAM[1..], "--comm", &LATER[1..]]).start();
    let mut first = files.start(PROGRAM);
    // The allocator is late, because no other process maps the container's C library.
    assert!(tracer.process().wait_for_stderr_line("memtrace: process"));
    let proc_path = |file: &str| format!("/proc/{}/{file}", first.pid());
    let mut command = Command::new("nsenter");
    command.arg(format!("--mount={}", proc_path("ns/mnt"))).arg(format!("--root={}", proc_path("root")));
    let output = process::run(command.arg("--").arg(LATER));
    let expected = first.work();
    let report = tracer.stop().report_with_code(20);
    first.finish();
    report.assert_only_lost(LossReason::AllocatorLate, 1);
    let later: VictimTotals = serde_json::from_str(output.trim()).expect("the totals are valid JSON");
    let of =
        |comm: &str| report.processes.iter().find(|process| process.comm == comm).expect("the process is reported");
    assert_eq!(of(&LATER[1..]).totals, later.totals.at_exit());
    // Blocks from before the barrier are freed after it and count as unmatched.
    assert_eq!(of(&PROGRAM[1..]).totals, expected.totals);
}
