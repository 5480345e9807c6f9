//! Invalid input gives a clear error and a distinct exit code, and leaves nothing behind.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use memtrace_tests::{Scratch, Trace, Victim, breakpoints, process, tracer, victim};

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const NO_SUCH_PROCESS: i32 = 3;
const NOT_PERMITTED: i32 = 4;
const NO_ALLOCATOR: i32 = 6;
const OUTPUT: i32 = 7;
const UNTRACEABLE: i32 = 8;
const DAMAGED: i32 = 9;
const NO_COMMAND: i32 = 10;

#[test]
fn unused_pid_is_refused() {
    // All pids are below this number.
    let pid = fs::read_to_string("/proc/sys/kernel/pid_max").expect("pid_max is readable");
    let pid = pid.trim().parse().expect("a number");
    Trace::pids(&[pid]).run().assert_refused(NO_SUCH_PROCESS, &[&pid.to_string()]);
}

#[test]
fn one_unused_pid_refuses_the_trace_without_probes() {
    let victim = victim::start_with("steady", &["100"]);
    Trace::pids(&[victim.pid(), u32::from(u16::MAX) << 8]).run().assert_refused(NO_SUCH_PROCESS, &[]);
    assert_eq!(breakpoints::list(victim.pid()), [""; 0]);
}

#[test]
fn zombie_process_is_refused() {
    let mut victim = victim::start_with("steady", &["100"]);
    let pid = victim.pid();
    victim.process().signal(libc::SIGKILL);
    // The victim stays a zombie without memory until the test waits for it.
    let until = Instant::now() + process::TIMEOUT;
    while !fs::read_to_string(format!("/proc/{pid}/stat")).expect("the zombie exists").contains(") Z ") {
        assert!(Instant::now() < until, "the victim does not exit");
        thread::sleep(Duration::from_millis(1));
    }
    Trace::pids(&[pid]).run().assert_refused(NO_SUCH_PROCESS, &[&pid.to_string()]);
}

#[test]
fn process_exiting_during_attach_is_traced_or_refused() {
    for moment in [0, 10, 20, 30, 40, 60, 80, 100, 150, 200] {
        let mut victim = victim::start_with("steady", &["100"]);
        let tracer = Trace::victim(&victim).start_without_waiting();
        // The delay waits for nothing: the test kills the victim at different moments.
        thread::sleep(Duration::from_millis(moment));
        victim.process().signal(libc::SIGKILL);
        let outcome = tracer.wait();
        assert!(matches!(outcome.code, Some(0 | NO_SUCH_PROCESS)), "{:?}: {}", outcome.code, outcome.stderr);
    }
}

#[test]
fn kernel_thread_is_refused() {
    let name = fs::read_to_string("/proc/2/comm").expect("process 2 exists");
    assert_eq!(name.trim(), "kthreadd");
    Trace::pids(&[2]).run().assert_refused(UNTRACEABLE, &["kernel thread"]);
}

#[test]
fn tid_is_refused_with_the_pid_of_its_process() {
    let victim = victim::start("threads");
    let tasks = fs::read_dir(format!("/proc/{}/task", victim.pid())).expect("the victim runs");
    let names = tasks.map(|task| task.expect("a task").file_name().into_string().expect("a number"));
    let thread = names.map(|name| name.parse().expect("a number")).find(|&id: &u32| id != victim.pid());
    let thread = thread.expect("the victim has threads");
    Trace::pids(&[thread]).run().assert_refused(UNTRACEABLE, &["thread", &victim.pid().to_string()]);
}

#[test]
fn missing_allocator_is_refused_with_inspected_files() {
    let victim = victim::start("bare");
    let path = victim::path("bare");
    Trace::victim(&victim).run().assert_refused(NO_ALLOCATOR, &[path.to_str().expect("the path is UTF-8")]);
}

#[test]
fn unwritable_output_is_refused_before_probing() {
    let scratch = Scratch::new();
    let victim = victim::start_with("steady", &["100"]);
    let directory = scratch.join("directory.json");
    fs::create_dir(&directory).expect("the scratch directory is writable");
    for output in [scratch.join("no such directory/out.json"), directory] {
        let trace = Trace::victim(&victim).option("-o").option(&output);
        trace.run().assert_refused(OUTPUT, &[output.to_str().expect("the path is UTF-8")]);
        assert_eq!(breakpoints::list(victim.pid()), [""; 0]);
    }
}

