//! Hostile files and links of a process cost at most the names of this process.

mod alone;
mod long;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use memtrace_tests::process::{Process, children, run};
use memtrace_tests::{MemoryCgroup, Report, Scratch, Trace, Victim, VictimTotals, victim};

/// A user without privileges. Files of users other than root can change during the trace.
const USER: u32 = 65534;

/// Time limit for a complete report, even on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Returns a copy of the victim without debug information and build ID.
fn stripped(scratch: &Scratch, name: &str) -> PathBuf {
    let path = scratch.join(name);
    let options = ["--strip-debug", "--remove-section=.note.gnu.build-id"];
    run(Command::new("objcopy").args(options).arg(victim::path("exact")).arg(&path));
    path
}

/// Adds a section to an object.
fn add_section(object: &Path, section: &str, content: &[u8]) {
    let file = object.with_extension("section");
    fs::write(&file, content).expect("the scratch directory is writable");
    run(Command::new("objcopy").arg("--add-section").arg(format!("{section}={}", file.display())).arg(object));
}

/// Returns the content of `.gnu_debuglink`.
fn debug_link(path: &[u8]) -> Vec<u8> {
    let mut content = path.to_vec();
    content.resize((path.len() + 1).next_multiple_of(4), 0);
    content.extend([1, 2, 3, 4]);
    content
}

/// Traces the program. Returns the report and the counts of the victim.
fn trace(program: &Path) -> (Report, VictimTotals) {
    let mut victim = Victim::start(&mut Command::new(program));
    let tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    let start = Instant::now();
    let outcome = tracer.stop();
    assert!(start.elapsed() < SOON, "the report took {:?}", start.elapsed());
    victim.finish();
    let report = outcome.report();
    report.assert_equals(&expected);
    (report, expected)
}

/// Asserts that the functions of the victim have names, without source lines.
fn assert_named_by_symbols(report: &Report, expected: &VictimTotals) {
    for site in &expected.sites {
        let mut leaves = report.stacks_with_leaf(&site.name).filter_map(|stack| stack.leaf()).peekable();
        assert!(leaves.peek().is_some(), "{} has no name: {:?}", site.name, report.leaves());
        assert!(leaves.all(|leaf| leaf.file.is_none()), "{}", site.name);
    }
}

#[test]
fn debug_links_with_paths_are_not_followed() {
    let scratch = Scratch::new();
    let fifo = scratch.pipe("fifo");
    let absolute = fifo.to_str().expect("UTF-8");
    for (number, link) in [absolute, "fifo", "../../../../etc/shadow", "/dev/zero"].into_iter().enumerate() {
        let program = stripped(&scratch, &format!("program{number}"));
        add_section(&program, ".gnu_debuglink", &debug_link(link.as_bytes()));
        let (report, expected) = trace(&program);
        assert_named_by_symbols(&report, &expected);
    }
}

#[test]
fn supplementary_files_with_paths_are_not_followed() {
    let scratch = Scratch::new();
    let fifo = scratch.pipe("fifo");
    let path = fifo.as_os_str().as_encoded_bytes();
    // `.debug_sup` starts with version 5 and a flag: this is not a supplementary file itself. The path and a checksum of 20
    // bytes follow.
    let sections = [
        (".gnu_debugaltlink", [path, b"\0", &[7; 20]].concat()),
        (".debug_sup", [b"\x05\x00\x00", path, b"\0", &[20], &[7; 20]].concat()),
    ];
    for (number, (section, link)) in sections.into_iter().enumerate() {
        let program = scratch.copy(victim::path("exact"), &format!("program{number}"));
        add_section(&program, section, &link);
        let (report, expected) = trace(&program);
        for site in &expected.sites {
            assert!(report.stacks_with_leaf(&site.name).next().is_some(), "{} has no name", site.name);
        }
    }
}

