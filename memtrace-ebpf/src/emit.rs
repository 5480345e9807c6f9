//! The ring buffers. No other module writes to them.
//!
//! Most records are submitted without waking the reader, which polls: a wake-up costs more than the rest of the
//! submission. The reader is woken only when the backlog of its ring passes the wake mark.

mod activity;
mod flags;

use core::ffi::c_void;
use core::ptr::{from_mut, from_ref};

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::{ArrayOfMaps, RingBuf};
use aya_ebpf::helpers::generated::{
    bpf_probe_read_kernel_str, bpf_probe_read_user, bpf_ringbuf_output, bpf_ringbuf_query,
};
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::{
    AllocRecord, BlockRecord, CopyEnd, CopyPiece, DroppedRecord, FaultRecord, ForkRecord, MAX_FRAMES, MAX_RINGS,
    MarkRecord, MoveRecord, OomRecord, OwnerRecord, PIECE_BYTES, ProcessRecord, REMOVED_PATH, RangeRecord, RecordKind,
    RemovedCgroupRecord, RusageRecord, SampledAllocRecord, ShareRecord, StackRecord, StallRecord, TableRequestRecord,
    ThreadRecord, copy_kind, ring_of, ring_of_memory,
};
use memtrace_unwind::{Position, Walk};

use crate::sampled::SampledBlock;
use crate::scratch::Scratch;
use crate::thread::{Thread, since_start};
use crate::{address_space, loss, settings, verifier};

use flags::{AVAILABLE_DATA, FORCE_WAKEUP, NO_WAKEUP, RING_SIZE};

pub use activity::{ACTIVITY_RING, Step, activity, end_at_exec, lifetime};

type Ring = RingBuf<u64, 4096>;

/// User space creates the rings and inserts them. No program reads the last element. User space replaces this element
/// to wait for running programs, because the update returns only after they have ended.
#[btf_map]
static RINGS: ArrayOfMaps<Ring, { MAX_RINGS as usize + 1 }> = ArrayOfMaps::new();

/// Requests for unwind tables.
#[btf_map]
static TABLE_REQUESTS: RingBuf<TableRequestRecord, 65536> = RingBuf::new();

/// Stack copies. User space finishes their walks.
#[btf_map]
static STACK_COPIES: RingBuf<u64, { 4 << 20 }> = RingBuf::new();

/// Divisor of the ring's size. The quotient is the wake mark of [`STACK_COPIES`].
const COPIES_WAKE_PART: u64 = 4;

/// Paths of removed cgroups. User space polls this ring.
#[btf_map]
static REMOVED_CGROUPS: RingBuf<RemovedCgroupRecord, 262_144> = RingBuf::new();

/// Entries of functions that set marks. Each record wakes the reader.
#[btf_map]
static MARKS: RingBuf<MarkRecord, 65536> = RingBuf::new();

/// Exits of threads, in runs that count the usage of threads. User space polls this ring.
#[btf_map]
static THREAD_EXITS: RingBuf<ThreadRecord, { 4 << 20 }> = RingBuf::new();

/// Width in bytes of a range that begins at the wake mark. A record wakes the reader only if the backlog is in this range.
const WAKE_RANGE: u64 = 512;

/// Like [`WAKE_RANGE`], for the frequent records about blocks, which query the backlog rarely. The range holds about
/// 100 of these records.
const RARE_WAKE_RANGE: u64 = 4096;

/// Index of the ring for dropped blocks.
const DROPPED_RING: u32 = 0;

/// Mask of the time in nanoseconds. A frequent record queries the backlog only if the masked bits are 0, so one record
/// in 8 does. A query takes about 15 ns.
const RARE_WAKE_MASK: u64 = 7;

/// Returns the index of the ring for records about the block at `address`.
#[inline(always)]
pub fn ring_for(thread: Thread, address: u64) -> u32 {
    ring_of(address_space::main_process(thread.pid), address, settings::rings())
}

/// Returns the index of the ring for records about the pages and mappings of the process.
#[inline(always)]
pub fn ring_for_memory(thread: Thread) -> u32 {
    ring_of_memory(address_space::main_process(thread.pid), settings::records_forks(), settings::rings())
}

#[inline(always)]
fn wakeup(ring: &Ring, range: u64) -> u64 {
    // SAFETY: the pointer refers to a ring buffer map, as the helper requires.
    let backlog = unsafe { bpf_ringbuf_query(from_ref(ring).cast_mut().cast(), AVAILABLE_DATA) };
    let mark = settings::wake_mark();
    if backlog >= mark && backlog < mark + range { FORCE_WAKEUP } else { NO_WAKEUP }
}

