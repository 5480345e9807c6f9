//! Records of the blocks that allocators return.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_probe_read_user;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::{RecordKind, TaggedSize};

use crate::emit::Block;
use crate::origin::{HasCaller, Inside, Origin};
use crate::pending::ReturnedCall;
use crate::registers::POPPED_BY_RETURN;
use crate::thread::Thread;
use crate::{demotion, emit, late_tags, loss, process_filter, settings, size_filter, stack, tags};

/// Records `block` at a result site, before the allocating function has returned it.
#[inline(always)]
pub fn record(context: &impl EbpfContext, thread: Thread, mut returned: ReturnedCall, block: u64, inside: &Inside<'_>) {
    let size = returned.pending.size;
    if let Some(size) = recorded_size(context, &mut returned, block, size) {
        send(context, thread, &returned, (block, size), inside);
    }
}

/// Sends the record of a block with the call stack from `origin`, unless a demotion drops the block.
#[inline(always)]
pub fn send(
    context: &impl EbpfContext,
    thread: Thread,
    returned: &ReturnedCall,
    (address, mut size): (u64, u64),
    origin: &(impl Origin + HasCaller),
) {
    crate::activity::add_allocated(thread, size);
    if demotion::drops(thread.pid, size) {
        return;
    }
    let at_entry = origin.caller().stack_pointer.wrapping_sub(POPPED_BY_RETURN);
    let (kind, number) = if settings::records_tags() {
        (RecordKind::TaggedAlloc, tags::of_allocation(thread, at_entry) as u16)
    } else {
        (RecordKind::Alloc, returned.allocator)
    };
    let ring = emit::ring_for(thread, address);
    let stack = stack::take(context, origin, thread, ring);
    if settings::records_tags() {
        size = TaggedSize::new(size, returned.allocator).0;
    }
    let block = Block { address, size, stack };
    let number = if settings::records_late_tags() {
        let Some(tag) = late_tags::defer(context, number, block, at_entry) else { return };
        tag
    } else {
        number
    };
    emit::alloc(context, ring, thread, kind, number, block);
}

/// Returns the size to record for the block at `address`, or `None` if a filter excludes the block.
#[inline(always)]
pub fn recorded_size(
    context: &impl EbpfContext,
    returned: &mut ReturnedCall,
    address: u64,
    mut size: u64,
) -> Option<u64> {
    returned.set_last_block(address);
    if settings::has_usable_sizes() {
        size = usable_size(context, returned, address).unwrap_or(size);
    }
    if !size_filter::is_recorded(size) || !process_filter::is_thread_recorded() {
        loss::filtered(size);
        return None;
    }
    Some(size)
}

/// Returns the usable size of a block. The word before the block has the size of its chunk and three flags (glibc 2.26
/// to 2.41, malloc/malloc.c, `musable`). If the chunk has a mapping of its own, its header has two words, else one
/// word.
#[inline(always)]
fn usable_size(context: &impl EbpfContext, returned: &ReturnedCall, address: u64) -> Option<u64> {
    const FLAGS: u64 = 7;
    const IS_MAPPED: u64 = 2;
    const WORD: u64 = 8;
    let word = if returned.has_sizes {
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_user(address.wrapping_sub(WORD) as *const u64) }.ok()
    } else {
        None
    };
    let size = word.and_then(|word| (word & !FLAGS).checked_sub(if word & IS_MAPPED == 0 { WORD } else { 2 * WORD }));
    if size.is_none() {
        loss::count(context, LossReason::SizeRequested, 1);
    }
    size
}
