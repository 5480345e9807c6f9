//! Classes of waits, by the functions in their stacks.

/// Class of waits for a lock or a futex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitClass {
    /// Waits for a lock, or for a futex with an unknown use.
    #[default]
    Lock,
    /// Waits for the exit of a thread.
    Join,
    /// Waits for work or for an event: condition variables, semaphores, barriers, parked threads.
    Idle,
}

/// Functions of CPython that implement locks with condition variables or semaphores. They decide the class even if they are not
/// the innermost known function.
const LOCKS_OF_SEMAPHORES: [&str; 4] =
    ["PyThread_acquire_lock_timed", "PyThread_acquire_lock", "PyMutex_LockTimed", "take_gil"];

/// Functions of glibc and musl that wait, as [`plain_name`] returns them.
const FUNCTIONS: [(&str, WaitClass); 36] = [
    ("pthread_mutex_lock", WaitClass::Lock),
    ("pthread_mutex_lock_full", WaitClass::Lock),
    ("pthread_mutex_timedlock", WaitClass::Lock),
    ("pthread_mutex_clocklock", WaitClass::Lock),
    ("pthread_mutex_cond_lock", WaitClass::Lock),
    ("pthread_rwlock_rdlock", WaitClass::Lock),
    ("pthread_rwlock_wrlock", WaitClass::Lock),
    ("pthread_rwlock_timedrdlock", WaitClass::Lock),
    ("pthread_rwlock_timedwrlock", WaitClass::Lock),
    ("pthread_rwlock_clockrdlock", WaitClass::Lock),
    ("pthread_rwlock_clockwrlock", WaitClass::Lock),
    ("mtx_lock", WaitClass::Lock),
    ("mtx_timedlock", WaitClass::Lock),
    ("lll_lock_wait", WaitClass::Lock),
    ("lll_lock_wait_private", WaitClass::Lock),
    ("pthread_join", WaitClass::Join),
    ("pthread_timedjoin_np", WaitClass::Join),
    ("pthread_clockjoin_np", WaitClass::Join),
    ("pthread_clockjoin_ex", WaitClass::Join),
    ("pthread_timedjoin_ex", WaitClass::Join),
    ("thrd_join", WaitClass::Join),
    ("pthread_cond_wait", WaitClass::Idle),
    ("pthread_cond_timedwait", WaitClass::Idle),
    ("pthread_cond_clockwait", WaitClass::Idle),
    ("pthread_cond_wait_common", WaitClass::Idle),
    ("cnd_wait", WaitClass::Idle),
    ("cnd_timedwait", WaitClass::Idle),
    ("pthread_barrier_wait", WaitClass::Idle),
    ("sem_wait", WaitClass::Idle),
    ("sem_timedwait", WaitClass::Idle),
    ("sem_clockwait", WaitClass::Idle),
    ("new_sem_wait", WaitClass::Idle),
    ("new_sem_wait_slow", WaitClass::Idle),
    ("new_sem_wait_slow32", WaitClass::Idle),
    ("new_sem_wait_slow64", WaitClass::Idle),
    ("do_futex_wait", WaitClass::Idle),
];

/// Parts of the names of functions that wait, in the standard libraries of Rust and C++ and in `parking_lot`.
const METHODS: [(&str, WaitClass); 9] = [
    ("Mutex::lock", WaitClass::Lock),
    ("RwLock::", WaitClass::Lock),
    ("std::mutex::lock", WaitClass::Lock),
    ("std::thread::JoinInner", WaitClass::Join),
    ("std::thread::join", WaitClass::Join),
    ("Condvar::wait", WaitClass::Idle),
    ("Parker::park", WaitClass::Idle),
    ("std::thread::park", WaitClass::Idle),
    ("std::condition_variable", WaitClass::Idle),
];

/// Functions of glibc's allocator, as [`plain_name`] returns them.
const ARENA_FUNCTIONS: [&str; 26] = [
    "malloc",
    "free",
    "cfree",
    "calloc",
    "realloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_trim",
    "mallinfo",
    "mallinfo2",
    "malloc_stats",
    "malloc_info",
    "mallopt",
    "libc_malloc",
    "libc_free",
    "libc_calloc",
    "libc_realloc",
    "libc_memalign",
    "int_malloc",
    "int_free",
    "int_realloc",
    "int_memalign",
    "arena_get2",
];

impl WaitClass {
    /// Name of the spans that wait for the exit of a thread.
    pub const JOIN: &'static str = "join";

    /// Name of the spans that wait for a futex until it is not 0.
    pub const EVENT: &'static str = "event";

    /// Name of the locks of glibc's allocator.
    pub const ARENA: &'static str = "malloc arena";