#[inline(always)]
fn send<T: 'static>(index: u32, record: T) -> bool {
    let Some(ring) = RINGS.get(index) else { return false };
    send_to(ring, record, wakeup(ring, WAKE_RANGE))
}

/// Sends a frequent record, that is, one about a block. Unlike [`send`], queries the backlog rarely. `time` is the time of the
/// record in nanoseconds.
#[inline(always)]
fn send_frequent<T: 'static>(index: u32, record: T, time: u64) -> bool {
    let Some(ring) = RINGS.get(index) else { return false };
    let looks = time & RARE_WAKE_MASK == 0;
    send_to(ring, record, if looks { wakeup(ring, RARE_WAKE_RANGE) } else { NO_WAKEUP })
}

#[inline(always)]
fn send_to<T: 'static>(ring: &Ring, record: T, flags: u64) -> bool {
    match ring.reserve_untyped::<T>(0) {
        Some(mut entry) => {
            entry.write(record);
            entry.submit(flags);
            true
        }
        None => false,
    }
}

/// A block that an allocator has returned.
#[derive(Clone, Copy)]
pub struct Block {
    pub address: u64,
    pub size: u64,
    pub stack: u64,
}

/// Records that an allocator has returned a block. `number` is the id of the tag if `kind` is
/// [`RecordKind::TaggedAlloc`], else the id of the allocator.
#[inline(always)]
pub fn alloc(context: &impl EbpfContext, ring: u32, thread: Thread, kind: RecordKind, number: u16, block: Block) {
    if !send_alloc(ring, thread, kind, number, block) {
        loss::count(context, LossReason::RingFullAlloc, 1);
    }
}

/// Records a block that an allocator returned earlier. `tag` is the id of the block's tag. Returns false if the ring is full.
#[inline(always)]
pub fn late_alloc(thread: Thread, tag: u16, block: Block) -> bool {
    send_alloc(ring_for(thread, block.address), thread, RecordKind::TaggedAlloc, tag, block)
}

#[inline(always)]
fn send_alloc(ring: u32, thread: Thread, kind: RecordKind, number: u16, block: Block) -> bool {
    let Block { address, size, stack } = block;
    let time = since_start();
    let header = thread.header_at(kind.with_number(number), time);
    send_frequent(ring, AllocRecord { header, address, size, stack }, time)
}

/// Records that a target has sampled a block. `tag` is the id of the block's tag.
#[inline(always)]
pub fn sampled_alloc(context: &impl EbpfContext, ring: u32, thread: Thread, tag: u16, block: SampledBlock, stack: u64) {
    let SampledBlock { address, size, drawn, interval, allocator } = block;
    let header = thread.header_at(RecordKind::SampledAlloc.with_number(tag), since_start());
    let record = SampledAllocRecord { header, address, size, stack, drawn, interval, allocator, reserved: 0 };
    if !send(ring, record) {
        loss::count(context, LossReason::RingFullAlloc, 1);
    }
}

/// Records that a target frees a block that it may have sampled.
#[inline(always)]
pub fn sampled_free(context: &impl EbpfContext, thread: Thread, address: u64) {
    block(context, thread, RecordKind::SampledFree as u32, address, LossReason::RingFullFree);
}

/// Records the free of a block. `is_last` is true if the thread's latest allocation returned this address.
#[inline(always)]
pub fn free(context: &impl EbpfContext, thread: Thread, address: u64, is_last: bool) {
    block(context, thread, RecordKind::Free.of_block(is_last), address, LossReason::RingFullFree);
}

/// Records that a thread takes over a block. `tag` is the id of the thread's tag.
#[inline(always)]
pub fn claim(context: &impl EbpfContext, thread: Thread, address: u64, tag: u32) {
    block(context, thread, RecordKind::Claim.with_number(tag as u16), address, LossReason::RingFullAlloc);
}

/// Records a repeated free of a block.
#[inline(always)]
pub fn repeated_free(context: &impl EbpfContext, thread: Thread, address: u64) {
    block(context, thread, RecordKind::RepeatedFree as u32, address, LossReason::RingFullFree);
}

/// Records that a realloc has started: the old block is free unless the call fails. `is_last` is the same as in
/// [`free`].
#[inline(always)]
pub fn tentative_free(context: &impl EbpfContext, thread: Thread, address: u64, is_last: bool) {
    block(context, thread, RecordKind::TentativeFree.of_block(is_last), address, LossReason::RingFullRealloc);
}

/// Records that a realloc has failed, so that its old block is live again.
#[inline(always)]
pub fn undo_free(context: &impl EbpfContext, thread: Thread, address: u64) {
    block(context, thread, RecordKind::UndoFree as u32, address, LossReason::RingFullRealloc);
}

