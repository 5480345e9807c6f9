//! Files that a program opens, as fanotify(7) reports them.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Interval in milliseconds between checks for the end of the observation.
const INTERVAL: i32 = 20;

/// Observation of the opens in whole file systems.
pub struct Opens {
    is_done: Arc<AtomicBool>,
    thread: JoinHandle<OpenedFiles>,
}

/// Paths of opened files.
#[derive(Debug, Default)]
pub struct OpenedFiles {
    /// Opened by processes that run the program.
    pub by_program: BTreeSet<PathBuf>,
    /// Opened by processes that had ended before their program was looked up.
    pub by_ended: BTreeSet<PathBuf>,
}

impl Opens {
    /// Observes opens by processes that run the file `program`, in the file systems of `places`.
    #[must_use]
    pub fn observe(program: &Path, places: &[&Path]) -> Self {
        let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_UNLIMITED_QUEUE;
        // SAFETY: the call takes two numbers.
        let queue = unsafe { libc::fanotify_init(flags, (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) as u32) };
        assert!(queue >= 0, "fanotify_init: {}", io::Error::last_os_error());
        // SAFETY: the call returned a new descriptor, which nothing else owns.
        let queue = unsafe { OwnedFd::from_raw_fd(queue) };
        for place in places {
            let path = CString::new(place.as_os_str().as_bytes()).expect("a path has no zero");
            let mark = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
            // SAFETY: the path is a string that ends with zero.
            let done =
                unsafe { libc::fanotify_mark(queue.as_raw_fd(), mark, libc::FAN_OPEN, libc::AT_FDCWD, path.as_ptr()) };
            assert!(done == 0, "fanotify_mark of {}: {}", place.display(), io::Error::last_os_error());
        }
        let is_done = Arc::new(AtomicBool::new(false));
        let program = fs::canonicalize(program).expect("the program exists");
        let thread = {
            let is_done = Arc::clone(&is_done);
            thread::spawn(move || observe(&queue, &program, &is_done))
        };
        Self { is_done, thread }
    }

    /// Ends the observation.
    #[must_use]
    pub fn end(self) -> OpenedFiles {
        self.is_done.store(true, Ordering::Relaxed);
        self.thread.join().expect("the observation does not fail")
    }
}

fn observe(queue: &OwnedFd, program: &Path, is_done: &AtomicBool) -> OpenedFiles {
    let mut opened = OpenedFiles::default();
    let mut buffer = [0_u64; 1024];
    loop {
        // All opens before this moment are in the queue.
        let is_last = is_done.load(Ordering::Relaxed);
        // SAFETY: the buffer has this length.
        let length = unsafe { libc::read(queue.as_raw_fd(), buffer.as_mut_ptr().cast(), size_of_val(&buffer)) };
        if let Ok(length @ 1..) = usize::try_from(length) {
            add_events(&buffer, length, program, &mut opened);
            continue;
        }
        // Any other error concerns a single event: fanotify cannot open every device.
        if io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock {
            continue;
        }
        if is_last {
            return opened;
        }
        let mut poll = libc::pollfd { fd: queue.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` is one valid pollfd for the length of the call.
        unsafe { libc::poll(&raw mut poll, 1, INTERVAL) };
    }
}

fn add_events(buffer: &[u64], length: usize, program: &Path, opened: &mut OpenedFiles) {
    let mut at = 0;
    while at + size_of::<libc::fanotify_event_metadata>() <= length {
        let place = buffer.as_ptr().cast::<u8>().wrapping_add(at).cast::<libc::fanotify_event_metadata>();
        // SAFETY: the kernel has written this event into the buffer, which is long enough.
        let event = unsafe { place.read_unaligned() };
        assert!(event.fd >= 0, "the queue of fanotify has lost events");
        // SAFETY: the event has a new descriptor, which nothing else owns.
        let file = unsafe { OwnedFd::from_raw_fd(event.fd) };
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("the descriptor is open");
        match fs::read_link(format!("/proc/{}/exe", event.pid)) {
            Ok(exe) if exe == program => _ = opened.by_program.insert(path),
            Ok(_) => {}
            Err(_) => _ = opened.by_ended.insert(path),
        }
        at += event.event_len as usize;
    }
}
