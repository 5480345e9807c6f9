//! Finds thread stacks.
//!
//! The kernel names only the stack of the main thread. The stack of another thread is the mapping
//! that contains the thread's stack pointer, but the kernel reports no stack pointer of a running
//! thread. glibc and musl put the thread control block at the top of the stack, and this block
//! starts with its own address.

use std::fs;

use memtrace_host::procfs::{MemoryReader, WordReader as _};
use memtrace_host::procfs::{proc_path, system_call};
use memtrace_model::{AbsAddr, Bytes, Pid, Tid};

use super::span::Span;

/// Threads of a process, and the stack pointers of the threads that are not running.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Threads {
    pub(super) count: u32,
    pub(super) pointers: Vec<(Tid, AbsAddr)>,
}

/// Largest distance of the thread control block from the top of the stack: the size of `struct pthread`, and alignment.
const TOP: Bytes = Bytes(8 << 10);
/// Smallest alignment of the thread control block: 16 in glibc before 2.37, 64 since then (`TCB_ALIGNMENT`), and more
/// if thread-local variables need it.
const ALIGNMENT: usize = 16;

/// Lowest address that a process maps (`vm.mmap_min_addr`, and the link addresses of executables). A smaller word is
/// not a pointer.
const LOWEST: u64 = 1 << 16;

/// Reads the threads, and the stack pointers of the threads that are not running.
pub(super) fn threads(pid: Pid) -> Threads {
    let Ok(entries) = fs::read_dir(proc_path(pid, "task")) else { return Threads::default() };
    let mut threads = Threads::default();
    for entry in entries.filter_map(Result::ok) {
        threads.count += 1;
        let tid = entry.file_name().to_str().and_then(|name| name.parse().ok()).map(Tid);
        let pointer = tid.and_then(|tid| stack_pointer(&system_call(pid, tid)?));
        threads.pointers.extend(tid.zip(pointer));
    }
    threads
}

/// Parses a text of the form `running`, `-1 SP PC` or `NUMBER ARGUMENT... SP PC`
/// (`proc_pid_syscall`, fs/proc/base.c).
fn stack_pointer(text: &str) -> Option<AbsAddr> {
    let mut words = text.split_ascii_whitespace().rev();
    let _instruction = words.next()?;
    let pointer = words.next()?.strip_prefix("0x")?;
    u64::from_str_radix(pointer, 16).ok().map(AbsAddr)
}

/// Returns true if a thread control block lies at the top of `span`. The block starts with its own address. In glibc,
/// the third word repeats the address (`tcbhead_t`: `tcb`, `dtv`, `self`). In musl, three other pointers follow the
/// address (`struct pthread`: `self`, `dtv`, `prev`, `next`).
pub(super) fn has_thread_block(reader: &MemoryReader, span: Span) -> bool {
    let start = AbsAddr(span.end.0.saturating_sub(TOP.0).max(span.start.0));
    let Ok(mut view) = reader.view(start, span.end) else { return false };
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

    use harness::fixtures::Anonymous;

    use super::*;

    #[test]
    fn the_stack_pointer_is_the_second_last_word() {
        assert_eq!(
            stack_pointer("0 0x3 0x7fac 0x20000 0x0 0x0 0x0 0x7ffe3e0e3f78 0x7fac3e6832ad\n"),
            Some(AbsAddr(0x7ffe_3e0e_3f78))
        );
        assert_eq!(stack_pointer("-1 0x7ffe3e0e3f78 0x7fac3e6832ad\n"), Some(AbsAddr(0x7ffe_3e0e_3f78)));
        for text in ["running\n", "", "0x1", "x y\n", "0xg 0x1"] {
            assert_eq!(stack_pointer(text), None, "{text}");
        }
    }

    #[test]
    fn the_pointer_of_a_waiting_thread_is_near_its_variables() {
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
        // The stack pointer is available once the thread waits.
        let pointer = loop {
            let own = threads(Pid(std::process::id()));
            assert!(own.count >= 2);
            if let Some((_, pointer)) = own.pointers.into_iter().find(|(thread, _)| *thread == Tid(tid)) {
                break pointer;
            }
        };
        drop(done);
        waiting.join().unwrap();
        assert!(pointer.0.abs_diff(variable) < 64 << 10, "{pointer} {variable:#x}");
        assert_eq!(threads(Pid(u32::MAX)), Threads::default());
    }

    #[test]
    fn a_thread_control_block_starts_with_its_own_address() {
        let memory = Anonymous::new(64 << 10);
        let span = Span { start: memory.start(), end: AbsAddr(memory.start().0 + (64 << 10)) };
        let reader = MemoryReader::open(Pid(std::process::id()), None).unwrap();
        assert!(!has_thread_block(&reader, span));
        let at = (64 << 10) - 0x940;
        memory.write(at, span.start.0 + at);
        assert!(!has_thread_block(&reader, span), "a single pointer is not a control block");
        memory.write(at + 16, span.start.0 + at);
        assert!(has_thread_block(&reader, span));
    }
}