#[inline(always)]
fn block(context: &impl EbpfContext, thread: Thread, kind: u32, address: u64, reason: LossReason) {
    let time = since_start();
    let header = thread.header_at(kind, time);
    if !send_frequent(ring_for(thread, address), BlockRecord { header, address }, time) {
        loss::count(context, reason, 1);
    }
}

/// Records a page fault.
#[inline(always)]
pub fn fault(context: &impl EbpfContext, ring: u32, thread: Thread, page: u64, stack: u64) {
    if !send(ring, FaultRecord { header: thread.header(RecordKind::Fault), page, stack }) {
        loss::count(context, LossReason::RingFullFault, 1);
    }
}

/// Records that the last fault on a page was a major fault.
#[inline(always)]
pub fn major_fault(context: &impl EbpfContext, thread: Thread, page: u64) {
    if !send(ring_for_memory(thread), BlockRecord { header: thread.header(RecordKind::MajorFault), address: page }) {
        loss::count(context, LossReason::RingFullFault, 1);
    }
}

/// An address range, and the stack of the call that changed its mapping.
#[derive(Clone, Copy)]
pub struct Range {
    pub begin: u64,
    pub bytes: u64,
    pub stack: u64,
}

/// Records that a range was mapped.
#[inline(always)]
pub fn map(context: &impl EbpfContext, ring: u32, thread: Thread, range: Range) {
    count_if_lost(context, send(ring, range_record(thread, RecordKind::Map, range)));
}

/// Records that a system call is about to unmap or move a range. [`undo_unmap`] follows if the call fails.
#[inline(always)]
pub fn tentative_unmap(context: &impl EbpfContext, thread: Thread, begin: u64, bytes: u64) {
    let range = Range { begin, bytes, stack: 0 };
    count_if_lost(context, send(ring_for_memory(thread), range_record(thread, RecordKind::TentativeUnmap, range)));
}

/// Records that the thread's unmap or move has failed.
#[inline(always)]
pub fn undo_unmap(context: &impl EbpfContext, thread: Thread) {
    let record = ProcessRecord { header: thread.header(RecordKind::UndoUnmap) };
    count_if_lost(context, send(ring_for_memory(thread), record));
}

/// Records that the range `old` (address and length in bytes) has moved to `range`. `keeps` is true if the old range
/// stays mapped.
#[inline(always)]
pub fn remap(context: &impl EbpfContext, ring: u32, thread: Thread, range: Range, old: [u64; 2], keeps: bool) {
    let [old_begin, old_bytes] = old;
    let range = range_record(thread, RecordKind::Move, range);
    count_if_lost(context, send(ring, MoveRecord { range, old_begin, old_bytes, keeps: keeps as u64 }));
}

#[inline(always)]
fn range_record(thread: Thread, kind: RecordKind, Range { begin, bytes, stack }: Range) -> RangeRecord {
    RangeRecord { header: thread.header(kind), begin, bytes, stack }
}

#[inline(always)]
fn count_if_lost(context: &impl EbpfContext, sent: bool) {
    if !sent {
        loss::count(context, LossReason::RingFullMap, 1);
    }
}

/// Records a fork.
#[inline(always)]
pub fn fork(context: &impl EbpfContext, thread: Thread, child: u32) {
    if !send(ring_for_memory(thread), ForkRecord { header: thread.header(RecordKind::Fork), child, reserved: 0 }) {
        loss::count(context, LossReason::RingFullProcess, 1);
    }
}

/// Records in every ring that `child` shares the memory of the current process, so that each shard knows it before the
/// other records of the child. `is_traced` is true if the selection includes the child.
#[inline(always)]
pub fn share(context: &impl EbpfContext, thread: Thread, child: u32, is_traced: bool) {
    for ring in 0..MAX_RINGS {
        if ring >= settings::rings() {
            break;
        }
        if !send(ring, ShareRecord { header: thread.header(RecordKind::Share), child, traced: is_traced as u32 }) {
            loss::count(context, LossReason::RingFullProcess, 1);
        }
    }
}

#[inline(always)]
pub fn rusage(context: &impl EbpfContext, thread: Thread, record: RusageRecord) {
    if !send(ring_for_memory(thread), record) {
        loss::count(context, LossReason::RingFullProcess, 1);
    }
}

/// Records the blocks of a demoted process that were dropped. One ring suffices for these records, because user space reads the
/// same sum from the map.
#[inline(always)]
pub fn dropped(context: &impl EbpfContext, record: DroppedRecord) {
    if !send(DROPPED_RING, record) {
        loss::count(context, LossReason::RingFullProcess, 1);
    }
}

