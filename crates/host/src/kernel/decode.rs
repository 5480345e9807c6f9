//! Decoder of the records in the rings. It never panics; a record that it cannot decode is a [`BadRecord`].

use std::time::Duration;

use memtrace_common::thinning::MAX_THINNING;
use memtrace_common::wire::{
    AllocRecord, BlockRecord, DroppedRecord, FaultRecord, ForkRecord, Header, IntervalWord, LAST_BLOCK, MAX_FRAMES,
    MoveRecord, OomRecord, OwnerRecord, PAGE_SHIFT, RangeRecord, RecordKind, RusageRecord, SampledAllocRecord,
    ShareRecord, StackRecord, StallRecord, TaggedSize, UNKNOWN_COUNT, fault, reclaim_kind,
};
use memtrace_model::{
    AbsAddr, AllocatorId, Amount, Bytes, CgroupId, Event, EventKind, Nanoseconds, Order, OutOfMemory, Owner, PAGE,
    PageFaults, Pid, ReclaimKind, Rusage, Sample, Stack, StackEnd, StackId, Stall, TagId, Tick, Tid, Touch,
    rounding_key,
};

use super::wire_type::{self, WireType};

/// Record that is truncated, of an unknown kind or contradictory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRecord;

/// Decodes one record of a ring.
///
/// # Errors
///
/// [`BadRecord`] if the record is truncated, of an unknown kind or contradictory.
// Inlined, so that the fields of an event are written to their final place. Otherwise a copy in wide words would have
// to wait for the narrow stores of the fields.
#[inline(always)]
pub fn decode(record: &[u8]) -> Result<Event, BadRecord> {
    let header: Header = read(record)?;
    let (kind, upper) = RecordKind::split(header.kind);
    let kind = kind.ok_or(BadRecord)?;
    let is_last = match kind {
        RecordKind::Alloc | RecordKind::TaggedAlloc | RecordKind::Claim | RecordKind::SampledAlloc => false,
        RecordKind::Free | RecordKind::TentativeFree if upper == LAST_BLOCK => true,
        _ if upper == 0 => false,
        _ => return Err(BadRecord),
    };
    // Almost all records of a heap trace have one of these kinds.
    let kind = match kind {
        RecordKind::Alloc => alloc(&read(record)?, AllocatorId(upper), TagId::UNTAGGED)?,
        RecordKind::TaggedAlloc => tagged_alloc(read(record)?, TagId(upper))?,
        RecordKind::Free => EventKind::Free { address: address(record)?, is_last },
        RecordKind::TentativeFree => EventKind::TentativeFree { address: address(record)?, is_last },
        rare => decode_rare(rare, upper, record)?,
    };
    Ok(Event { pid: Pid(header.pid), tid: Tid(header.tid), tick: Tick(header.tick), kind })
}

