//! Unix sockets of servers.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::process::TIMEOUT;

/// Connects to a server as soon as it listens. No event signals this moment, so the function tries
/// repeatedly.
#[must_use]
pub fn connect(socket: &Path) -> UnixStream {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "no server listens at {}: {error}", socket.display()),
        }
        thread::sleep(Duration::from_millis(5));
    }
}