/// Records the user and cgroups of a process in every ring, because each shard needs them.
#[inline(always)]
pub fn owner(context: &impl EbpfContext, record: OwnerRecord) {
    for ring in 0..MAX_RINGS {
        if ring >= settings::rings() {
            break;
        }
        if !send(ring, record) {
            loss::count(context, LossReason::RingFullProcess, 1);
        }
    }
}

/// Returns the index of the ring for records about a thread.
#[inline(always)]
pub fn ring_for_thread(thread: Thread) -> u32 {
    // `ring_of` ignores the lowest 4 bits, which are 0 in the address of an aligned block.
    ring_for(thread, (thread.tid as u64) << 4)
}

/// Records a memory stall in `ring`, the ring of the thread. Returns false if the ring is full.
#[inline(always)]
pub fn stall(ring: u32, record: StallRecord) -> bool {
    send(ring, record)
}

/// Records an OOM kill in every ring, because each shard needs the reason for the end of the process.
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

/// Sends the stack record and frames in `scratch` to the ring `index`. Returns false if the ring is full.
#[inline(always)]
pub fn stack(context: &impl EbpfContext, index: u32, scratch: &mut Scratch, frames: u32) -> bool {
    let frames = verifier::clamp::<{ MAX_FRAMES as u64 }>(frames as u64);
    let length = size_of::<StackRecord>() as u64 + frames * 8;
    let (ring, flags) = match activity_ring(index) {
        Some(ring) => (ring, NO_WAKEUP),
        None => {
            let Some(ring) = RINGS.get(index) else { return false };
            (from_ref(ring).cast_mut().cast(), wakeup(ring, WAKE_RANGE))
        }
    };
    // SAFETY: the pointer refers to a ring buffer map, as the helper requires. The frames follow the record in the
    // scratch memory, and the length reaches at most to their end.
    let sent = unsafe { bpf_ringbuf_output(ring, from_mut(&mut scratch.record).cast(), length, flags) } == 0;
    if !sent {
        loss::count(context, LossReason::RingFullStack, 1);
    }
    sent
}

/// Returns the activity ring if `index` is [`ACTIVITY_RING`].
#[inline(always)]
fn activity_ring(index: u32) -> Option<*mut c_void> {
    (settings::records_activity() && index == ACTIVITY_RING).then(activity::ring)
}

/// Sends the frames of a stack copy. Returns false if the ring is full.
#[inline(always)]
pub fn copied_frames(scratch: &mut Scratch, frames: u32) -> bool {
    let frames = verifier::clamp::<{ MAX_FRAMES as u64 }>(frames as u64);
    let length = size_of::<StackRecord>() as u64 + frames * 8;
    let ring = from_ref(&STACK_COPIES).cast_mut().cast();
    // SAFETY: as in `stack`.
    unsafe { bpf_ringbuf_output(ring, from_mut(&mut scratch.record).cast(), length, NO_WAKEUP) == 0 }
}

/// Sends a piece of the stack copy `stack`: [`PIECE_BYTES`] from `address` on, or zeros if the memory cannot be read.
/// Returns false if the ring is full.
#[inline(always)]
pub fn copied_piece(stack: u64, address: u64) -> bool {
    let Some(mut entry) = STACK_COPIES.reserve_untyped::<CopyPiece>(0) else { return false };
    let piece = entry.as_mut_ptr();
    // SAFETY: the entry is memory for a piece, and every field is written: the helper writes zeros if it fails.
    unsafe {
        (*piece).kind = copy_kind::PIECE;
        (*piece).reserved = 0;
        (*piece).stack = stack;
        (*piece).address = address;
        let words = (&raw mut (*piece).words).cast();
        bpf_probe_read_user(words, PIECE_BYTES as u32, address as *const c_void);
    }
    entry.submit(NO_WAKEUP);
    true
}

