//! Delivery of signals.

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;

use crate::thread::Thread;
use crate::{gate, kernel, pending};

/// Highest value of `sa_handler` without a handler: `SIG_DFL` is 0, `SIG_IGN` is 1
/// (include/uapi/asm-generic/signal-defs.h).
const LAST_WITHOUT_HANDLER: u64 = 1;

/// `SA_ONSTACK` (include/uapi/asm-generic/signal-defs.h): the handler runs on the alternate signal stack, if there is
/// one.
const ALTERNATE_STACK: u64 = 0x0800_0000;

/// `TP_PROTO(int sig, struct kernel_siginfo *info, struct k_sigaction *ka)`, include/trace/events/signal.h. The
/// program runs in the task that gets the signal. The first two words of `ka` are the handler and the flags
/// (include/linux/signal_types.h).
#[raw_tracepoint(tracepoint = "signal_deliver")]
fn signal_deliver(context: RawTracePointContext) -> i32 {
    let action: u64 = context.arg(2);
    if gate::is_open_for_current() && kernel::read_word(action, 0) > LAST_WITHOUT_HANDLER {
        let alternate_stack = kernel::read_word(action, 8) & ALTERNATE_STACK != 0;
        pending::interrupt(&context, Thread::current().tid, alternate_stack);
    }
    0
}
