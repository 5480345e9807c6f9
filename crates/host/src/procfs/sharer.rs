//! Processes that use the memory of another process, as after vfork(2).

use memtrace_model::Pid;

use super::kernel_text::parent;

/// `KCMP_VM`: compare address spaces (include/uapi/linux/kcmp.h).
const KCMP_VM: libc::c_int = 1;

/// Returns the parent of a process if both use the same memory. Returns `None` also if memtrace may not compare them, or the
/// kernel lacks kcmp(2).
#[must_use]
pub fn parent_with_same_memory(pid: Pid) -> Option<Pid> {
    parent(pid).filter(|&parent| have_same_memory(pid, parent))
}

fn have_same_memory(one: Pid, other: Pid) -> bool {
    // SAFETY: kcmp(2) takes integers and touches no memory of ours.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one.0, other.0, KCMP_VM, 0, 0) };
    order == 0
}

#[cfg(test)]
mod tests {
    use harness::fixtures::Running;

    use super::*;

    #[test]
    fn only_the_same_address_space_is_the_same_memory() {
        let own = Pid(std::process::id());
        let child = Running::start("cat");
        assert!(have_same_memory(own, own));
        assert!(!have_same_memory(child.pid(), own));
        assert_eq!(parent_with_same_memory(child.pid()), None);
        assert_eq!(parent_with_same_memory(Pid(u32::MAX)), None);
        child.end();
    }
}
