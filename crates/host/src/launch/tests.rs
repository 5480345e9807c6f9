use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use harness::Scratch;
use harness::fixtures::assert_root;

use super::*;

/// Time limit for the exit of a command.
const PATIENCE: Duration = Duration::from_secs(30);

fn argv(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn prepare(words: &[&str]) -> Launch {
    Launch::prepare(&argv(words), None).unwrap()
}

fn run(words: &[&str]) -> ExitStatus {
    prepare(words).release().unwrap().wait().unwrap()
}

/// Prepares a command that stops at each exec. The receiver gets a message for each stop, and ends with the last process.
fn prepare_held(words: &[&str]) -> (Launch, Receiver<()>) {
    let (sender, stops) = mpsc::channel();
    let mut launch = prepare(words);
    launch.hold_execs(move || sender.send(()).unwrap_or_default()).unwrap();
    (launch, stops)
}

/// Starts a command that stops at each exec, and waits for its first stop.
fn start_held(words: &[&str]) -> (Child, StoppedImage) {
    let (launch, stops) = prepare_held(words);
    let child = launch.release().unwrap();
    stops.recv_timeout(PATIENCE).unwrap();
    let images = child.take_stopped_images();
    assert!(images.len() == 1 && images[0].pid == child.pid(), "{images:?}");
    (child, images[0])
}

/// Runs a command that stops at each exec. Returns the number of stops and the exit status.
fn run_held(words: &[&str]) -> (usize, ExitStatus) {
    let (launch, stops) = prepare_held(words);
    let mut child = launch.release().unwrap();
    let mut count = 0;
    while stops.recv_timeout(PATIENCE).is_ok() {
        for image in child.take_stopped_images() {
            assert!(child.resume(image));
            count += 1;
        }
    }
    (count, child.wait().unwrap())
}

fn proc_file(pid: Pid, name: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap()
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    assert_eq!(run(&["true"]).code(), Some(0));
    assert_eq!(run(&["sh", "-c", "exit 42"]).code(), Some(42));
}

#[test]
fn death_by_a_signal_is_reported() {
    assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).signal(), Some(libc::SIGTERM));
}

#[test]
fn the_exit_is_detected_without_waiting() {
    let mut child = prepare(&["cat", "/dev/null"]).release().unwrap();
    assert!(crate::procfs::exits_within(child.pidfd(), PATIENCE));
    assert_eq!(child.try_wait().unwrap().and_then(|status| status.code()), Some(0));
    assert_eq!(child.try_wait().unwrap(), child.try_wait().unwrap());
}

