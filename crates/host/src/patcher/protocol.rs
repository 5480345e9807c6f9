//! Messages between memtrace and the patcher.
//!
//! Each request is complete: the patcher remembers nothing between two requests, so that another patcher can go on after one
//! has ended.

use std::time::Duration;

use memtrace_object::overlay::layout::MAGIC;
use serde::{Deserialize, Serialize};

use super::refusal::PatchRefusal;

/// Maximum length of an encoded [`Request`] or [`Answer`].
pub(super) const MAX_MESSAGE: usize = 64 << 10;

/// Part of [`MAGIC`] that all versions share.
const ANY_VERSION: usize = 6;

/// Returns true if a file begins like a stub of another version.
pub(super) fn is_of_other_version(header: &[u8]) -> bool {
    header.starts_with(&MAGIC[..ANY_VERSION]) && !header.starts_with(&MAGIC)
}

/// Process to patch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PatchPlan {
    pub pid: u32,
    /// Start of the process, in clock ticks since the boot. A later process with the same pid has another start.
    pub start_time: u64,
    /// Address in the process of `syscall; cmp $-4095,%rax; jae; ret`.
    pub syscall_gadget: u64,
    /// Address in the process of `mov $15,%rax; syscall`, which restores a thread from a signal frame.
    pub sigreturn_gadget: u64,
    /// Lowest address of the object with the sites. The stub is mapped below it.
    pub near: u64,
    /// Mean interval between two samples in bytes, before the shift.
    pub interval_base: u64,
    pub shift: u8,
    /// Pid and start time of the memtrace that takes the samples.
    pub owner: (u32, u64),
    /// Address of an earlier stub to use again.
    pub existing: Option<u64>,
}

/// Stops of a process, and what they needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stops {
    /// Duration of the stop of the main thread alone.
    pub one: Duration,
    /// Duration of the last stop of all threads.
    pub all: Duration,
    /// Number of stops of all threads that had to be repeated.
    pub retries: u32,
    /// Number of system calls that run again, because the stop would have made them fail with `EINTR`.
    pub rewound: u32,
    /// Countdowns of the threads that count for the present session, read when the original code was restored.
    pub countdowns: Vec<u64>,
}

/// A request. memtrace sends the next one after the answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Choose an address for the stub, or open the file of the existing one. Stops nothing.
    Place(PatchPlan),
    /// Map the stub.
    Write {
        plan: PatchPlan,
        base: u64,
        image: Vec<u8>,
        /// First page of the data.
        control: Vec<u8>,
    },
    /// Write the jumps.
    Enable {
        plan: PatchPlan,
        base: u64,
        /// Header and records of the stub.
        header: Vec<u8>,
        /// First page of the data, if the stub is from an earlier session.
        control: Option<Vec<u8>>,
    },
    /// Write the original code. `start_time`: as in [`PatchPlan`].
    Disable { pid: u32, start_time: u64, base: u64 },
}

/// Answer to a request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The stub can be mapped at this address.
    Placed {
        base: u64,
    },
    /// The existing stub can be used. The descriptor is its file.
    Adopted,
    /// The stub is mapped. The descriptor is its file.
    Mapped(Stops),
    Done(Stops),
    Refused(PatchRefusal),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_server::{decode, encode};

    #[test]
    fn longest_messages_fit_into_their_buffers() {
        let plan = PatchPlan {
            pid: u32::MAX,
            start_time: u64::MAX,
            syscall_gadget: u64::MAX,
            sigreturn_gadget: u64::MAX,
            near: u64::MAX,
            interval_base: u64::MAX,
            shift: u8::MAX,
            owner: (u32::MAX, u64::MAX),
            existing: Some(u64::MAX),
        };
        let image = vec![0xff; memtrace_object::overlay::layout::CODE_SIZE as usize];
        let write = Request::Write { plan, base: u64::MAX, image, control: vec![0xff; 4096] };
        let bytes = encode(&write).unwrap();
        assert!(bytes.len() <= MAX_MESSAGE, "{}", bytes.len());
        let Request::Write { image, control, .. } = decode(&bytes).unwrap() else { panic!("another request") };
        assert_eq!((image.len(), control.len()), (32_768, 4096));
        let stops = Stops { countdowns: vec![u64::MAX; 4096], ..Stops::default() };
        assert!(encode(&Answer::Done(stops)).unwrap().len() <= MAX_MESSAGE);
    }
}
