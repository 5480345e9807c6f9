//! Allocator calls: adds the blocks of outermost calls to the counters of the thread.
//!
//! A nested call has a lower stack pointer than the pending call, or the same one after a tail call. A function that
//! calls no other allocator function needs no probe at its entry if the size of the block is in front of it.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_probe_read_user;
use memtrace_common::vocabulary::LossReason;

use super::sizes::{SizePlace, size_in_word, usable_size};
use super::thread_counts::{self, ThreadCounts};
use crate::loss;
use crate::pending::{Call, MAX_NESTED};
use crate::registers::POPPED_BY_RETURN;

/// Bit of [`ThreadCounts::call`]: the allocator stores the size of a block in front of the block.
const HAS_SIZES: u32 = 1 << 31;

/// Arguments of a call.
#[derive(Clone, Copy)]
pub struct Arguments {
    pub call: Call,
    /// Requested bytes.
    pub size: u64,
    /// Address of a block or of a pointer, as in [`Pending::aux`](crate::pending::Pending::aux).
    pub block: u64,
    pub has_sizes: bool,
}

/// Returns true if the call at `stack_pointer` is inside the pending call. If the return of the pending call was
/// missed, clears the pending call.
#[inline(always)]
fn is_nested(counts: &mut ThreadCounts, stack_pointer: u64) -> bool {
    if counts.stack_pointer == 0 {
        return false;
    }
    let is_inside = stack_pointer <= counts.stack_pointer;
    if is_inside && counts.nested < MAX_NESTED {
        counts.nested += u32::from(counts.call & !HAS_SIZES != Call::RepeatFrees as u32);
        return true;
    }
    // The return of the pending call was missed: its frame is gone, or it has too many nested calls.
    counts.stack_pointer = 0;
    false
}

#[inline(always)]
fn counts(context: &impl EbpfContext) -> Option<&'static mut ThreadCounts> {
    let counts = thread_counts::of_current();
    if counts.is_none() {
        loss::count(context, LossReason::PendingFull, 1);
    }
    counts
}

/// Handles the return of an allocating function that calls no other hooked function. The size of `block` is in front of
/// `block`. `stack_pointer` is the value at the entry of the function.
#[inline(always)]
pub fn add_sized(context: &impl EbpfContext, stack_pointer: u64, block: u64) {
    if block == 0 {
        return;
    }
    if let Some(counts) = counts(context)
        && !is_nested(counts, stack_pointer)
    {
        counts.add_allocated(block, usable_size(block));
    }
}

/// Handles the entry of a function that frees a block and calls no other hooked function.
#[inline(always)]
pub fn free(context: &impl EbpfContext, stack_pointer: u64, block: u64, has_sizes: bool) {
    if block == 0 {
        return;
    }
    let Some(counts) = counts(context) else { return };
    if is_nested(counts, stack_pointer) {
        return;
    }
    let place = SizePlace::new(has_sizes);
    counts.add_freed(place.get(block));
    place.remove(context, block);
}

/// Handles a call of a function that frees a block and calls no other hooked function. `word` is the word in front of the
/// block. `stack_pointer` is the value at the entry of the function.
#[inline(always)]
pub fn free_with_word(context: &impl EbpfContext, stack_pointer: u64, word: u64) {
    if let Some(counts) = counts(context)
        && !is_nested(counts, stack_pointer)
    {
        counts.add_freed(size_in_word(word));
    }
}

/// Handles the entry of a function that also has a probe at its return.
#[inline(always)]
pub fn begin(context: &impl EbpfContext, stack_pointer: u64, arguments: Arguments) {
    let Some(counts) = counts(context) else { return };
    if stack_pointer >= counts.failed.stack_pointer {
        // An exception has left the failed call.
        counts.failed.stack_pointer = 0;
    }
    if is_nested(counts, stack_pointer) {
        return;
    }
    let Arguments { call, size, block, has_sizes } = arguments;
    counts.stack_pointer = stack_pointer;
    counts.call = call as u32 | if has_sizes { HAS_SIZES } else { 0 };
    counts.nested = 0;
    counts.size = size;
    counts.block = block;
    let frees = call == Call::Realloc || call == Call::Resize;
    // The size is read now, because another thread may use the address before the call returns.
    counts.old_size = if frees && block != 0 { SizePlace::new(has_sizes).get(block) } else { 0 };
}

