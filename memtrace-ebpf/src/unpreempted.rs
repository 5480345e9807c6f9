//! Programs of type tracepoint, which the kernel does not preempt.
//!
//! Since Linux 7.0 a raw program can be preempted, and the kernel skips a program while a run of it is in progress on
//! the same CPU: see [`crate::redundant`]. A program of type tracepoint is called by perf, which disables preemption
//! ("tracing: perf: Have perf tracepoint callbacks always disable preemption"). The kernel skips it only while
//! `bpf_prog_active` of the CPU is not 0 (`trace_call_bpf`, kernel/trace/bpf_trace.c): a task was preempted in a system
//! call on a map (`bpf_disable_instrumentation`), or the tracepoint is inside of a program of perf or of a kprobe. The
//! kernel counts these skipped runs too.
//!
//! The context is a record with the fields of the tracepoint after a common header. Raw arguments are not available.

/// Result of each program. If a program returned 0, the kernel would withhold the event from the other users of perf
/// (`perf_trace_run_bpf_submit`, kernel/events/core.c).
pub const PASS_ON: u32 = 1;

/// Common header of a record (`struct trace_entry`, include/linux/trace_events.h). A program cannot read it: the kernel
/// has put the address of registers there.
pub type Header = u64;

/// Declares a program that calls a function with its context. The section has the type, the category and the name of the
/// tracepoint. The macro `tracepoint` of aya is not used, because its programs always return 0.
macro_rules! program {
    ($program:ident at $section:tt: $run:expr) => {
        #[unsafe(no_mangle)]
        #[unsafe(link_section = $section)]
        extern "C" fn $program(context: *mut core::ffi::c_void) -> u32 {
            $run(&aya_ebpf::programs::TracePointContext::new(context));
            $crate::unpreempted::PASS_ON
        }
    };
}
pub(crate) use program;
