//! The rings. No other module touches them.
//!
//! Records are submitted without waking the reader, who polls; waking costs more than everything else here. Only when a
//! ring's backlog passes a mark is its reader woken.

use core::ptr::{from_mut, from_ref};

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::{ArrayOfMaps, RingBuf};
use aya_ebpf::helpers::generated::{bpf_ringbuf_output, bpf_ringbuf_query};
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::{
    AllocRecord, BlockRecord, CountsRecord, FaultRecord, ForkRecord, Kind, MAX_FRAMES, MAX_RINGS, MoveRecord,
    OomRecord, ProcessRecord, RangeRecord, StackRecord, StallRecord, WantedRecord, ring_of, ring_of_memory,
};

use crate::stack::Scratch;
use crate::thread::Thread;
use crate::{loss, settings, verifier};

type Ring = RingBuf<u64, 4096>;

/// User space makes the rings, as many and as large as it is told, and puts them here. No program looks at the last
/// place: user space changes it to wait for running programs.
#[btf_map]
static RINGS: ArrayOfMaps<Ring, { MAX_RINGS as usize + 1 }> = ArrayOfMaps::new();

/// Asks user space for unwind tables.
#[btf_map]
static WANTED: RingBuf<WantedRecord, 65536> = RingBuf::new();

// include/uapi/linux/bpf.h
const AVAILABLE_DATA: u64 = 0;
const NO_WAKEUP: u64 = 1;
const FORCE_WAKEUP: u64 = 2;

/// While the backlog is less than this much above the mark, it has only just passed it.
const JUST_PASSED: u64 = 512;

/// Which ring takes records about the block at `address`.
#[inline(always)]
pub fn ring_for(thread: Thread, address: u64) -> u32 {
    ring_of(thread.pid, address, settings::rings())
}

/// Which ring takes records about the pages and mappings of the process.
#[inline(always)]
pub fn ring_for_memory(thread: Thread) -> u32 {
    ring_of_memory(thread.pid, settings::tells_forks(), settings::rings())
}

#[inline(always)]
fn wakeup(ring: &Ring) -> u64 {
    // SAFETY: the pointer is a ring's, as the helper wants it.
    let backlog = unsafe { bpf_ringbuf_query(from_ref(ring).cast_mut().cast(), AVAILABLE_DATA) };
    let mark = settings::wake_mark();
    if backlog >= mark && backlog < mark + JUST_PASSED { FORCE_WAKEUP } else { NO_WAKEUP }
}

#[inline(always)]
fn send<T: 'static>(index: u32, record: T) -> bool {
    let Some(ring) = RINGS.get(index) else { return false };
    let flags = wakeup(ring);
    match ring.reserve_untyped::<T>(0) {
        Some(mut entry) => {
            entry.write(record);
            entry.submit(flags);
            true
        }
        None => false,
    }
}

/// A block that was handed out.
#[derive(Clone, Copy)]
pub struct Block {
    pub address: u64,
    pub size: u64,
    pub stack: u64,
}

/// Tells that allocator number `allocator` has handed out a block.
#[inline(always)]
pub fn alloc(context: &impl EbpfContext, ring: u32, thread: Thread, allocator: u16, block: Block) {
    let Block { address, size, stack } = block;
    let mut header = thread.header(Kind::Alloc);
    header.kind = Kind::Alloc.by_allocator(allocator);
    if !send(ring, AllocRecord { header, address, size, stack }) {
        loss::count(context, LossReason::RingFullAlloc, 1);
    }
}

/// Tells that a block was given up.
#[inline(always)]
pub fn free(context: &impl EbpfContext, thread: Thread, address: u64) {
    block(context, thread, Kind::Free, address, LossReason::RingFullFree);
}

/// Tells that a realloc gives up its old block, perhaps to take it back.
#[inline(always)]
pub fn park(context: &impl EbpfContext, thread: Thread, address: u64) {
    block(context, thread, Kind::Park, address, LossReason::RingFullRealloc);
}

/// Tells that a failed realloc takes its old block back.
#[inline(always)]
pub fn restore(context: &impl EbpfContext, thread: Thread, address: u64) {
    block(context, thread, Kind::Restore, address, LossReason::RingFullRealloc);
}

#[inline(always)]
fn block(context: &impl EbpfContext, thread: Thread, kind: Kind, address: u64, reason: LossReason) {
    if !send(ring_for(thread, address), BlockRecord { header: thread.header(kind), address }) {
        loss::count(context, reason, 1);
    }
}

/// Tells that a page was touched.
#[inline(always)]
pub fn fault(context: &impl EbpfContext, ring: u32, thread: Thread, page: u64, stack: u64) {
    if !send(ring, FaultRecord { header: thread.header(Kind::Fault), page, stack }) {
        loss::count(context, LossReason::RingFullFault, 1);
    }
}

/// Tells that the last touch of a page had to wait for a device.
#[inline(always)]
pub fn major_fault(context: &impl EbpfContext, thread: Thread, page: u64) {
    if !send(ring_for_memory(thread), BlockRecord { header: thread.header(Kind::MajorFault), address: page }) {
        loss::count(context, LossReason::RingFullFault, 1);
    }
}

