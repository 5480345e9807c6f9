//! Processes that use the memory of a victim. They run while its threads are stopped.

use libc::{c_int, c_void};

use super::super::target;
use super::*;

/// Size of the stack of a sharer.
const STACK: usize = 1 << 16;

/// Values of [`Shared::sharer`]: the main thread of the victim must start a sharer, or has started one.
const WANTED: u64 = 1;
const STARTED: u64 = 2;

/// Starts a process with the memory of this one, if it is wanted. It runs until the value is 0.
pub(super) fn start_if_wanted(shared: &'static Shared) {
    if shared.sharer.compare_exchange(WANTED, STARTED, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        return;
    }
    let top = vec![0_u8; STACK].leak().as_mut_ptr_range().end;
    let argument = std::ptr::from_ref(shared).cast_mut();
    // SAFETY: the stack is used for nothing else, and the function and its argument live as long as the process.
    let pid = unsafe { libc::clone(share, top.cast(), libc::CLONE_VM, argument.cast()) };
    shared.errors.fetch_add(u64::from(pid < 0), Ordering::SeqCst);
}

extern "C" fn share(shared: *mut c_void) -> c_int {
    // SAFETY: the argument is a reference that lives as long as the process.
    let shared = unsafe { &*shared.cast::<Shared>() };
    // This process must end too when a failed test kills its victim.
    // SAFETY: the call takes numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    while shared.sharer.load(Ordering::SeqCst) == STARTED {
        thread::yield_now();
    }
    0
}

#[test]
fn privileged_code_of_shared_memory_is_not_changed() {
    assert_root();
    let victim = Victim::start();
    let set = |sharer| {
        victim.shared.sharer.store(sharer, Ordering::SeqCst);
        wait_until("the sharer has started or ended", || target::shares_memory(victim.pid) == (sharer == WANTED));
    };
    set(WANTED);
    assert_eq!(victim.enable(true, None).unwrap().unwrap_err(), PatchRefusal::SharedMemory);
    assert!(!victim.is_patched());
    set(0);
    victim.enable(true, None).unwrap().unwrap();
    set(WANTED);
    assert_eq!(victim.disable(None).unwrap().unwrap_err(), PatchRefusal::SharedMemory);
    assert!(victim.is_patched());
    set(0);
    victim.disable(None).unwrap().unwrap();
    assert!(!victim.is_patched());
    assert_eq!(victim.end(), 0, "a sharer has not started, or epoll_wait has returned EINTR");
}