/// Sends the end of the stack copy `stack`, with the state of `walk`. `pid` is the main process of the address space.
/// `cut` is the id of the stack as far as it was walked. Returns false if the ring is full.
#[inline(always)]
pub fn copied_end(pid: u32, stack: u64, cut: u64, seed: u64, stack_start: u64, walk: &Walk) -> bool {
    let ring = from_ref(&STACK_COPIES).cast_mut().cast();
    // SAFETY: the pointer refers to a ring buffer map, as the helper requires.
    let backlog = unsafe { bpf_ringbuf_query(ring, AVAILABLE_DATA) };
    // SAFETY: as above.
    let mark = unsafe { bpf_ringbuf_query(ring, RING_SIZE) } / COPIES_WAKE_PART;
    let wakes = backlog >= mark && backlog < mark + 16 * PIECE_BYTES;
    let Some(mut entry) = STACK_COPIES.reserve_untyped::<CopyEnd>(0) else { return false };
    let end = entry.as_mut_ptr();
    let Position { ip, sp, fp, flags, depth } = walk.position();
    // SAFETY: the entry is memory for a record, and every field is written.
    unsafe {
        (*end).kind = copy_kind::END;
        (*end).depth = depth;
        (*end).stack = stack;
        (*end).cut = cut;
        (*end).seed = seed;
        (*end).ip = ip;
        (*end).sp = sp;
        (*end).fp = fp;
        (*end).flags = flags;
        (*end).pid = pid;
        (*end).stack_start = stack_start;
        // One register at a time: a copy of all would go through the BPF stack, which has 512 bytes.
        macro_rules! keep {
            ($($number:literal)*) => { $((*end).leaf[$number] = walk.leaf($number);)* };
        }
        keep!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }
    entry.submit(if wakes { FORCE_WAKEUP } else { NO_WAKEUP });
    true
}

/// Records an exec, an exit or the end of shared memory in every ring, so that each shard sees it in order with its
/// other records. Returns false if a ring is full.
#[inline(always)]
pub fn process(context: &impl EbpfContext, thread: Thread, kind: RecordKind) -> bool {
    let lost = emit_process(thread.pid, thread.tid, kind as u32);
    if lost != 0 {
        loss::count(context, LossReason::RingFullProcess, lost);
    }
    lost == 0
}

/// Does the work of [`process`]. Returns the number of rings that lack the record. The function is global, so that the
/// verifier does not check the caller's remaining code for each state of the loop.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn emit_process(pid: u32, tid: u32, kind: u32) -> u64 {
    let header = Thread { pid, tid }.header_at(kind, since_start());
    let mut lost = 0;
    for ring in 0..MAX_RINGS {
        if ring >= settings::rings() {
            break;
        }
        lost += u64::from(!send(ring, ProcessRecord { header }));
    }
    lost
}

/// Requests an object's unwind table and wakes the reader. Returns false if the ring is full.
#[inline(always)]
pub fn table_request(record: TableRequestRecord) -> bool {
    match TABLE_REQUESTS.reserve(0) {
        Some(mut entry) => {
            entry.write(record);
            entry.submit(FORCE_WAKEUP);
            true
        }
        None => false,
    }
}

/// Records the entry of a function that sets a mark, and wakes the reader.
#[inline(always)]
pub fn mark(context: &impl EbpfContext, record: MarkRecord) {
    match MARKS.reserve(0) {
        Some(mut entry) => {
            entry.write(record);
            entry.submit(FORCE_WAKEUP);
        }
        None => loss::count(context, LossReason::MarkLost, 1),
    }
}

/// Records the exit of a thread.
#[inline(always)]
pub fn thread_exit(record: &ThreadRecord) {
    let ring = from_ref(&THREAD_EXITS).cast_mut().cast();
    let data = from_ref(record).cast_mut().cast();
    // SAFETY: the pointer refers to a ring buffer map, as the helper requires. The helper only reads the record.
    if unsafe { bpf_ringbuf_output(ring, data, size_of::<ThreadRecord>() as u64, NO_WAKEUP) } != 0 {
        loss::count_without_log(LossReason::ThreadExitsFull);
    }
}

/// Records the path of a removed cgroup. `path` is the kernel address of the string.
#[inline(always)]
pub fn removed_cgroup(context: &impl EbpfContext, id: u64, hierarchy: u32, path: u64) {
    let Some(mut entry) = REMOVED_CGROUPS.reserve(0) else {
        loss::count(context, LossReason::RingFullCgroup, 1);
        return;
    };
    let record = entry.as_mut_ptr();
    // SAFETY: the pointer refers to the reserved record.
    let into = unsafe { &raw mut (*record).path };
    // SAFETY: the helper checks the address, and writes at most `REMOVED_PATH` bytes, the size of the field.
    let length = unsafe { bpf_probe_read_kernel_str(into.cast(), REMOVED_PATH as u32, path as *const _) };
    // SAFETY: as above.
    unsafe { (&raw mut (*record).id).write(id) };
    // SAFETY: as above.
    unsafe { (&raw mut (*record).hierarchy).write(hierarchy) };
    // SAFETY: as above.
    unsafe { (&raw mut (*record).length).write(if length < 0 { 0 } else { length as u32 }) };
    entry.submit(NO_WAKEUP);
}