#[test]
fn full_output_is_reported_and_the_target_survives() {
    let mut victim = victim::start_with("steady", &["100"]);
    let state = Scratch::new();
    let trace = Trace::victim(&victim).options(&["--format", "json", "-o", "/dev/full"]);
    let tracer = trace.environment("XDG_STATE_HOME", &*state).start();
    victim.work();
    let outcome = tracer.stop();
    outcome.assert_code(FAILED);
    assert!(outcome.stderr.contains("/dev/full"), "{}", outcome.stderr);
    assert_eq!(breakpoints::list(victim.pid()), [""; 0]);
    victim.finish();
}

#[test]
fn nonexistent_command_is_refused() {
    Trace::command(["/no/such/command"]).run().assert_refused(NO_COMMAND, &["/no/such/command"]);
}

#[test]
fn non_executable_command_is_refused() {
    Trace::command(["/etc/passwd"]).run().assert_refused(NO_COMMAND, &["/etc/passwd"]);
}

#[test]
fn invalid_option_values_are_refused() {
    let victim = victim::start_with("steady", &["100"]);
    for options in [["--duration", "soon"], ["--min-size", "many"], ["--metric", "beauty"], ["--shards", "0"]] {
        Trace::victim(&victim).options(&options).run().assert_refused(USAGE, &[options[0], options[1]]);
    }
    Trace::victim(&victim)
        .options(&["--min-size", "10", "--max-size", "9"])
        .run()
        .assert_refused(USAGE, &["--max-size"]);
}

