//! Records to events. Never panics and never fails silently: what can't be understood is a [`BadRecord`].

use std::time::Duration;

use memtrace_common::wire::{
    AllocRecord, BlockRecord, COMM, FaultRecord, ForkRecord, Header, MAX_FRAMES, MoveRecord, OomRecord, PAGE_SHIFT,
    RangeRecord, RecordKind, RusageRecord, StackRecord, StallRecord, UNKNOWN_COUNT, fault, reclaim_kind,
};

use crate::model::{
    AbsAddr, AllocatorId, Bytes, CgroupId, Event, EventKind, Nanoseconds, Order, OutOfMemory, PAGE, PageFaults, Pid,
    ReclaimKind, Rusage, Stack, StackEnd, StackId, Stall, Tick, Tid, Touch,
};

/// A record that does not say what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRecord;

/// Makes an event of one record as it lies in a ring.
///
/// # Errors
///
/// [`BadRecord`] where the record is too short, of no known kind, or contradicts itself.
pub fn decode(record: &[u8]) -> Result<Event, BadRecord> {
    let (kind, allocator) = RecordKind::split(word32(record, std::mem::offset_of!(Header, kind))?);
    let kind = kind.ok_or(BadRecord)?;
    if allocator != 0 && kind != RecordKind::Alloc {
        return Err(BadRecord);
    }
    let address = |record| word64(record, std::mem::offset_of!(BlockRecord, address)).map(AbsAddr);
    let kind = match kind {
        RecordKind::Alloc => EventKind::Alloc {
            address: address(record)?,
            size: Bytes(word64(record, std::mem::offset_of!(AllocRecord, size))?),
            stack: StackId(word64(record, std::mem::offset_of!(AllocRecord, stack))?),
            allocator: AllocatorId(allocator),
        },
        RecordKind::Free => EventKind::Free { address: address(record)? },
        RecordKind::TentativeFree => EventKind::TentativeFree { address: address(record)? },
        RecordKind::UndoFree => EventKind::UndoFree { address: address(record)? },
        RecordKind::Stack => stack(record)?,
        RecordKind::Fault => {
            let word = word64(record, std::mem::offset_of!(FaultRecord, page))?;
            EventKind::Fault {
                page: AbsAddr(word >> PAGE_SHIFT << PAGE_SHIFT),
                touch: Touch { present: word & fault::PRESENT != 0, write: word & fault::WRITE != 0 },
                stack: StackId(word64(record, std::mem::offset_of!(FaultRecord, stack))?),
            }
        }
        RecordKind::MajorFault => EventKind::MajorFault { page: address(record)? },
        RecordKind::Map => {
            let (begin, size) = range(record)?;
            EventKind::Map { begin, size, stack: stack_of_range(record)? }
        }
        RecordKind::TentativeUnmap => {
            let (begin, size) = range(record)?;
            EventKind::TentativeUnmap { begin, size }
        }
        RecordKind::UndoUnmap => EventKind::UndoUnmap,
        RecordKind::Move => {
            let (begin, size) = range(record)?;
            let old = word64(record, std::mem::offset_of!(MoveRecord, old_begin))?;
            let old_size = word64(record, std::mem::offset_of!(MoveRecord, old_bytes))?;
            old.checked_add(old_size).ok_or(BadRecord)?;
            EventKind::Move {
                old: AbsAddr(old),
                old_size: Bytes(old_size),
                begin,
                size,
                keeps: word64(record, std::mem::offset_of!(MoveRecord, keeps))? != 0,
                stack: stack_of_range(record)?,
            }
        }
        RecordKind::Fork => EventKind::Fork { child: Pid(word32(record, std::mem::offset_of!(ForkRecord, child))?) },
        RecordKind::Stall => stall(record)?,
        RecordKind::OomKill => out_of_memory(record)?,
        RecordKind::Rusage => counts(record)?,
        RecordKind::Exec => EventKind::Exec,
        RecordKind::Exit => EventKind::Exit,
    };
    Ok(Event {
        pid: Pid(word32(record, std::mem::offset_of!(Header, pid))?),
        tid: Tid(word32(record, std::mem::offset_of!(Header, tid))?),
        tick: Tick(word32(record, std::mem::offset_of!(Header, tick))?),
        kind,
    })
}

