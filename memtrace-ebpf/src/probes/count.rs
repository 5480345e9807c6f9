//! Programs for runs that count the blocks of each thread and send no records.

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use memtrace_common::vocabulary::Cookie;
use memtrace_common::vocabulary::counting::SizeCookie;

use crate::pending::Call;
use crate::registers::{self, Registers};
use crate::usage::calls::{self, Arguments};
use crate::{arguments, gate, private_stack};

#[inline(always)]
fn stack_pointer(context: &impl EbpfContext) -> u64 {
    registers::stack_pointer(registers::of(context))
}

#[inline(always)]
fn has_sizes(cookie: Cookie) -> bool {
    cookie.0 & Cookie::HAS_SIZES != 0
}

/// Entry of a function that frees a block: glibc's `free`. The size of the block is in front of the block.
#[uprobe]
fn count_sized_free(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::is_counting_for_current() {
        calls::free(&context, stack_pointer(&context), context.arg(0).unwrap_or(0), true);
    }
    0
}

/// Does the same as [`count_sized_free`], at a later instruction: a register has the word in front of the block. Calls
/// with a null pointer do not execute this instruction.
#[uprobe]
fn count_loaded_free(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::is_counting_for_current() {
        let cookie = SizeCookie(arguments::cookie(&context).0);
        let registers = registers::of(&context);
        let stack_pointer = registers::stack_pointer(registers);
        let word = registers::by_number(registers, stack_pointer, cookie.register());
        calls::free_with_word(&context, stack_pointer + cookie.lowered(), word);
    }
    0
}

/// Return of a function that calls no other hooked function: glibc's `malloc` and `calloc`.
#[uretprobe]
fn count_sized_return(context: RetProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::is_counting_for_current() {
        let registers = registers::of(&context);
        let entry = calls::at_entry(registers::stack_pointer(registers));
        calls::add_sized(&context, entry, registers::result(registers));
    }
    0
}

#[uprobe]
fn count_free(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::is_counting_for_current() {
        let cookie = arguments::cookie(&context);
        let block = arguments::argument(&context, cookie, 0).unwrap_or(0);
        calls::free(&context, stack_pointer(&context), block, has_sizes(cookie));
    }
    0
}

#[uprobe]
fn count_free_around(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::is_counting_for_current() {
        let cookie = arguments::cookie(&context);
        let block = arguments::argument(&context, cookie, 0).unwrap_or(0);
        calls::begin_free(&context, stack_pointer(&context), block, has_sizes(cookie));
    }
    0
}

#[uprobe]
fn count_alloc(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::is_counting_for_current() {
        let cookie = arguments::cookie(&context);
        let out = arguments::argument(&context, cookie, 2);
        let call = if out.is_some() { Call::AllocOut } else { Call::Alloc };
        begin(&context, cookie, call, arguments::size(&context, cookie));
    }
    0
}

#[uprobe]
fn count_realloc(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::is_counting_for_current() {
        let cookie = arguments::cookie(&context);
        begin(&context, cookie, Call::Realloc, arguments::size(&context, cookie));
    }
    0
}

#[uprobe]
fn count_resize(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::is_counting_for_current() {
        let cookie = arguments::cookie(&context);
        begin(&context, cookie, Call::Resize, arguments::argument(&context, cookie, 0).unwrap_or(0));
    }
    0
}

/// Entry of a function that frees blocks again, such as the blocks in the cache of an exiting thread. The first free
/// of each block has been counted.
#[uprobe]
fn count_repeat_frees(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::is_counting_for_current() {
        let arguments = Arguments { call: Call::RepeatFrees, size: 0, block: 0, has_sizes: false };
        calls::begin(&context, stack_pointer(&context), arguments);
    }
    0
}

/// Entry of a function that an allocating function calls after it has failed.
#[uprobe]
fn count_alloc_failure(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    if gate::is_counting_for_current() {
        calls::interrupt_failed(&context, stack_pointer(&context));
    }
    0
}

#[inline(always)]
fn begin(context: &ProbeContext, cookie: Cookie, call: Call, size: u64) {
    let block = arguments::argument(context, cookie, 2).unwrap_or(0);
    let arguments = Arguments { call, size, block, has_sizes: has_sizes(cookie) };
    calls::begin(context, stack_pointer(context), arguments);
}

#[uretprobe]
fn count_return(context: RetProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let registers = registers::of(&context);
    finish(&context, registers, calls::at_entry(registers::stack_pointer(registers)));
    0
}

/// Return instruction of a function that an exception may leave.
#[uprobe]
fn count_return_site(context: ProbeContext) -> u32 {
    private_stack::opt_out(&context);
    let registers = registers::of(&context);
    finish(&context, registers, registers::stack_pointer(registers));
    0
}

#[inline(always)]
fn finish(context: &impl EbpfContext, registers: &Registers, at_entry: u64) {
    if gate::is_counting_for_current() {
        calls::finish(context, at_entry, registers::result(registers));
    }
}