#[test]
fn debug_files_of_a_root_directory_do_not_lead_out_of_it() {
    let scratch = Scratch::new();
    let program = scratch.join("program");
    let debug = scratch.join("debug");
    run(Command::new("objcopy").arg("--only-keep-debug").arg(victim::path("exact")).arg(&debug));
    run(Command::new("objcopy").arg("--strip-debug").arg(victim::path("exact")).arg(&program));
    let notes = run(Command::new("readelf").arg("-n").arg(&program));
    let build_id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).expect("a build ID");
    let (first, rest) = build_id.split_at(2);
    // Mounts a file system over /usr/lib/debug that only the victim sees.
    let link = format!(
        "mount -t tmpfs none /usr/lib/debug && mkdir -p /usr/lib/debug/.build-id/{first} && mkdir /usr/lib/debug/{first} \
         && ln -s \"$1\" /usr/lib/debug/.build-id/{first}/{rest}.debug && exec \"$2\""
    );
    let report_with = |target: &Path| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &link, "sh"]).arg(target).arg(&program);
        let mut victim = Victim::start(&mut command);
        let tracer = Trace::victim(&victim).start();
        let expected = victim.work();
        let report = tracer.stop().report();
        victim.finish();
        (report, expected)
    };
    // The victim and the machine have the same root directory, so this link leads to a file below it.
    let (report, expected) = report_with(&debug);
    report.assert_site("exact.c", &expected.sites[0]);
    // This link leads to the same file through a link in procfs. Links in procfs can lead to any root directory.
    let magic = Path::new("/proc/1/root").join(debug.strip_prefix("/").expect("an absolute path"));
    let (report, expected) = report_with(&magic);
    assert_named_by_symbols(&report, &expected);
}

#[test]
fn compressed_symbols_of_any_size_cost_names_only() {
    let scratch = Scratch::new();
    let bomb = scratch.join("bomb.xz");
    run(Command::new("sh").args(["-c", "head -c 1500M /dev/zero | xz -T2 -1 > \"$1\"", "sh"]).arg(&bomb));
    let program = stripped(&scratch, "program");
    run(Command::new("strip").arg("--strip-all").arg(&program));
    add_section(&program, ".gnu_debugdata", &fs::read(&bomb).expect("it was written"));
    // The systemd unit in the guide has this limit.
    let group = MemoryCgroup::with_memory(1 << 30);
    let path = group.path().to_str().expect("UTF-8");
    let mut victim = Victim::start(&mut Command::new(&program));
    let join = ["sh", "-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"", path];
    let tracer = Trace::victim(&victim).wrapped_in(&join).start();
    let expected = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    let report = outcome.report();
    report.assert_equals(&expected);
    let words = outcome.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let note = format!("{}: ", program.display());
    assert!(words.contains(&note) && words.contains("(names_memory)"), "{words} {:?}", report.leaves());
}

#[test]
fn functions_of_programs_of_other_users_have_names() {
    let scratch = Scratch::new();
    for (number, mode) in [0o755, 0o700].into_iter().enumerate() {
        let program = scratch.copy(victim::path("exact"), &format!("program{number}"));
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("the test owns the file");
        chown(&program, Some(USER), None).expect("the test runs as root");
        let (report, expected) = trace(&program);
        report.assert_site("exact.c", &expected.sites[0]);
    }
}

/// Returns the child of memtrace with this name.
fn child_named(name: &str, memtrace: u32) -> Option<u32> {
    let comm = |child: &u32| fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
    children(memtrace).into_iter().find(|child| comm(child).trim_end() == name)
}

/// Returns the child of memtrace that starts a worker for each object.
fn reader_of_names(memtrace: u32) -> Option<u32> {
    child_named("memtrace-names", memtrace)
}

/// Returns a field of `/proc/PID/status`.
fn status_field(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Traces the victim, and sends `signal` to the workers that read the names of its objects. Asserts that the totals are
/// exact, and that a note of the report has `reason`.
fn assert_loss_of_names(signal: i32, reason: &str) {
    let mut victim = Victim::start(&mut Command::new(victim::binaries().join("victim-rust-jemalloc")));
    let mut tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    let (memtrace, is_done) = (tracer.process().pid(), AtomicBool::new(false));
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            let begin = Instant::now();
            while !is_done.load(Ordering::Relaxed) && begin.elapsed() < SOON {
                for worker in reader_of_names(memtrace).map(children).into_iter().flatten() {
                    // SAFETY: the call has no conditions.
                    unsafe { libc::kill(worker.cast_signed(), signal) };
                }
            }
        });
        let start = Instant::now();
        let outcome = tracer.stop();
        let time = start.elapsed();
        is_done.store(true, Ordering::Relaxed);
        assert!(time < SOON, "the report took {time:?}");
        outcome.report()
    });
    victim.finish();
    report.assert_equals(&expected);
    let suffix = format!("({reason})");
    assert!(report.notes.iter().any(|note| note.ends_with(&suffix)), "{:?}", report.notes);
}

