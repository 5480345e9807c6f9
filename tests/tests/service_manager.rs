//! Messages to the service manager (sd_notify(3)).

use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use memtrace_tests::{Scratch, Trace, victim};

/// Time limit for a message.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Watchdog interval of the manager in microseconds: memtrace must send a message in each interval.
const INTERVAL: &str = "200000";
/// Time without a message that shows a hang: many watchdog intervals.
const SILENCE: Duration = Duration::from_secs(3);

/// A service manager, which gets messages.
struct Manager {
    socket: UnixDatagram,
    scratch: Scratch,
}

impl Manager {
    fn new() -> Self {
        let scratch = Scratch::new();
        let socket = UnixDatagram::bind(scratch.path("notify")).expect("the socket is new");
        Self { socket, scratch }
    }

    fn trace(&self, trace: Trace) -> Trace {
        trace.environment("NOTIFY_SOCKET", self.scratch.path("notify"))
    }

    /// Returns the next message; an error if no message arrives within `time`.
    fn message_within(&self, time: Duration) -> io::Result<String> {
        self.socket.set_read_timeout(Some(time))?;
        let mut bytes = [0; 100];
        let length = self.socket.recv(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned())
    }

    fn message(&self) -> String {
        self.message_within(TIMEOUT).expect("a message arrives")
    }
}

/// A stopped thread of another process. The other threads of the process run. Dropping this value lets the thread run.
struct StoppedThread(i32);

impl StoppedThread {
    fn stop(tid: i32) -> Self {
        let request = |request| {
            // SAFETY: the requests take no pointers.
            let result = unsafe { libc::ptrace(request, tid, ptr::null_mut::<u8>(), ptr::null_mut::<u8>()) };
            assert_eq!(result, 0, "{}", io::Error::last_os_error());
        };
        request(libc::PTRACE_SEIZE);
        request(libc::PTRACE_INTERRUPT);
        let mut status = 0;
        // SAFETY: the pointer is to a variable.
        assert_eq!(unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL) }, tid, "{}", io::Error::last_os_error());
        Self(tid)
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        // SAFETY: the request takes no pointers.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, ptr::null_mut::<u8>(), ptr::null_mut::<u8>()) };
    }
}

/// Returns a thread of the process with a name that starts with `name`.
fn thread_named(name: &str, pid: u32) -> i32 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let has_name = |path: &Path| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.starts_with(name));
    let thread =
        threads.filter_map(Result::ok).find(|thread| has_name(&thread.path())).expect("there is such a thread");
    thread.file_name().to_string_lossy().parse().expect("the name is a number")
}

#[test]
fn no_sign_of_life_is_sent_while_a_shard_hangs() {
    let manager = Manager::new();
    let mut victim = victim::start("exact");
    let mut tracer = manager.trace(Trace::victim(&victim)).environment("WATCHDOG_USEC", INTERVAL).start();
    assert_eq!([(); 2].map(|()| manager.message()), ["READY=1", "WATCHDOG=1"]);
    let shard = StoppedThread::stop(thread_named("memtrace-shard", tracer.process().pid()));
    // The shard may have answered just before it was stopped, and one message may be in the socket.
    let after: Vec<_> = std::iter::from_fn(|| manager.message_within(SILENCE).ok()).take(4).collect();
    assert!(after.len() <= 2, "{after:?}");
    drop(shard);
    assert_eq!(manager.message(), "WATCHDOG=1");
    let expected = victim.work();
    tracer.stop().report().assert_equals(&expected);
    victim.finish();
}

#[test]
fn service_manager_learns_of_the_start_the_end_and_life() {
    let manager = Manager::new();
    let mut victim = victim::start("exact");
    let tracer = manager.trace(Trace::victim(&victim)).environment("WATCHDOG_USEC", INTERVAL).start();
    assert_eq!([(); 3].map(|()| manager.message()), ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]);
    let expected = victim.work();
    tracer.stop().report().assert_equals(&expected);
    victim.finish();
    let last = std::iter::repeat_with(|| manager.message()).find(|message| message != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
}

#[test]
fn no_sign_of_life_is_sent_unless_it_is_requested() {
    let manager = Manager::new();
    let mut victim = victim::start("exact");
    let tracer = manager.trace(Trace::victim(&victim)).start();
    victim.work();
    tracer.stop().assert_code(0);
    victim.finish();
    manager.socket.set_nonblocking(true).expect("it is a socket");
    let mut bytes = [0; 100];
    let messages = std::iter::from_fn(|| manager.socket.recv(&mut bytes).ok().map(|length| bytes[..length].to_vec()));
    assert_eq!(messages.collect::<Vec<_>>(), [b"READY=1\n".to_vec(), b"STOPPING=1\n".to_vec()]);
}