#[inline(never)]
fn decode_rare(kind: RecordKind, upper: u16, record: &[u8]) -> Result<EventKind, BadRecord> {
    Ok(match kind {
        RecordKind::RepeatedFree => EventKind::RepeatedFree { address: address(record)? },
        RecordKind::Claim => EventKind::Claim { address: address(record)?, tag: TagId(upper) },
        RecordKind::UndoFree => EventKind::UndoFree { address: address(record)? },
        RecordKind::Stack => stack(record)?,
        RecordKind::Fault => {
            let FaultRecord { page, stack, .. } = read(record)?;
            EventKind::Fault {
                page: AbsAddr(page >> PAGE_SHIFT << PAGE_SHIFT),
                touch: Touch {
                    present: page & fault::PRESENT != 0,
                    write: page & fault::WRITE != 0,
                    huge: page & fault::HUGE != 0,
                },
                stack: StackId(stack),
            }
        }
        RecordKind::MajorFault => EventKind::MajorFault { page: address(record)? },
        RecordKind::Map => {
            let range: RangeRecord = read(record)?;
            let (begin, size) = checked_range(range.begin, range.bytes)?;
            EventKind::Map { begin, size, stack: StackId(range.stack) }
        }
        RecordKind::TentativeUnmap => {
            let RangeRecord { begin, bytes, .. } = read(record)?;
            let (begin, size) = checked_range(begin, bytes)?;
            EventKind::TentativeUnmap { begin, size }
        }
        RecordKind::UndoUnmap => EventKind::UndoUnmap,
        RecordKind::Move => {
            let MoveRecord { range, old_begin, old_bytes, keeps } = read(record)?;
            let (begin, size) = checked_range(range.begin, range.bytes)?;
            let (old, old_size) = checked_range(old_begin, old_bytes)?;
            EventKind::Move { old, old_size, begin, size, keeps: keeps != 0, stack: StackId(range.stack) }
        }
        RecordKind::Fork => EventKind::Fork { child: Pid(read::<ForkRecord>(record)?.child) },
        RecordKind::Share => {
            let ShareRecord { child, traced, .. } = read(record)?;
            EventKind::Share { child: Pid(child), is_traced: traced != 0 }
        }
        RecordKind::Unshare => EventKind::Unshare,
        RecordKind::Stall => stall(&read(record)?)?,
        RecordKind::OomKill => oom_kill(&read(record)?),
        RecordKind::Rusage => rusage(&read(record)?)?,
        RecordKind::Owner => owner(&read(record)?),
        RecordKind::Dropped => dropped(&read(record)?),
        RecordKind::Exec => EventKind::Exec,
        RecordKind::Exit => EventKind::Exit,
        RecordKind::ThreadExit => EventKind::ThreadExit,
        RecordKind::SampledAlloc => sampled_alloc(&read(record)?, TagId(upper))?,
        RecordKind::SampledFree => EventKind::SampledFree { address: address(record)? },
        // Records of activity have their own ring. `decode` handles the other kinds.
        RecordKind::Activity
        | RecordKind::Alloc
        | RecordKind::TaggedAlloc
        | RecordKind::Free
        | RecordKind::TentativeFree => return Err(BadRecord),
    })
}

#[inline]
fn address(record: &[u8]) -> Result<AbsAddr, BadRecord> {
    read::<BlockRecord>(record).map(|block| AbsAddr(block.address))
}

#[inline]
fn read<T: WireType>(record: &[u8]) -> Result<T, BadRecord> {
    wire_type::read(record).ok_or(BadRecord)
}

/// No block is as large as the address space of a process: 57 bits with five levels of page tables. A function that is wrongly
/// taken for an allocator could report such blocks. Such blocks would fill the ledger, because they exceed every minimum size.
const ADDRESS_SPACE: u64 = 1 << 57;

const fn alloc(record: &AllocRecord, allocator: AllocatorId, tag: TagId) -> Result<EventKind, BadRecord> {
    if record.size >= ADDRESS_SPACE {
        return Err(BadRecord);
    }
    Ok(EventKind::Alloc {
        address: AbsAddr(record.address),
        size: Bytes(record.size),
        stack: StackId(record.stack),
        allocator,
        tag,
    })
}

const fn tagged_alloc(record: AllocRecord, tag: TagId) -> Result<EventKind, BadRecord> {
    let size = TaggedSize(record.size);
    alloc(&AllocRecord { size: size.bytes(), ..record }, AllocatorId(size.allocator()), tag)
}

/// Decodes a block that a target has sampled. The target chooses the numbers, so they are checked.
fn sampled_alloc(record: &SampledAllocRecord, tag: TagId) -> Result<EventKind, BadRecord> {
    let SampledAllocRecord { header, address, size, stack, drawn, interval, allocator, .. } = *record;
    let (interval, thinning) = (IntervalWord(interval).bytes(), IntervalWord(interval).level());
    // A block that the target itself has weighted (`interval` 0) is not thinned.
    if size >= ADDRESS_SPACE || drawn >= ADDRESS_SPACE || thinning > MAX_THINNING || interval == 0 && thinning != 0 {
        return Err(BadRecord);
    }
    let (address, size, drawn) = (AbsAddr(address), Bytes(size), Bytes(drawn));
    let key = rounding_key(address, Tick(header.tick));
    let sample = match interval {
        0 => Sample::of_weighted(size, drawn, key),
        interval => Sample::of_drawn(size, drawn, Bytes(interval), key),
    };
    let allocator = AllocatorId(u16::try_from(allocator).map_err(|_| BadRecord)?);
    let (sample, stack) = (Box::new(sample), StackId(stack));
    Ok(EventKind::SampledAlloc { address, size, sample, thinning, stack, allocator, tag })
}