/// Where addresses begin and how many they are; those that go beyond the last address contradict themselves.
fn range(record: &[u8]) -> Result<(AbsAddr, Bytes), BadRecord> {
    let begin = word64(record, std::mem::offset_of!(RangeRecord, begin))?;
    let bytes = word64(record, std::mem::offset_of!(RangeRecord, bytes))?;
    begin.checked_add(bytes).ok_or(BadRecord)?;
    Ok((AbsAddr(begin), Bytes(bytes)))
}

fn stack_of_range(record: &[u8]) -> Result<StackId, BadRecord> {
    word64(record, std::mem::offset_of!(RangeRecord, stack)).map(StackId)
}

fn stack(record: &[u8]) -> Result<EventKind, BadRecord> {
    let id = StackId(word64(record, std::mem::offset_of!(StackRecord, stack))?);
    let count = word32(record, std::mem::offset_of!(StackRecord, frames))? as usize;
    let end = StackEnd::from_walk(word32(record, std::mem::offset_of!(StackRecord, end))?).ok_or(BadRecord)?;
    let taken = Duration::from_nanos(word64(record, std::mem::offset_of!(StackRecord, taken))?);
    if count > MAX_FRAMES || !id.has_frames() {
        return Err(BadRecord);
    }
    let frames = record.get(size_of::<StackRecord>()..).ok_or(BadRecord)?;
    let frames = frames.get(..count * 8).ok_or(BadRecord)?;
    let (words, _) = frames.as_chunks::<8>();
    let frames = words.iter().map(|&word| AbsAddr(u64::from_ne_bytes(word))).collect();
    Ok(EventKind::Stack { id, stack: Box::new(Stack { frames, end, taken }) })
}

fn stall(record: &[u8]) -> Result<EventKind, BadRecord> {
    let number = |offset| word64(record, offset);
    Ok(EventKind::Stall(Box::new(Stall {
        work: word32(record, std::mem::offset_of!(StallRecord, kind)).and_then(|raw| work(raw).ok_or(BadRecord))?,
        order: Order::of(word32(record, std::mem::offset_of!(StallRecord, order))?),
        group: CgroupId::of(number(std::mem::offset_of!(StallRecord, memcg))?),
        stack: StackId(number(std::mem::offset_of!(StallRecord, stack))?),
        duration: Nanoseconds(number(std::mem::offset_of!(StallRecord, duration))?),
        throttled: Nanoseconds(number(std::mem::offset_of!(StallRecord, throttled))?),
        scanned: number(std::mem::offset_of!(StallRecord, scanned))?,
        reclaimed: number(std::mem::offset_of!(StallRecord, reclaimed))?,
    })))
}

fn out_of_memory(record: &[u8]) -> Result<EventKind, BadRecord> {
    let name = |offset: usize| record.get(offset..offset + COMM).map(comm).ok_or(BadRecord);
    Ok(EventKind::OomKill(Box::new(OutOfMemory {
        comm: name(std::mem::offset_of!(OomRecord, comm))?,
        by: Pid(word32(record, std::mem::offset_of!(OomRecord, invoker))?),
        by_comm: name(std::mem::offset_of!(OomRecord, invoker_comm))?,
        group: CgroupId::of(word64(record, std::mem::offset_of!(OomRecord, memcg))?),
        full: CgroupId::of(word64(record, std::mem::offset_of!(OomRecord, full_memcg))?),
    })))
}

fn counts(record: &[u8]) -> Result<EventKind, BadRecord> {
    let number = |offset| word64(record, offset);
    let minor = number(std::mem::offset_of!(RusageRecord, minor_faults))?;
    let major = number(std::mem::offset_of!(RusageRecord, major_faults))?;
    let peak_pages = number(std::mem::offset_of!(RusageRecord, peak_pages))?;
    let is_traced = number(std::mem::offset_of!(RusageRecord, traced))? != 0;
    let is_known = minor != UNKNOWN_COUNT && major != UNKNOWN_COUNT;
    let peak_rss = Bytes(peak_pages.checked_mul(PAGE.0).ok_or(BadRecord)?);
    let counts = is_known.then_some(Rusage { faults: PageFaults { minor, major }, peak_rss });
    Ok(EventKind::Rusage { counts, is_traced })
}