/// Some addresses of a process, and the stack of who has done something to them.
#[derive(Clone, Copy)]
pub struct Range {
    pub begin: u64,
    pub bytes: u64,
    pub stack: u64,
}

/// Tells that addresses were mapped.
#[inline(always)]
pub fn map(context: &impl EbpfContext, ring: u32, thread: Thread, range: Range) {
    counted(context, send(ring, record(thread, Kind::Map, range)));
}

/// Tells that addresses are about to be unmapped or moved.
#[inline(always)]
pub fn park_range(context: &impl EbpfContext, thread: Thread, begin: u64, bytes: u64) {
    let range = Range { begin, bytes, stack: 0 };
    counted(context, send(ring_for_memory(thread), record(thread, Kind::ParkRange, range)));
}

/// Tells that the addresses that the thread was about to unmap or to move stay as they were.
#[inline(always)]
pub fn restore_range(context: &impl EbpfContext, thread: Thread) {
    let record = ProcessRecord { header: thread.header(Kind::RestoreRange) };
    counted(context, send(ring_for_memory(thread), record));
}

/// Tells that the addresses that the thread was about to move, `old_bytes` at `old_begin`, are now those of `range`.
#[inline(always)]
pub fn moved(context: &impl EbpfContext, ring: u32, thread: Thread, range: Range, old: [u64; 2], keeps: bool) {
    let [old_begin, old_bytes] = old;
    let range = record(thread, Kind::Move, range);
    counted(context, send(ring, MoveRecord { range, old_begin, old_bytes, keeps: keeps as u64 }));
}

#[inline(always)]
fn record(thread: Thread, kind: Kind, Range { begin, bytes, stack }: Range) -> RangeRecord {
    RangeRecord { header: thread.header(kind), begin, bytes, stack }
}

#[inline(always)]
fn counted(context: &impl EbpfContext, sent: bool) {
    if !sent {
        loss::count(context, LossReason::RingFullMap, 1);
    }
}

/// Tells that a process was copied.
#[inline(always)]
pub fn fork(context: &impl EbpfContext, thread: Thread, child: u32) {
    if !send(ring_for_memory(thread), ForkRecord { header: thread.header(Kind::Fork), child, reserved: 0 }) {
        loss::count(context, LossReason::RingFullProcess, 1);
    }
}

/// Tells what the kernel has counted of the process.
#[inline(always)]
pub fn counts(context: &impl EbpfContext, thread: Thread, record: CountsRecord) {
    if !send(ring_for_memory(thread), record) {
        loss::count(context, LossReason::RingFullProcess, 1);
    }
}

/// Which ring takes records about a thread.
#[inline(always)]
pub fn ring_for_thread(thread: Thread) -> u32 {
    // Behind the bits by which blocks are told apart.
    ring_for(thread, (thread.tid as u64) << 4)
}

/// Tells that a task has waited for memory, and says whether there was room; `ring` is its thread's.
#[inline(always)]
pub fn stall(ring: u32, record: StallRecord) -> bool {
    send(ring, record)
}

/// Tells every ring that a process is killed, so that each knows how it ends.
#[inline(always)]
pub fn oom_kill(context: &impl EbpfContext, record: OomRecord) {
    for ring in 0..MAX_RINGS {
        if ring >= settings::rings() {
            break;
        }
        if !send(ring, record) {
            loss::count(context, LossReason::RingFullProcess, 1);
        }
    }
}

/// Sends a stack's frames; says whether they went out.
#[inline(always)]
pub fn stack(context: &impl EbpfContext, index: u32, scratch: &mut Scratch, frames: u32) -> bool {
    let Some(ring) = RINGS.get(index) else { return false };
    let frames = verifier::clamp::<{ MAX_FRAMES as u64 }>(frames as u64);
    let length = size_of::<StackRecord>() as u64 + frames * 8;
    let flags = wakeup(ring);
    // SAFETY: the ring's pointer is as the helper wants it; record and frames lie one behind the other in the scratch
    // memory, and the length reaches at most to their end.
    let sent = unsafe {
        bpf_ringbuf_output(from_ref(ring).cast_mut().cast(), from_mut(&mut scratch.record).cast(), length, flags)
    } == 0;
    if !sent {
        loss::count(context, LossReason::RingFullStack, 1);
    }
    sent
}

/// Tells every ring that a process runs a new program or has ended, so that each knows it in order with the blocks.
#[inline(always)]
pub fn process(context: &impl EbpfContext, thread: Thread, kind: Kind) {
    for ring in 0..MAX_RINGS {
        if ring >= settings::rings() {
            break;
        }
        if !send(ring, ProcessRecord { header: thread.header(kind) }) {
            loss::count(context, LossReason::RingFullProcess, 1);
        }
    }
}

/// Asks for an object's unwind table, at once; says whether there was room.
#[inline(always)]
pub fn wanted(record: WantedRecord) -> bool {
    match WANTED.reserve(0) {
        Some(mut entry) => {
            entry.write(record);
            entry.submit(FORCE_WAKEUP);
            true
        }
        None => false,
    }
}