/// Runs memtrace as user nobody, from a directory that this user can read.
fn as_nobody(scratch: &Scratch, trace: Trace) -> memtrace_tests::Outcome {
    let copy = scratch.copy(tracer::binary(), "memtrace");
    trace.binary(&copy).wrapped_in(&["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]).run()
}

#[test]
fn missing_capabilities_are_named() {
    let scratch = Scratch::new();
    let steady = scratch.copy(victim::path("steady"), "steady");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&steady).arg("100");
    let victim = Victim::start(&mut command);
    as_nobody(&scratch, Trace::victim(&victim)).assert_refused(NOT_PERMITTED, &["CAP_BPF", "CAP_PERFMON"]);
}

#[test]
fn process_of_another_user_is_refused() {
    let scratch = Scratch::new();
    let victim = victim::start_with("steady", &["100"]);
    as_nobody(&scratch, Trace::victim(&victim)).assert_refused(NOT_PERMITTED, &["CAP_"]);
}

/// Starts a victim of user nobody, with a C library that only this user may open.
fn private_victim(scratch: &Scratch) -> Victim {
    let directory = scratch.subdirectory("private");
    fs::copy(libc_of(victim::start("exact").pid()), directory.join("libc.so.6")).expect("the C library can be copied");
    fs::copy(victim::path("steady"), directory.join("steady")).expect("the victim can be copied");
    let chown = process::run(Command::new("chown").args(["-R", "65534:65534"]).arg(&directory));
    assert_eq!(chown, "");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("root may change the mode");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(directory.join("steady")).arg("100");
    Victim::start(command.env("LD_LIBRARY_PATH", &directory))
}

#[test]
fn unopened_files_name_the_missing_capability() {
    let scratch = Scratch::new();
    let victim = private_victim(&scratch);
    let dropped = "-dac_override,-dac_read_search";
    let setpriv = ["setpriv", "--bounding-set", dropped, "--inh-caps", dropped];
    let outcome = Trace::victim(&victim).wrapped_in(&setpriv).run();
    outcome.assert_refused(NOT_PERMITTED, &["private/steady", "it needs CAP_DAC_READ_SEARCH\n"]);
    let pid = victim.pid().to_string();
    let doctor =
        Command::new("setpriv").args(&setpriv[1..]).arg(tracer::binary()).args(["doctor", "--pid", &pid]).output();
    let doctor = doctor.expect("setpriv is installed");
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert_eq!(doctor.status.code(), Some(NOT_PERMITTED), "{text}");
    assert!(text.contains("it needs CAP_DAC_READ_SEARCH\n") && !text.contains("none that memtrace knows"), "{text}");
}

#[test]
fn hidden_process_names_the_missing_capability() {
    let scratch = Scratch::new();
    let victim = private_victim(&scratch);
    let script = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace \
                  \"$@\"";
    let outcome = Trace::victim(&victim).wrapped_in(&["unshare", "--mount", "sh", "-c", script, "sh"]).run();
    outcome.assert_refused(NOT_PERMITTED, &["not permitted to read process", "CAP_SYS_PTRACE"]);
}

#[test]
fn capabilities_in_a_user_namespace_are_not_named_as_missing() {
    let scratch = Scratch::new();
    let victim = private_victim(&scratch);
    let outcome = Trace::victim(&victim).wrapped_in(&["unshare", "--user", "--map-root-user"]).run();
    outcome.assert_refused(NOT_PERMITTED, &["user namespace"]);
    assert!(outcome.stderr.contains("on the host") || outcome.stderr.contains("of the host"), "{}", outcome.stderr);
}

/// Returns the path of the C library that a victim has mapped.
fn libc_of(pid: u32) -> String {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the victim runs");
    let path = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6"));
    path.expect("the victim has a C library").to_owned()
}

fn hostile_file(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("the scratch directory is writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("the file is writable");
}

#[test]
fn malformed_elf_files_do_not_stop_the_trace() {
    let scratch = Scratch::new();
    let whole = fs::read(libc_of(victim::start("exact").pid())).expect("the C library can be read");
    let mut garbage = whole[..64].to_vec();
    garbage.extend((0..200_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8));
    let mut far_away = whole[..8192].to_vec();
    // Fields e_phoff and e_shoff of the ELF header.
    far_away[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
    far_away[40..48].copy_from_slice(&(u64::MAX - 63).to_le_bytes());
    let mut crowded = whole[..8192].to_vec();
    // Fields e_phnum and e_shnum of the ELF header.
    crowded[56..58].copy_from_slice(&u16::MAX.to_le_bytes());
    crowded[60..62].copy_from_slice(&u16::MAX.to_le_bytes());
    let files: [(&str, &[u8]); 7] = [
        ("libtruncated.so.6", &whole[..whole.len() / 3]),
        ("libheader.so.6", &whole[..64]),
        ("libmagic.so.6", b"\x7fELF"),
        ("libempty.so.6", b""),
        ("libgarbage.so.6", &garbage),
        ("libfar.so.6", &far_away),
        ("libcrowded.so.6", &crowded),
    ];
    let paths = files.map(|(name, bytes)| {
        let path = scratch.join(name);
        hostile_file(&path, bytes);
        path.into_os_string().into_string().expect("the path is UTF-8")
    });
    let mut victim = victim::start_with("hostile", &paths.each_ref().map(String::as_str));
    let tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    let outcome = tracer.stop();
    outcome.report().assert_equals(&expected);
    victim.finish();
}

#[test]
fn damaged_allocator_file_is_refused() {
    let scratch = Scratch::new();
    let copy = scratch.join("libc.so.6");
    fs::copy(libc_of(victim::start("exact").pid()), &copy).expect("the C library can be copied");
    let mut command = Command::new(victim::path("steady"));
    let mut victim = Victim::start(command.arg("100").env("LD_LIBRARY_PATH", scratch.as_os_str()));
    assert_eq!(libc_of(victim.pid()), copy.to_str().expect("the path is UTF-8"));
    // The running process does not read the headers again.
    let file: File = OpenOptions::new().write(true).open(&copy).expect("the copy is writable");
    file.write_all_at(&u64::MAX.to_le_bytes(), 32).expect("the copy is writable");
    file.write_all_at(&u64::MAX.to_le_bytes(), 40).expect("the copy is writable");
    Trace::victim(&victim).run().assert_refused(DAMAGED, &[copy.to_str().expect("the path is UTF-8")]);
    victim.work();
    victim.finish();
}