/// Refuses ranges that exceed the address space.
fn checked_range(begin: u64, bytes: u64) -> Result<(AbsAddr, Bytes), BadRecord> {
    begin.checked_add(bytes).ok_or(BadRecord)?;
    Ok((AbsAddr(begin), Bytes(bytes)))
}

fn stack(record: &[u8]) -> Result<EventKind, BadRecord> {
    let StackRecord { stack, frames, end, taken, .. } = read(record)?;
    let (id, count) = (StackId(stack), frames as usize);
    let end = StackEnd::from_walk(end).ok_or(BadRecord)?;
    if count > MAX_FRAMES || !id.has_frames() {
        return Err(BadRecord);
    }
    let frames = record[size_of::<StackRecord>()..].get(..count * 8).ok_or(BadRecord)?;
    let (words, _) = frames.as_chunks::<8>();
    let frames = words.iter().map(|&word| AbsAddr(u64::from_ne_bytes(word))).collect();
    Ok(EventKind::Stack { id, stack: Box::new(Stack { frames, end, taken: Duration::from_nanos(taken) }) })
}

fn stall(record: &StallRecord) -> Result<EventKind, BadRecord> {
    Ok(EventKind::Stall(Box::new(Stall {
        work: reclaim_kind(record.kind).ok_or(BadRecord)?,
        order: Order::of(record.order),
        group: CgroupId::of(record.memcg),
        stack: StackId(record.stack),
        duration: Nanoseconds(record.duration),
        throttled: Nanoseconds(record.throttled),
        scanned: record.scanned,
        reclaimed: record.reclaimed,
    })))
}

fn oom_kill(record: &OomRecord) -> EventKind {
    EventKind::OomKill(Box::new(OutOfMemory {
        comm: comm(&record.comm),
        by: Pid(record.invoker),
        by_comm: comm(&record.invoker_comm),
        group: CgroupId::of(record.memcg),
        full: CgroupId::of(record.full_memcg),
    }))
}

fn rusage(record: &RusageRecord) -> Result<EventKind, BadRecord> {
    let (minor, major) = (record.minor_faults, record.major_faults);
    let peak_rss = Bytes(record.peak_pages.checked_mul(PAGE.0).ok_or(BadRecord)?);
    let is_known = minor != UNKNOWN_COUNT && major != UNKNOWN_COUNT;
    let counts = is_known.then_some(Rusage { faults: PageFaults { minor, major }, peak_rss });
    Ok(EventKind::Rusage { counts, is_traced: record.traced != 0 })
}

fn owner(record: &OwnerRecord) -> EventKind {
    EventKind::Owner(Box::new(Owner {
        uid: record.user,
        real_uid: record.real_user,
        cgroups: record.cgroups.map(CgroupId::of),
    }))
}

const fn dropped(record: &DroppedRecord) -> EventKind {
    let sum = Amount { bytes: Bytes(record.blocks.bytes), count: record.blocks.count };
    EventKind::Dropped { min_size: Bytes(record.min_size), sum }
}

/// Converts the number of a kind of reclaim, as in records and maps.
pub(super) const fn reclaim_kind(raw: u32) -> Option<ReclaimKind> {
    match raw {
        reclaim_kind::DIRECT => Some(ReclaimKind::Direct),
        reclaim_kind::MEMCG => Some(ReclaimKind::Memcg),
        reclaim_kind::COMPACTION => Some(ReclaimKind::Compaction),
        reclaim_kind::KSWAPD => Some(ReclaimKind::Kswapd),
        reclaim_kind::THROTTLED => Some(ReclaimKind::Throttled),
        reclaim_kind::OTHER => Some(ReclaimKind::Other),
        _ => None,
    }
}

/// Converts a comm, which ends at the first zero.
pub(super) fn comm(bytes: &[u8]) -> String {
    let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests;