    /// Returns the name in machine-readable output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Join => "join",
            Self::Idle => "idle",
        }
    }

    /// Returns the class of a wait for a futex; `None` if it is not known. `name`: name of the span. `stack`: frames,
    /// the innermost first; empty if the stack is not known.
    #[must_use]
    pub fn of_futex_wait(name: &str, stack: &[String]) -> Option<Self> {
        if name == Self::JOIN {
            return Some(Self::Join);
        }
        // The stack takes precedence over the name, because a lock can be a semaphore.
        Self::of_stack(stack).or((name == Self::EVENT).then_some(Self::Idle))
    }

    /// Returns the class of a stack: [`Self::Lock`] if a function is in [`LOCKS_OF_SEMAPHORES`], else the class of the
    /// innermost known function.
    fn of_stack(stack: &[String]) -> Option<Self> {
        if stack.iter().any(|frame| LOCKS_OF_SEMAPHORES.contains(&plain_name(frame))) {
            return Some(Self::Lock);
        }
        stack.iter().find_map(|frame| class_of(frame))
    }

    /// Returns true if the stack belongs to a wait for a lock of glibc's allocator. The innermost functions may have no names.
    #[must_use]
    pub fn is_of_arena(stack: &[String]) -> bool {
        let is_inner = |frame: &str| frame.starts_with("libc") || plain_name(frame).starts_with("lll_lock_wait");
        let first = stack.iter().map(String::as_str).find(|frame| !is_inner(frame) || is_arena_function(frame));
        first.is_some_and(is_arena_function)
    }
}

fn is_arena_function(frame: &str) -> bool {
    ARENA_FUNCTIONS.contains(&plain_name(frame))
}

fn class_of(frame: &str) -> Option<WaitClass> {
    let plain = plain_name(frame);
    let function = FUNCTIONS.iter().find(|(name, _)| *name == plain);
    let method = || METHODS.iter().find(|(part, _)| frame.contains("::") && frame.contains(part));
    function.or_else(method).map(|(_, class)| *class)
}

/// Returns the name of a C library function without its symbol version, without the suffix of a compiler's clone
/// (`.constprop.0`), and without internal prefixes (`__GI_`).
fn plain_name(frame: &str) -> &str {
    let end = frame.find(['@', '.']).unwrap_or(frame.len());
    let name = frame[..end].trim_start_matches('_');
    name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(frames: &[&str]) -> Option<WaitClass> {
        WaitClass::of_stack(&frames.iter().map(|frame| (*frame).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn names_of_clones_and_versions_are_plain() {
        let names = ["__new_sem_wait_slow64.constprop.0", "___pthread_cond_wait", "__GI___pthread_mutex_lock"];
        assert_eq!(names.map(plain_name), ["new_sem_wait_slow64", "pthread_cond_wait", "pthread_mutex_lock"]);
        assert_eq!(plain_name("pthread_cond_wait@@GLIBC_2.3.2"), "pthread_cond_wait");
    }

    #[test]
    fn innermost_known_function_decides_the_class() {
        let cond = ["__futex_abstimed_wait_common64", "__pthread_cond_wait_common", "take", "pthread_mutex_lock"];
        assert_eq!(class(&cond), Some(WaitClass::Idle));
        // The wait for the mutex after a condition variable has been signalled.
        let relock = ["__lll_lock_wait", "__pthread_mutex_cond_lock", "pthread_cond_wait"];
        assert_eq!(class(&relock), Some(WaitClass::Lock));
        assert_eq!(class(&["libc.so.6+0x8f0a2", "__pthread_clockjoin_ex", "main"]), Some(WaitClass::Join));
        assert_eq!(class(&["syscall", "std::sys::sync::condvar::futex::Condvar::wait"]), Some(WaitClass::Idle));
        assert_eq!(class(&["syscall", "std::sys::sync::mutex::futex::Mutex::lock_contended"]), Some(WaitClass::Lock));
        assert_eq!(class(&["__new_sem_wait_slow64", "PyThread_acquire_lock_timed"]), Some(WaitClass::Lock));
        assert_eq!(class(&["libc.so.6+0x8f0a2", "main"]), None);
        assert_eq!(class(&[]), None);
    }

    #[test]
    fn name_of_the_span_shows_the_class_of_waits_without_names() {
        let class = |name, frame: &str| WaitClass::of_futex_wait(name, &[frame.to_owned()]);
        assert_eq!(class(WaitClass::JOIN, "pthread_mutex_lock"), Some(WaitClass::Join));
        assert_eq!(class(WaitClass::EVENT, "libc.so.6+0x8f0a2"), Some(WaitClass::Idle));
        assert_eq!(class(WaitClass::EVENT, "PyThread_acquire_lock_timed"), Some(WaitClass::Lock));
        assert_eq!(class("futex", "libc.so.6+0x8f0a2"), None);
    }

    #[test]
    fn waits_for_arenas_are_directly_inside_of_the_allocator() {
        let is_of_arena = |frames: &[&str]| {
            WaitClass::is_of_arena(&frames.iter().map(|frame| (*frame).to_owned()).collect::<Vec<_>>())
        };
        assert!(is_of_arena(&["__lll_lock_wait_private", "_int_free", "free", "main"]));
        assert!(is_of_arena(&["libc.so.6+0x8f0a2", "libc.so.6+0x99000", "__libc_calloc", "main"]));
        assert!(!is_of_arena(&["__lll_lock_wait", "pthread_mutex_lock", "malloc", "main"]), "another allocator");
        assert!(!is_of_arena(&["libc.so.6+0x8f0a2", "main", "malloc"]));
    }
}