#[test]
fn a_running_command_has_no_status() {
    let scratch = Scratch::new();
    let pipe = scratch.path("pipe");
    assert!(run(&["mkfifo", pipe.to_str().unwrap()]).success());
    let mut child = prepare(&["cat", pipe.to_str().unwrap()]).release().unwrap();
    assert_eq!(child.try_wait().unwrap(), None);
    drop(fs::OpenOptions::new().write(true).open(&pipe).unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_command_starts_at_the_release_with_the_same_pid() {
    let scratch = Scratch::new();
    let made = scratch.path("made");
    let launch = prepare(&["mkdir", made.to_str().unwrap()]);
    let pid = launch.pid();
    // The child still runs this test executable, with its own pid.
    assert_eq!(fs::read_link(format!("/proc/{pid}/exe")).unwrap(), std::env::current_exe().unwrap());
    assert!(!made.exists());
    let mut child = launch.release().unwrap();
    assert_eq!(child.pid(), pid);
    assert!(child.wait().unwrap().success());
    assert!(made.is_dir());
}

#[test]
fn closing_the_barrier_ends_the_child() {
    let scratch = Scratch::new();
    let made = scratch.path("made");
    let launch = prepare(&["mkdir", made.to_str().unwrap()]);
    let Launch { barrier, mut child, .. } = launch;
    drop(barrier);
    assert_eq!(child.wait().unwrap().code(), Some(127));
    assert!(!made.exists());
}

#[test]
fn a_child_killed_at_the_barrier_is_detected() {
    let mut launch = prepare(&["true"]);
    // SAFETY: the child has not been waited for, so the pid is valid.
    assert_eq!(unsafe { libc::kill(i32::try_from(launch.pid().0).unwrap(), libc::SIGKILL) }, 0);
    launch.child.wait().unwrap();
    let result = launch.release();
    assert!(matches!(result, Err(LaunchError::Exited(_))), "{result:?}");
}

#[test]
fn a_missing_command_is_not_found() {
    for command in ["memtrace-no-such-command", "/no/such/command"] {
        let result = Launch::prepare(&argv(&[command, "x"]), None);
        assert!(matches!(&result, Err(LaunchError::NotFound { command: name }) if name == command), "{result:?}");
    }
    assert!(matches!(Launch::prepare(&[], None), Err(LaunchError::NotFound { .. })));
    assert!(matches!(Launch::prepare(&argv(&[""]), None), Err(LaunchError::NotFound { .. })));
}

#[test]
fn a_file_that_is_not_executable_is_another_error() {
    let result = Launch::prepare(&argv(&["/etc/passwd"]), None);
    let Err(LaunchError::NotRunnable { source, .. }) = result else { panic!("{result:?}") };
    assert_eq!(source.kind(), io::ErrorKind::PermissionDenied);
    let scratch = Scratch::new();
    let script = scratch.script("script", "#!/no/such/interpreter\n");
    let result = prepare(&[script.to_str().unwrap()]).release();
    let Err(LaunchError::NotRunnable { source, .. }) = result else { panic!("{result:?}") };
    assert!(source.to_string().contains("interpreter"));
}

#[test]
fn scripts_run_with_and_without_a_first_line() {
    let scratch = Scratch::new();
    let script = scratch.script("with", "#!/bin/sh\nexit $1\n");
    assert_eq!(run(&[script.to_str().unwrap(), "7"]).code(), Some(7));
    let script = scratch.script("without", "exit $1\n");
    assert_eq!(run(&[script.to_str().unwrap(), "8"]).code(), Some(8));
}

#[test]
fn arguments_with_a_nul_are_refused() {
    let result = Launch::prepare(&argv(&["true", "a\0b"]), None);
    assert!(matches!(result, Err(LaunchError::Start { step: "its arguments", .. })));
}

#[test]
fn arguments_and_environment_reach_the_command_unchanged() {
    let launch = prepare(&["sh", "-c", "kill -STOP $$; exit 0", "a b", ""]);
    let pid = launch.pid();
    let mut child = launch.release().unwrap();
    let mut status = 0;
    // SAFETY: `status` is valid during the call.
    let stopped = unsafe { libc::waitpid(i32::try_from(pid.0).unwrap(), &raw mut status, libc::WUNTRACED) };
    assert!(stopped > 0 && libc::WIFSTOPPED(status));
    assert_eq!(proc_file(pid, "cmdline"), "sh\0-c\0kill -STOP $$; exit 0\0a b\0\0");
    let mut theirs: Vec<String> = proc_file(pid, "environ").split_terminator('\0').map(str::to_owned).collect();
    let mut ours: Vec<String> = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
    theirs.sort();
    ours.sort();
    assert_eq!(theirs, ours);
    // No signal is blocked or caught. Only signals that this process inherited as ignored are ignored.
    let signals = |name: &str| {
        let status = proc_file(pid, "status");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap()
    };
    assert_eq!(signals("SigBlk"), 0);
    assert_eq!(signals("SigIgn") & (1 << (libc::SIGPIPE - 1)), 0);
    // SAFETY: the child has not been waited for, so the pid is valid.
    assert_eq!(unsafe { libc::kill(i32::try_from(pid.0).unwrap(), libc::SIGCONT) }, 0);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_command_inherits_no_descriptors() {
    let scratch = Scratch::new();
    let lists = ["ours", "expected"].map(|name| scratch.path(name));
    let [ours, expected] = lists.each_ref().map(|list| format!("ls /proc/self/fd > {}", list.display()));
    assert!(run(&["sh", "-c", &ours]).success());
    assert!(Command::new("sh").args(["-c", &expected]).status().unwrap().success());
    let [ours, expected] = lists.map(|list| fs::read_to_string(list).unwrap());
    assert_eq!(ours, expected);
}

#[test]
fn held_command_stops_at_each_exec_and_keeps_its_status() {
    let (stops, status) = run_held(&["sh", "-c", "/bin/true; /bin/true; exit 42"]);
    assert_eq!((stops, status.code()), (3, Some(42)));
    let (stops, status) = run_held(&["sh", "-c", "(sleep 0 & wait); kill -TERM $$"]);
    assert_eq!((stops, status.signal()), (2, Some(libc::SIGTERM)));
}

#[test]
fn image_is_stopped_until_it_is_resumed() {
    let scratch = Scratch::new();
    let made = scratch.path("made");
    let (mut child, image) = start_held(&["mkdir", made.to_str().unwrap()]);
    assert!(proc_file(child.pid(), "stat").contains("(mkdir) t "));
    assert!(child.take_stopped_images().is_empty() && !made.exists());
    assert_eq!(child.try_wait().unwrap(), None);
    assert!(child.resume(image) && !child.resume(image));
    assert!(child.wait().unwrap().success());
    assert!(made.is_dir());
}

#[test]
fn image_runs_at_its_deadline() {
    let (mut child, image) = start_held(&["true"]);
    assert!(crate::procfs::exits_within(child.pidfd(), PATIENCE));
    assert!(!child.resume(image));
    assert!(child.wait().unwrap().success());
}

#[test]
fn stopped_image_runs_when_the_hold_ends() {
    let (mut child, image) = start_held(&["true"]);
    child.end_hold();
    assert!(!child.resume(image) && child.take_stopped_images().is_empty());
    assert!(child.wait().unwrap().success());
    // The value ends the hold when it is dropped.
    let (child, _) = start_held(&["true"]);
    let pidfd = child.pidfd().try_clone_to_owned().unwrap();
    drop(child);
    assert!(crate::procfs::exits_within(pidfd.as_fd(), PATIENCE));
}

#[test]
fn running_command_is_not_disturbed_when_the_hold_ends() {
    let scratch = Scratch::new();
    let pipe = scratch.path("pipe");
    assert!(run(&["mkfifo", pipe.to_str().unwrap()]).success());
    let (mut child, image) = start_held(&["cat", pipe.to_str().unwrap()]);
    assert!(child.resume(image));
    child.end_hold();
    assert!(proc_file(child.pid(), "status").contains("TracerPid:\t0\n"));
    assert_eq!(child.try_wait().unwrap(), None);
    drop(fs::OpenOptions::new().write(true).open(&pipe).unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Blocks a signal in this thread.
fn block(signal: libc::c_int) {
    // SAFETY: a set of signals is plain data, and all zeros are the empty set.
    let mut signals: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid, and so is the signal.
    unsafe { libc::sigaddset(&raw mut signals, signal) };
    // SAFETY: the set is valid, and the earlier mask is not wanted.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut()) };
}

/// Holds a command that waits for `pipe`, in a thread with a blocked SIGURG, and ends the hold. The command blocks SIGURG too.
fn end_hold_with_blocked_signal(pipe: &str) -> Child {
    block(libc::SIGURG);
    let (launch, stops) = prepare_held(&["env", "--block-signal=URG", "cat", pipe]);
    let mut child = launch.release().unwrap();
    for _ in ["env", "cat"] {
        stops.recv_timeout(PATIENCE).unwrap();
        assert!(child.take_stopped_images().into_iter().all(|image| child.resume(image)));
    }
    child.end_hold();
    child
}

#[test]
fn hold_ends_while_its_signal_is_blocked() {
    let scratch = Scratch::new();
    let pipe = scratch.path("pipe");
    let path = pipe.to_str().unwrap().to_owned();
    assert!(run(&["mkfifo", &path]).success());
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(end_hold_with_blocked_signal(&path)).unwrap());
    let mut child = ended.recv_timeout(PATIENCE).unwrap();
    let status = proc_file(child.pid(), "status");
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    assert_eq!(u64::from_str_radix(blocked.trim(), 16).unwrap(), 1 << (libc::SIGURG - 1));
    assert!(status.contains("TracerPid:\t0\n"), "{status}");
    drop(fs::OpenOptions::new().write(true).open(&pipe).unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn status_of_a_held_command_outlives_the_hold() {
    let (mut child, image) = start_held(&["sh", "-c", "exit 9"]);
    assert!(child.resume(image));
    assert!(crate::procfs::exits_within(child.pidfd(), PATIENCE));
    child.end_hold();
    assert_eq!(child.try_wait().unwrap().and_then(|status| status.code()), Some(9));
}

#[test]
fn held_command_that_cannot_be_executed_is_an_error() {
    let scratch = Scratch::new();
    let script = scratch.script("script", "#!/no/such/interpreter\n");
    let (launch, _) = prepare_held(&[script.to_str().unwrap()]);
    let result = launch.release();
    assert!(matches!(result, Err(LaunchError::NotRunnable { .. })), "{result:?}");
}

#[test]
fn privileged_the_identity_is_switched_permanently() {
    assert_root();
    let scratch = Scratch::new();
    let list = scratch.write("list", b"");
    fs::set_permissions(&list, fs::Permissions::from_mode(0o666)).unwrap();
    let identity = Identity::of(65534, 65533, &[65533, 65532]);
    let script = format!("grep -E '^(Uid|Gid|Groups|CapEff|CapPrm)' /proc/self/status > {}", list.display());
    let status = Launch::prepare(&argv(&["sh", "-c", &script]), Some(&identity)).unwrap().release();
    let status = status.unwrap().wait().unwrap();
    assert!(status.success());
    let printed = fs::read_to_string(&list).unwrap();
    let fields: Vec<Vec<&str>> = printed.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected: [&[&str]; 5] = [
        &["Uid:", "65534", "65534", "65534", "65534"],
        &["Gid:", "65533", "65533", "65533", "65533"],
        &["Groups:", "65532", "65533"],
        &["CapPrm:", "0000000000000000"],
        &["CapEff:", "0000000000000000"],
    ];
    assert_eq!(fields, expected);
}