#[test]
fn killed_worker_costs_the_names_of_its_object() {
    assert_loss_of_names(libc::SIGKILL, "names_crashed");
}

#[test]
fn worker_that_hangs_costs_the_names_of_its_object() {
    assert_loss_of_names(libc::SIGSTOP, "names_timeout");
}

#[test]
fn process_that_reads_names_is_unprivileged_and_survives_signals_to_a_service() {
    let mut victim = victim::start_with("steady", &["100"]);
    let mut tracer = Trace::victim(&victim).options(&["--every", "1s"]).start();
    victim.work();
    assert!(tracer.process().wait_for_stderr(|line| line.contains("  live ")));
    let child = reader_of_names(tracer.process().pid()).expect("a child");
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the call has no conditions.
        assert_eq!(unsafe { libc::kill(child.cast_signed(), signal) }, 0);
    }
    assert!(tracer.process().wait_for_stderr(|line| line.contains("  live ")));
    let field = |name: &str| status_field(child, name);
    let user = USER.to_string();
    for name in ["Uid:", "Gid:"] {
        assert_eq!(field(name), [user.as_str(); 4].join(" "));
    }
    for name in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(name), "0000000000000000", "{name}");
    }
    assert_eq!((field("Groups:"), field("NoNewPrivs:")), (String::new(), String::from("1")));
    assert_eq!(tracer.stop().code, Some(0));
    victim.finish();
}

#[test]
fn file_that_its_owner_truncates_costs_names_only() {
    // Program that truncates a file each time that another process opens it.
    const TRUNCATE: &str = r#"
        #include <stdio.h>
        #include <sys/inotify.h>
        #include <unistd.h>
        int main(int count, char **arguments) {
            char events[4096];
            int queue = inotify_init();
            inotify_add_watch(queue, arguments[1], IN_OPEN);
            puts("watching");
            fflush(stdout);
            for (;;) {
                read(queue, events, sizeof events);
                truncate(arguments[1], 4096);
            }
        }"#;
    let scratch = Scratch::new();
    let truncate = scratch.compile("gcc", "truncate", TRUNCATE, &[]);
    let functions: String = (0..20_000).map(|number| format!("int f{number}(void) {{ return {number}; }}\n")).collect();
    let source = format!("#include <stdlib.h>\nvoid *take(void) {{ return malloc(777); }}\n{functions}");
    let library = scratch.compile("gcc", "library.so", &source, &["-shared", "-fPIC", "-g"]);
    chown(&library, Some(USER), None).expect("the test runs as root");
    let source = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        int main(int count, char **arguments) {
            void *(*take)(void) = (void *(*)(void))dlsym(dlopen(arguments[1], RTLD_NOW), "take");
            getchar();
            for (int number = 0; number < 100; number++) take();
            puts("done");
            fflush(stdout);
            getchar();
        }"#;
    let program = scratch.compile("gcc", "program", source, &["-ldl"]);
    for _ in 0..3 {
        let copy = scratch.copy(&library, "copy.so");
        chown(&copy, Some(USER), None).expect("the test runs as root");
        let mut process = Process::start(Command::new(&program).arg(&copy));
        let tracer = Trace::pids(&[process.pid()]).start();
        process.write_line("");
        assert_eq!(process.read_line(), "done");
        let mut truncating = Process::start(Command::new(&truncate).arg(&copy));
        assert_eq!(truncating.read_line(), "watching");
        let report = tracer.stop().report();
        let blocks: u64 = report.stacks.iter().filter(|stack| stack.totals.live_bytes == 77_700).map(|_| 100).sum();
        assert_eq!(blocks, 100, "{:?}", report.stacks.iter().map(|stack| stack.totals).collect::<Vec<_>>());
        truncating.signal(libc::SIGKILL);
        process.signal(libc::SIGKILL);
        fs::remove_file(copy).expect("the scratch directory is writable");
    }
}