/// What the kernel half's number for it stands for.
pub(super) const fn work(raw: u32) -> Option<ReclaimKind> {
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

/// A thread's name, up to its first zero.
pub(super) fn comm(bytes: &[u8]) -> String {
    let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

fn word32(record: &[u8], offset: usize) -> Result<u32, BadRecord> {
    let bytes = record.get(offset..).and_then(<[u8]>::first_chunk).ok_or(BadRecord)?;
    Ok(u32::from_ne_bytes(*bytes))
}

fn word64(record: &[u8], offset: usize) -> Result<u64, BadRecord> {
    let bytes = record.get(offset..).and_then(<[u8]>::first_chunk).ok_or(BadRecord)?;
    Ok(u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(kind: u32) -> Vec<u8> {
        [kind, 12, 11, 7].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect()
    }

    fn with_words(mut record: Vec<u8>, words: &[u64]) -> Vec<u8> {
        record.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        record
    }

    fn event(kind: EventKind) -> Event {
        Event { pid: Pid(11), tid: Tid(12), tick: Tick(7), kind }
    }

    #[test]
    fn each_kind_is_decoded_from_its_bytes() {
        let address = AbsAddr(0x7f00_dead_beef);
        let block = |kind| with_words(header(kind), &[address.0]);
        assert_eq!(
            decode(&with_words(header(1), &[address.0, 4096, 99])),
            Ok(event(EventKind::Alloc {
                address,
                size: Bytes(4096),
                stack: StackId(99),
                allocator: AllocatorId::UNKNOWN
            }))
        );
        assert_eq!(
            decode(&with_words(header(1 | 0xabcd << 16), &[address.0, 4096, 99])),
            Ok(event(EventKind::Alloc {
                address,
                size: Bytes(4096),
                stack: StackId(99),
                allocator: AllocatorId(0xabcd)
            }))
        );
        assert_eq!(decode(&block(2)), Ok(event(EventKind::Free { address })));
        assert_eq!(decode(&block(3)), Ok(event(EventKind::TentativeFree { address })));
        assert_eq!(decode(&block(4)), Ok(event(EventKind::UndoFree { address })));
        assert_eq!(
            decode(&with_words(header(8), &[0x7f00_0000_5003, 99])),
            Ok(event(EventKind::Fault {
                page: AbsAddr(0x7f00_0000_5000),
                touch: Touch { present: true, write: true },
                stack: StackId(99)
            }))
        );
        assert_eq!(decode(&block(9)), Ok(event(EventKind::MajorFault { page: address })));
        let (begin, size, stack) = (address, Bytes(8192), StackId(99));
        let mapped = |kind| with_words(header(kind), &[address.0, 8192, 99]);
        assert_eq!(decode(&mapped(11)), Ok(event(EventKind::Map { begin, size, stack })));
        assert_eq!(decode(&mapped(12)), Ok(event(EventKind::TentativeUnmap { begin, size })));
        assert_eq!(decode(&header(13)), Ok(event(EventKind::UndoUnmap)));
        let (old, old_size) = (AbsAddr(0x1000), Bytes(4096));
        assert_eq!(
            decode(&with_words(mapped(14), &[0x1000, 4096, 1])),
            Ok(event(EventKind::Move { old, old_size, begin, size, keeps: true, stack }))
        );
        assert_eq!(decode(&with_words(header(11), &[u64::MAX, 8192, 99])), Err(BadRecord));
        assert_eq!(decode(&with_words(header(10), &[4712])), Ok(event(EventKind::Fork { child: Pid(4712) })));
        let kswapd_of_order_nine = 3 | 9 << 32;
        assert_eq!(
            decode(&with_words(header(15), &[99, 5000, 400, 32, 30, kswapd_of_order_nine, 77])),
            Ok(event(EventKind::Stall(Box::new(Stall {
                work: ReclaimKind::Kswapd,
                order: Order::of(9),
                group: CgroupId::of(77),
                stack: StackId(99),
                duration: Nanoseconds(5000),
                throttled: Nanoseconds(400),
                scanned: 32,
                reclaimed: 30
            }))))
        );
        let mut killed = header(16);
        killed.extend(b"victim\0old-byteskworker/0:1\0\0\0\0");
        killed.splice(32..32, [42, 0, 0, 0, 0, 0, 0, 0]);
        let (comm, by_comm) = (String::from("victim"), String::from("kworker/0:1"));
        let (group, full) = (CgroupId::of(7), None);
        let out_of_memory = OutOfMemory { comm, by: Pid(42), by_comm, group, full };
        assert_eq!(decode(&killed[..55]), Err(BadRecord), "half of a name");
        killed.push(0);
        killed.extend([7, 0].iter().flat_map(|group: &u64| group.to_ne_bytes()));
        assert_eq!(decode(&killed), Ok(event(EventKind::OomKill(Box::new(out_of_memory)))));
        let counts = Rusage { faults: PageFaults { minor: 70, major: 3 }, peak_rss: Bytes(9 << 12) };
        assert_eq!(
            decode(&with_words(header(17), &[70, 3, 9, 1])),
            Ok(event(EventKind::Rusage { counts: Some(counts), is_traced: true }))
        );
        assert_eq!(
            decode(&with_words(header(17), &[70, u64::MAX, 9, 0])),
            Ok(event(EventKind::Rusage { counts: None, is_traced: false }))
        );
        assert_eq!(decode(&header(6)), Ok(event(EventKind::Exec)));
        assert_eq!(decode(&header(7)), Ok(event(EventKind::Exit)));
        let truncated_with_two_frames = 2 | 4 << 32;
        assert_eq!(
            decode(&with_words(header(5), &[99, truncated_with_two_frames, 7_000_001, 0x10, 0x20])),
            Ok(event(EventKind::Stack {
                id: StackId(99),
                stack: Box::new(Stack {
                    frames: [AbsAddr(0x10), AbsAddr(0x20)].into(),
                    end: StackEnd::Truncated,
                    taken: Duration::from_nanos(7_000_001)
                }),
            }))
        );
    }

    #[test]
    fn what_contradicts_itself_is_bad() {
        assert_eq!(decode(&[]), Err(BadRecord));
        assert_eq!(decode(&header(0)), Err(BadRecord));
        assert_eq!(decode(&header(15)), Err(BadRecord));
        assert_eq!(decode(&header(2)), Err(BadRecord), "a free without an address");
        assert_eq!(decode(&with_words(header(2 | 1 << 16), &[1])), Err(BadRecord), "a free by an allocator");
        assert_eq!(decode(&with_words(header(1), &[1, 2])), Err(BadRecord), "an allocation without a stack");
        assert_eq!(
            decode(&with_words(header(5), &[99, 3 | 1 << 32, 7, 1, 2])),
            Err(BadRecord),
            "fewer frames than said"
        );
        assert_eq!(decode(&with_words(header(5), &[99, 257 | 1 << 32, 7])), Err(BadRecord), "more frames than can be");
        assert_eq!(decode(&with_words(header(5), &[99, 0, 7])), Err(BadRecord), "no known end");
        assert_eq!(decode(&with_words(header(5), &[99, 15 << 32, 7])), Err(BadRecord), "an end without a walk");
        assert_eq!(decode(&with_words(header(15), &[99, 1, 0, 0, 0, 6, 0])), Err(BadRecord), "no known work");
        assert_eq!(decode(&with_words(header(17), &[70, 3, 1 << 52, 1])), Err(BadRecord), "more than there can be");
        assert_eq!(decode(&with_words(header(5), &[1, 1 << 32, 7])), Err(BadRecord), "the id of no stack");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(record in proptest::collection::vec(any::<u8>(), 0..2200), kind in 0u32..19) {
            let _ = decode(&record);
            let mut known = record;
            if known.len() >= 4 {
                known[..4].copy_from_slice(&kind.to_ne_bytes());
            }
            let _ = decode(&known);
        }
    }
}
