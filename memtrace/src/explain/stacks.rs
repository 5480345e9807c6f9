//! Which memory is a thread's stack.
//!
//! The kernel marks only the main thread's. Another's is where its stack pointer is; while it runs, the kernel does not
//! say where that is. But glibc and musl put what they know of a thread at the top of its stack, beginning with its own
//! address.

use std::fs;

use super::span::Span;
use crate::model::{AbsAddr, Bytes, Pid, Tid};
use crate::procfs::peek::{Peek, Words as _};
use crate::procfs::process::proc_path;

/// Where threads' stack pointers are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Threads {
    pub(super) count: u32,
    pub(super) pointers: Vec<(Tid, AbsAddr)>,
}

/// So far below a stack's top what the C library knows of its thread may begin: `struct pthread` and an alignment.
const TOP: Bytes = Bytes(8 << 10);
/// What it begins at a multiple of (`TCB_ALIGNMENT`, 64, in glibc; 16 before 2.37, and the alignment of the program's
/// own variables, which is more).
const ALIGNMENT: usize = 16;

/// Nothing is mapped below that (`vm.mmap_min_addr`, and where programs are linked to).
const LOWEST: u64 = 1 << 16;

/// Asks for the stack pointers of all threads that are not running at the moment.
pub(super) fn threads(pid: Pid) -> Threads {
    let Ok(folders) = fs::read_dir(proc_path(pid, "task")) else { return Threads::default() };
    let mut threads = Threads::default();
    for folder in folders.filter_map(Result::ok) {
        threads.count += 1;
        let tid = folder.file_name().to_str().and_then(|name| name.parse().ok()).map(Tid);
        let pointer = fs::read_to_string(folder.path().join("syscall")).ok().and_then(|text| pointer(&text));
        threads.pointers.extend(tid.zip(pointer));
    }
    threads
}

/// `running`, or `-1 SP PC`, or `NUMBER ARGUMENT... SP PC` (`proc_pid_syscall`, fs/proc/base.c).
fn pointer(text: &str) -> Option<AbsAddr> {
    let mut words = text.split_ascii_whitespace().rev();
    let _instruction = words.next()?;
    let pointer = words.next()?.strip_prefix("0x")?;
    u64::from_str_radix(pointer, 16).ok().map(AbsAddr)
}

/// Whether what the C library knows of a thread lies at the top of `span`: it begins with its own address, which in
/// glibc stands there once more (`tcbhead_t`: `tcb`, `dtv`, `self`); in musl three others follow (`struct pthread`:
/// `self`, `dtv`, `prev`, `next`).
pub(super) fn has_thread_at_its_top(peek: &Peek, span: Span) -> bool {
    let start = AbsAddr(span.end.0.saturating_sub(TOP.0).max(span.start.0));
    let Ok(mut view) = peek.view(start, span.end) else { return false };
    (start.0..span.end.0.saturating_sub(24)).step_by(ALIGNMENT).any(|at| {
        let mut next = |offset| view.word(AbsAddr(at + offset)).unwrap_or(0);
        let is_pointer = |word: u64| word.is_multiple_of(8) && word > LOWEST;
        next(0) == at
            && (next(16) == at || next(8) != at && [8, 16, 24].into_iter().all(|offset| is_pointer(next(offset))))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::scratch::Anonymous;

    #[test]
    fn a_stack_pointer_is_the_last_word_but_one() {
        assert_eq!(
            pointer("0 0x3 0x7fac 0x20000 0x0 0x0 0x0 0x7ffe3e0e3f78 0x7fac3e6832ad\n"),
            Some(AbsAddr(0x7ffe_3e0e_3f78))
        );
        assert_eq!(pointer("-1 0x7ffe3e0e3f78 0x7fac3e6832ad\n"), Some(AbsAddr(0x7ffe_3e0e_3f78)));
        for text in ["running\n", "", "0x1", "x y\n", "0xg 0x1"] {
            assert_eq!(pointer(text), None, "{text}");
        }
    }

    #[test]
    fn a_waiting_threads_pointer_is_near_its_variables() {
        let (ready, is_ready) = mpsc::channel();
        let (done, wait) = mpsc::channel::<()>();
        let waiting = thread::spawn(move || {
            let variable = 0u8;
            // SAFETY: gettid(2) takes nothing and cannot fail.
            let tid = unsafe { libc::gettid() };
            ready.send((u32::try_from(tid).unwrap(), &raw const variable as u64)).unwrap();
            wait.recv().unwrap_err();
        });
        let (tid, variable) = is_ready.recv().unwrap();
        // It has said that it is ready, and is about to wait.
        let pointer = loop {
            let found = threads(Pid(std::process::id()));
            assert!(found.count >= 2);
            if let Some((_, pointer)) = found.pointers.into_iter().find(|(thread, _)| *thread == Tid(tid)) {
                break pointer;
            }
        };
        drop(done);
        waiting.join().unwrap();
        assert!(pointer.0.abs_diff(variable) < 64 << 10, "{pointer} {variable:#x}");
        assert_eq!(threads(Pid(u32::MAX)), Threads::default());
    }

    #[test]
    fn a_thread_is_known_by_its_own_address_at_the_top() {
        let memory = Anonymous::new(64 << 10);
        let span = Span { start: memory.start(), end: AbsAddr(memory.start().0 + (64 << 10)) };
        let peek = Peek::open(Pid(std::process::id())).unwrap();
        assert!(!has_thread_at_its_top(&peek, span));
        let at = (64 << 10) - 0x940;
        memory.write(at, span.start.0 + at);
        assert!(!has_thread_at_its_top(&peek, span), "once is no proof");
        memory.write(at + 16, span.start.0 + at);
        assert!(has_thread_at_its_top(&peek, span));
    }
}
