//! Privileges of memtrace itself. Capabilities belong to a thread. A new thread has the capabilities of the thread that starts
//! it.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
pub use rustix::thread::CapabilitySet;
use rustix::thread::{
    CapabilitySets, capabilities, capability_is_in_bounding_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// Returns the effective capabilities of this thread.
pub fn effective_capabilities() -> CapabilitySet {
    capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective)
}

/// Gives up all capabilities of this thread that are not in `kept`.
///
/// # Errors
///
/// Errors of prctl(2) and capset(2).
pub fn keep_capabilities(kept: CapabilitySet) -> io::Result<()> {
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    reduce_bounding_set(kept)?;
    let sets = CapabilitySets {
        effective: effective & kept,
        permitted: permitted & kept,
        // The traces that triggers start get the ambient capabilities. The kernel removes ambient capabilities that are not
        // inheritable.
        inheritable: inheritable & kept,
    };
    Ok(set_capabilities(None, sets)?)
}

/// Removes all capabilities that are not in `kept` from the bounding set of this thread, if the thread has CAP_SETPCAP. Without
/// CAP_SETPCAP, as in a unit with ambient capabilities, the program that has started memtrace is responsible for the set.
pub(crate) fn reduce_bounding_set(kept: CapabilitySet) -> io::Result<()> {
    if !effective_capabilities().contains(CapabilitySet::SETPCAP) {
        return Ok(());
    }
    let all = (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number));
    for capability in all.filter(|&capability| !kept.contains(capability)) {
        // This fails if the kernel has no such capability.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    Ok(())
}

/// Refuses the privileges that a set-user-ID program or file capabilities would give to this thread and its children.
///
/// # Errors
///
/// Errors of prctl(2).
pub fn refuse_new_privileges() -> io::Result<()> {
    Ok(set_no_new_privs(true)?)
}

/// Forbids core dumps, and reads of the memory of this process by other processes of the user.
///
/// # Errors
///
/// Errors of prctl(2).
pub fn forbid_dumps() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
