//! Reader of futex waits that are in progress.

use memtrace_model::{AbsAddr, Pid, Tid};

use crate::procfs::kernel_files;
use crate::procfs::process::proc_path;
use crate::target_files::read_memory;

/// Futex operations that wait (include/uapi/linux/futex.h), without their flags: `FUTEX_WAIT`, `FUTEX_LOCK_PI`,
/// `FUTEX_WAIT_BITSET`, `FUTEX_WAIT_REQUEUE_PI` and `FUTEX_LOCK_PI2`.
const WAITS: [u64; 5] = [0, 6, 9, 11, 13];

/// Bits of the operation (`FUTEX_CMD_MASK`, include/uapi/linux/futex.h).
const OPERATION: u64 = 0x7f;

/// `FUTEX_TID_MASK`, include/uapi/linux/futex.h.
const HOLDER: u32 = 0x3fff_ffff;

/// Futex wait of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutexWaiter {
    /// Address of the futex.
    pub address: AbsAddr,
    /// Thread that may hold the futex, by the same rule as in the BPF program at the futex call.
    pub holder: Option<Tid>,
}

/// Returns the futex wait of a thread; `None` if the thread does not wait for a futex, or has exited.
pub fn futex_wait(pid: Pid, tid: Tid) -> Option<FutexWaiter> {
    let call = system_call(pid, tid)?;
    let (address, operation, expected) = parse(&call)?;
    let word = |address| {
        let bytes = read_memory(pid, address, size_of::<u32>())?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let holder = match (operation, expected) {
        (6 | 13, _) => word(address).map(|word| word & HOLDER),
        // A mutex of glibc with waiters, as in the BPF program.
        (0 | 9, 2) => word(AbsAddr(address.0.wrapping_add(8))),
        _ => None,
    };
    Some(FutexWaiter { address, holder: holder.filter(|holder| *holder != 0).map(Tid) })
}

/// Returns the text of `/proc/PID/task/TID/syscall`; `None` if the thread has exited, or memtrace may not read it.
#[must_use]
pub fn system_call(pid: Pid, tid: Tid) -> Option<String> {
    kernel_files::read_to_string(proc_path(pid, &format!("task/{}/syscall", tid.0))).ok()
}

/// Parses `/proc/PID/task/TID/syscall`: the number of the call, and its arguments. Returns the address, the operation
/// and the expected value of a call that waits for a futex.
fn parse(call: &str) -> Option<(AbsAddr, u64, u64)> {
    let mut words = call.split_ascii_whitespace();
    if words.next()?.parse() != Ok(libc::SYS_futex) {
        return None;
    }
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (address, operation, expected) = (argument()?, argument()? & OPERATION, argument()?);
    WAITS.contains(&operation).then_some((AbsAddr(address), operation, expected & u64::from(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn calls_that_wait_are_parsed() {
        let futex = libc::SYS_futex;
        let call = |arguments: &str| parse(&format!("{futex} {arguments}"));
        assert_eq!(call("0x7f00 0x80 0x2 0x0 0x0 0x0 0x1 0x2"), Some((AbsAddr(0x7f00), 0, 2)));
        assert_eq!(call("0x7f00 0x189 0xffffffff00000002"), Some((AbsAddr(0x7f00), 9, 2)));
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
