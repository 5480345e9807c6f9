use std::fs;
use std::io::{self, Read as _};
use std::iter;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use harness::fixtures::{Running, assert_root};
use memtrace_model::Pid;

use super::{Stat, inspect};
use crate::procfs::{ProcessError, ReadRefusal};

fn own_pid() -> Pid {
    Pid(std::process::id())
}

#[test]
fn names_may_contain_blanks_and_parentheses() {
    let text = b"42 (a) S (b) R 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1000 10";
    let expected = Stat { comm: "a) S (b".to_owned(), state: b'R', flags: 4_194_560 };
    assert_eq!(Stat::parse(text), Some(expected));
}

#[test]
fn a_truncated_stat_line_never_panics() {
    let text = b"42 (name) R 1 42 42 0 -1 4194560";
    for end in 0..text.len() - 7 {
        assert_eq!(Stat::parse(&text[..end]), None, "cut at {end}");
    }
    assert!(Stat::parse(b")(").is_none());
}

#[test]
fn this_process_can_be_inspected() {
    let process = inspect(own_pid()).unwrap();
    assert_eq!(process.exe, std::env::current_exe().unwrap());
    assert_eq!(process.comm, fs::read_to_string("/proc/self/comm").unwrap().trim_end());
    assert!(!process.foreign_mounts && !process.foreign_pids && !process.has_exited());
}

#[test]
fn process_whose_memory_is_being_freed_has_exited() {
    // `dd` fills its buffer, and then waits for a reader. While the kernel frees the buffer, `exe` is empty and the
    // pidfd is not readable.
    let arguments = ["if=/dev/zero", "bs=512M", "count=1", "status=none"];
    let mut child = Command::new("dd").args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let pid = Pid(child.id());
    assert!(inspect(pid).is_ok());
    child.kill().unwrap();
    let error = iter::repeat_with(|| inspect(pid)).find_map(Result::err).unwrap();
    assert!(matches!(error, ProcessError::Exited(exited) if exited == pid), "{error}");
    child.wait().unwrap();
}

#[test]
fn an_unused_pid_is_an_error_with_the_pid() {
    // Above the kernel's limit of 2^22 (PID_MAX_LIMIT, include/linux/threads.h).
    let nobody = Pid((1 << 22) + 1);
    assert!(matches!(inspect(nobody), Err(ProcessError::NoSuchProcess(pid)) if pid == nobody));
    assert!(matches!(inspect(Pid(0)), Err(ProcessError::NoSuchProcess(Pid(0)))));
    assert!(matches!(inspect(Pid(u32::MAX)), Err(ProcessError::NoSuchProcess(_))));
}

#[test]
fn a_tid_is_an_error_with_its_process() {
    let (send_tid, tid) = mpsc::channel();
    let (done, wait) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        // SAFETY: gettid(2) takes nothing and cannot fail.
        send_tid.send(u32::try_from(unsafe { libc::gettid() }).unwrap()).unwrap();
        wait.recv().unwrap_err();
    });
    let tid = Pid(tid.recv().unwrap());
    let result = inspect(tid);
    drop(done);
    thread.join().unwrap();
    assert!(matches!(result, Err(ProcessError::Thread { pid, of }) if pid == tid && of == own_pid()), "{result:?}");
}

#[test]
fn a_zombie_has_exited() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = Pid(child.id());
    // Wait for the exit. WNOWAIT leaves the zombie.
    // SAFETY: siginfo_t is plain data, and all zeros are a value of it.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` lives as long as the call.
    let waited = unsafe { libc::waitid(libc::P_PID, pid.0, &raw mut info, libc::WEXITED | libc::WNOWAIT) };
    assert_eq!(waited, 0, "{}", io::Error::last_os_error());
    let result = inspect(pid);
    child.wait().unwrap();
    assert!(matches!(result, Err(ProcessError::Exited(ended)) if ended == pid), "{result:?}");
}

#[test]
fn the_exit_of_an_inspected_process_is_detected() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let process = inspect(Pid(child.id())).unwrap();
    assert!(!process.has_exited());
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(process.has_exited());
}

#[test]
fn a_kernel_thread_is_an_error_with_its_name() {
    let result = inspect(Pid(2));
    assert_eq!(fs::read_to_string("/proc/2/comm").unwrap(), "kthreadd\n", "this test needs the root pid namespace");
    assert!(
        matches!(&result, Err(ProcessError::KernelThread { pid: Pid(2), comm }) if comm == "kthreadd"),
        "{result:?}"
    );
}

#[test]
fn privileged_another_users_process_needs_a_capability() {
    assert_root();
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = Pid(child.id());
    let nobody: libc::uid_t = 65534;
    let result = thread::spawn(move || {
        // Use the system call, because the wrapper changes all threads. The other threads have to stay root.
        // SAFETY: setresuid(2) takes three integers.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, nobody, nobody, nobody) };
        assert_eq!(changed, 0, "{}", io::Error::last_os_error());
        inspect(pid)
    })
    .join();
    drop(child.stdin.take());
    child.wait().unwrap();
    let error = result.unwrap().unwrap_err();
    assert!(matches!(error, ProcessError::Permission { pid: refused, .. } if refused == pid), "{error}");
    assert!(error.to_string().contains("CAP_SYS_PTRACE"));
}

/// Puts this thread into a Landlock domain. The threads of the domain may not read processes outside of it (landlock(7)).
fn enter_landlock() {
    /// `LANDLOCK_ACCESS_FS_MAKE_BLOCK`. No test needs this right.
    const HANDLED: u64 = 1 << 11;
    let attributes = [HANDLED];
    // SAFETY: the pointer is to a landlock_ruleset_attr of 8 bytes, its first version.
    let ruleset = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, attributes.as_ptr(), 8usize, 0u32) };
    assert!(ruleset >= 0, "this test needs Landlock: {}", io::Error::last_os_error());
    // SAFETY: the system call takes integers. Root needs no `no_new_privs`.
    let restricted = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0u32) };
    assert_eq!(restricted, 0, "{}", io::Error::last_os_error());
}

#[test]
fn privileged_refusal_of_a_security_module_names_no_held_capability() {
    assert_root();
    let child = Running::start("cat");
    let pid = child.pid();
    let result = thread::spawn(move || {
        enter_landlock();
        inspect(pid)
    })
    .join();
    child.end();
    let error = result.unwrap().unwrap_err();
    let expected = matches!(error, ProcessError::Permission { refusal: ReadRefusal::SecurityModule, .. });
    assert!(expected, "{error}");
}

#[test]
fn privileged_other_namespaces_are_detected() {
    assert_root();
    // `cat` echoes a line once unshare has finished.
    let mut child = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    io::Write::write_all(&mut stdin, b"ready\n").unwrap();
    let mut line = String::new();
    let read = io::BufRead::read_line(&mut io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line);
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let result = children.trim().parse().map(|pid| inspect(Pid(pid)));
    drop(stdin);
    child.wait().unwrap();
    read.unwrap();
    assert_eq!(line, "ready\n");
    let process = result.unwrap().unwrap();
    assert!(process.foreign_mounts && process.foreign_pids);
}