/// Handles the entry of a function that frees a block and may call other functions that free it. The function also has
/// a probe at its return.
#[inline(always)]
pub fn begin_free(context: &impl EbpfContext, stack_pointer: u64, block: u64, has_sizes: bool) {
    free(context, stack_pointer, block, has_sizes);
    begin(context, stack_pointer, Arguments { call: Call::Free, size: 0, block: 0, has_sizes });
}

/// Handles the entry of a function that an allocating function calls after it has failed. If the pending call has called this
/// function, the calls that follow are not nested, because code of the program makes them. Only one failed call is kept. If
/// another call fails inside it, such as in the new handler, that call is lost.
#[inline(always)]
pub fn interrupt_failed(context: &impl EbpfContext, stack_pointer: u64) {
    let Some(counts) = thread_counts::of_current() else { return };
    if stack_pointer > counts.stack_pointer || counts.call & !HAS_SIZES != Call::Alloc as u32 {
        return;
    }
    if counts.failed.stack_pointer > counts.stack_pointer {
        counts.stack_pointer = 0;
        loss::count(context, LossReason::PendingStale, 1);
    } else {
        counts.failed.stack_pointer = counts.stack_pointer;
        counts.failed.size = counts.size;
        counts.failed.has_sizes = u64::from(counts.call & HAS_SIZES != 0);
        counts.stack_pointer = 0;
    }
}

/// Handles the return of a call that had failed. The call may have tried again. If a nested call has allocated `block`, it has
/// counted the block already.
#[inline(always)]
fn finish_failed(context: &impl EbpfContext, counts: &mut ThreadCounts, block: u64) {
    counts.failed.stack_pointer = 0;
    counts.stack_pointer = 0;
    if block != 0 && block != counts.last_block {
        let place = SizePlace::new(counts.failed.has_sizes != 0);
        counts.add_allocated(block, place.insert(context, block, counts.failed.size));
    }
}

/// Handles the return of a function that was entered at `stack_pointer`.
#[inline(always)]
pub fn finish(context: &impl EbpfContext, stack_pointer: u64, result: u64) {
    let Some(counts) = thread_counts::of_current() else { return };
    if stack_pointer == counts.failed.stack_pointer {
        finish_failed(context, counts, result);
        return;
    }
    if counts.stack_pointer == 0 || stack_pointer < counts.stack_pointer {
        return;
    }
    let is_of_pending = stack_pointer == counts.stack_pointer;
    counts.stack_pointer = 0;
    if !is_of_pending {
        return;
    }
    let place = SizePlace::new(counts.call & HAS_SIZES != 0);
    let call = counts.call & !HAS_SIZES;
    if call == Call::Resize as u32 {
        // If the result is less than the requested size, the block is unchanged.
        if result >= counts.size {
            counts.add_freed(counts.old_size);
            counts.add_allocated(counts.block, place.insert(context, counts.block, result));
        }
        return;
    }
    let block = if call == Call::AllocOut as u32 {
        // The result is an int: the upper half of the register is undefined.
        if result as u32 == 0 { stored_block(context, counts.block) } else { 0 }
    } else if call == Call::Alloc as u32 || call == Call::Realloc as u32 {
        result
    } else {
        0
    };
    // A null result with size 0 means that the old block was freed, as in glibc (malloc/malloc.c, realloc).
    if call == Call::Realloc as u32 && counts.block != 0 && (block != 0 || counts.size == 0) {
        counts.add_freed(counts.old_size);
        if block != counts.block {
            place.remove(context, counts.block);
        }
    }
    if block != 0 {
        counts.add_allocated(block, place.insert(context, block, counts.size));
    }
}

#[inline(always)]
fn stored_block(context: &impl EbpfContext, address: u64) -> u64 {
    // SAFETY: the helper checks the address.
    match unsafe { bpf_probe_read_user(address as *const u64) } {
        Ok(block) => block,
        Err(_) => {
            loss::count(context, LossReason::PointerUnreadable, 1);
            0
        }
    }
}

/// Returns the stack pointer at the entry of a function. `after_return` is its value after the return.
#[inline(always)]
pub fn at_entry(after_return: u64) -> u64 {
    after_return.wrapping_sub(POPPED_BY_RETURN)
}
