//! Reader of futex waits that are in progress.

use memtrace_model::{AbsAddr, FutexUse, Pid, Tid};

use crate::procfs::kernel_files;
use crate::procfs::process::proc_path;
use crate::target_files::read_memory;

/// Futex operations that wait (include/uapi/linux/futex.h), without their flags: `FUTEX_WAIT`, `FUTEX_LOCK_PI`,
/// `FUTEX_WAIT_BITSET`, `FUTEX_WAIT_REQUEUE_PI` and `FUTEX_LOCK_PI2`.
const WAITS: [u64; 5] = [0, 6, 9, 11, 13];

/// Bits of the operation (`FUTEX_CMD_MASK`, include/uapi/linux/futex.h).
const OPERATION: u64 = 0x7f;

/// `FUTEX_PRIVATE_FLAG`, include/uapi/linux/futex.h.
const PRIVATE: u64 = 0x80;

/// `FUTEX_TID_MASK`, include/uapi/linux/futex.h.
const HOLDER: u32 = 0x3fff_ffff;

/// Futex wait of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutexWaiter {
    /// Address of the futex.
    pub address: AbsAddr,
    /// Thread that may hold the futex. The BPF program at the futex call uses the same rule.
    pub holder: Option<Tid>,
    /// Use of the futex. The BPF program at the futex call uses the same rule.
    pub usage: FutexUse,
}

/// Futex call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    address: AbsAddr,
    /// Operation without its flags.
    operation: u64,
    /// True if no other process uses the futex.
    is_private: bool,
    expected: u32,
}

/// Returns the futex wait of a thread; `None` if the thread does not wait for a futex, or has exited.
pub fn futex_wait(pid: Pid, tid: Tid) -> Option<FutexWaiter> {
    let call = parse(&system_call(pid, tid)?)?;
    let address = call.address;
    let word = |address| {
        let bytes = read_memory(pid, address, size_of::<u32>())?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let (holder, usage) = match (call.operation, call.expected) {
        (6 | 13, _) => (word(address).map(|word| word & HOLDER), FutexUse::Unknown),
        // The futex is a mutex of glibc with waiters. The BPF program uses the same rule.
        (0 | 9, 2) => (word(AbsAddr(address.0.wrapping_add(8))), FutexUse::Unknown),
        (0 | 9, 0) => (None, FutexUse::Event),
        (0 | 9, 1..=HOLDER) if !call.is_private => (Some(call.expected), FutexUse::MaybeJoin),
        _ => (None, FutexUse::Unknown),
    };
    Some(FutexWaiter { address, holder: holder.filter(|holder| *holder != 0).map(Tid), usage })
}

/// Returns the text of `/proc/PID/task/TID/syscall`; `None` if the thread has exited, or memtrace may not read it.
#[must_use]
pub fn system_call(pid: Pid, tid: Tid) -> Option<String> {
    kernel_files::read_to_string(proc_path(pid, &format!("task/{}/syscall", tid.0))).ok()
}

/// Parses `/proc/PID/task/TID/syscall`: the number of the call, and its arguments. Returns `None` if the call does not
/// wait for a futex.
fn parse(call: &str) -> Option<Call> {
    let mut words = call.split_ascii_whitespace();
    if words.next()?.parse() != Ok(libc::SYS_futex) {
        return None;
    }
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (address, flagged, expected) = (argument()?, argument()?, argument()?);
    let operation = flagged & OPERATION;
    WAITS.contains(&operation).then_some(Call {
        address: AbsAddr(address),
        operation,
        is_private: flagged & PRIVATE != 0,
        // The kernel reads the lower half only.
        expected: expected as u32,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn calls_that_wait_are_parsed() {
        let futex = libc::SYS_futex;
        let call = |arguments: &str| parse(&format!("{futex} {arguments}"));
        let wait = |operation, is_private| Some(Call { address: AbsAddr(0x7f00), operation, is_private, expected: 2 });
        assert_eq!(call("0x7f00 0x80 0x2 0x0 0x0 0x0 0x1 0x2"), wait(0, true));
        assert_eq!(call("0x7f00 0x189 0xffffffff00000002"), wait(9, true));
        assert_eq!(call("0x7f00 0x109 0x2"), wait(9, false));
        assert_eq!(call("0x7f00 0x81 0x1"), None, "a wake");
        assert_eq!((parse("running"), parse("1 0x0 0x0 0x0"), call("0x7f00")), (None, None, None));
    }

    #[test]
    fn waiting_thread_is_found() {
        let barrier = Arc::new(Barrier::new(2));
        let waiting = Arc::clone(&barrier);
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: the call takes nothing.
            sender.send(unsafe { libc::gettid() }).unwrap();
            waiting.wait();
        });
        let tid = Tid(u32::try_from(receiver.recv().unwrap()).unwrap());
        while futex_wait(Pid(std::process::id()), tid).is_none() {
            std::thread::yield_now();
        }
        barrier.wait();
        thread.join().unwrap();
    }
}
