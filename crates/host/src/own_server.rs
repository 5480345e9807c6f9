//! A *server* is the executable of memtrace, started again under another name. It gets requests through a socket, and forks a
//! *worker* for each request. A worker can hang or be killed without harm to memtrace. The patcher is a server without workers,
//! which is not killed.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, shutdown, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::procfs;

/// Maximum number of descriptors of a message.
pub(crate) const MAX_DESCRIPTORS: usize = 5;

/// Memory that the allocator of a server reserves at once, in KiB (`mi_option_arena_reserve` of mimalloc). The default of 1 GiB
/// would count as memory of each worker.
const ARENA: &str = "65536";

/// Time limit for the exit of a server after its socket is closed, if the server is not killed.
const END: Duration = Duration::from_secs(1);
/// Interval of the checks whether it has ended.
const END_INTERVAL: Duration = Duration::from_millis(1);

/// Environment variables of the tests that kill a server (`patcher/x86_64/fault.rs`).
#[cfg(feature = "fault-points")]
const FAULT_VARIABLES: [&str; 2] = ["MEMTRACE_FAULT_POINT", "MEMTRACE_FAULT_TARGET"];

/// A running server.
#[derive(Debug)]
pub(crate) struct OwnServer {
    child: Child,
    socket: OwnedFd,
    /// True if the server is killed when this value is dropped. Otherwise, it finishes its present request.
    is_killed: bool,
}

impl OwnServer {
    /// Starts the executable with `name` as its first argument. The server is killed when the value is dropped.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        Self::start_with(name, true)
    }

    /// Starts a server that always finishes its present request.
    pub(crate) fn start_uninterrupted(name: &str) -> io::Result<Self> {
        Self::start_with(name, false)
    }

    fn start_with(name: &str, is_killed: bool) -> io::Result<Self> {
        let (socket, end) = pair()?;
        let mut command = Command::new(procfs::own_program());
        // A signal from the terminal is for memtrace only: memtrace then writes its report, and needs its servers for it.
        command.arg0(name).env_clear().env("MIMALLOC_ARENA_RESERVE", ARENA).current_dir("/").process_group(0);
        #[cfg(feature = "fault-points")]
        command.envs(FAULT_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        let child = command.stdin(Stdio::from(end)).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { child, socket, is_killed })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        // The end of the socket ends the server, even if memtrace may not send signals to another user.
        let _ = shutdown(&self.socket, Shutdown::Both);
        if self.is_killed {
            let _ = self.child.kill();
            let _ = self.child.wait();
            return;
        }
        let end = Instant::now() + END;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= end {
                log::warn!("process {} still works for memtrace; it ends by itself", self.child.id());
                return;
            }
            thread::sleep(END_INTERVAL);
        }
    }
}

/// The OOM killer chooses a process with this score before all others (`OOM_SCORE_ADJ_MAX`, include/uapi/linux/oom.h).
const HIGHEST_OOM_SCORE: i32 = 1000;

/// Prepares this process for the work of a server. Standard input is the socket of the server.
pub(crate) fn begin() {
    // memtrace can be protected from the OOM killer, but a server must not be. A process can always raise its own score.
    let _ = procfs::set_own_oom_score(HIGHEST_OOM_SCORE);
    isolate();
}

/// Closes the descriptors that this process has inherited, and ignores the signals that end memtrace.
pub(crate) fn isolate() {
    // SAFETY: the standard library has no descriptor besides the standard streams yet.
    unsafe { libc::close_range(3, u32::MAX, 0) };
    // A service manager signals all processes of a service. memtrace then writes its report, which needs its servers.
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        // SAFETY: an ignored signal needs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // memtrace may have inherited an ignored SIGCHLD. An ended worker would then have no status (waitpid(2)).
    // SAFETY: the default action needs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Returns a pair of sockets for datagrams.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends a message with descriptors.
pub(crate) fn send(socket: BorrowedFd<'_>, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes = encode(message)?;
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message of at most `most` bytes, with its descriptors; `None` if the socket is closed.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    most: usize,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; most];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    Ok(Some((decode(&bytes[..received.bytes])?, descriptors)))
}

/// Encodes a message.
pub(crate) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    postcard::to_stdvec(message).map_err(io::Error::other)
}

/// Decodes a message.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a message, and receives it as four bytes.
    fn received(message: &impl Serialize, most: usize) -> io::Result<Option<([u8; 4], Vec<OwnedFd>)>> {
        let (socket, other) = pair().unwrap();
        send(socket.as_fd(), message, &[]).unwrap();
        receive(other.as_fd(), most)
    }

    #[test]
    fn messages_have_a_maximum_length() {
        assert!(received(&[7_u8; 3], 4).is_err(), "too short for the type");
        assert!(matches!(received(&[7_u8; 4], 4), Ok(Some(([7, 7, 7, 7], _)))));
        assert!(matches!(received(&[7_u8; 4], 5), Ok(Some(([7, 7, 7, 7], _)))));
        // The first four bytes alone would be a message.
        assert_eq!(received(&[7_u8; 5], 4).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(matches!(received(&[7_u8; 5], 5), Ok(Some(([7, 7, 7, 7], _)))));
    }

    #[test]
    fn descriptors_of_a_message_are_limited() {
        let (socket, other) = pair().unwrap();
        let passed = |count: usize| vec![socket.as_fd(); count];
        for count in [0, MAX_DESCRIPTORS - 1, MAX_DESCRIPTORS] {
            send(socket.as_fd(), &7_u8, &passed(count)).unwrap();
            let (number, descriptors) = receive::<u8>(other.as_fd(), 1).unwrap().unwrap();
            assert_eq!((number, descriptors.len()), (7, count));
        }
        let refused = send(socket.as_fd(), &7_u8, &passed(2 * MAX_DESCRIPTORS));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn closed_socket_has_no_message() {
        let (socket, other) = pair().unwrap();
        drop(socket);
        assert!(matches!(receive::<u8>(other.as_fd(), 1), Ok(None)));
    }
}
