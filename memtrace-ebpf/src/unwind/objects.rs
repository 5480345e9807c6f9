//! Which objects have tables, and asking for those that have none yet.

use core::ptr;

use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::btf_map;
use memtrace_common::unwind::{MAX_OBJECTS, MAX_SEGMENTS, ObjectKey, ObjectTable, Segment, mapping};
use memtrace_common::wire::WantedRecord;

use crate::{emit, gate};

/// What it forgets is asked for again.
#[btf_map]
static OBJECTS: LruHashMap<ObjectKey, ObjectTable, MAX_OBJECTS> = LruHashMap::new();

/// An object that has been asked for.
const PENDING: ObjectTable = ObjectTable {
    page_base: 0,
    pages_and_kind: (mapping::PENDING as u32) << 24,
    segments: [Segment { offset: 0, end: 0, shift: 0 }; MAX_SEGMENTS],
};

/// Where the table of `object` lies, until [`is_still`] says otherwise. If it is not known, user space is asked, once, to
/// look at what the process has mapped there.
#[inline(always)]
pub fn table(pid: u32, object: &ObjectKey, begin: u64, end: u64) -> Option<&'static ObjectTable> {
    // SAFETY: its memory stays that of a value of the map.
    if let Some(known) = unsafe { OBJECTS.get(object) } {
        return Some(known);
    }
    // Only who has entered it asks.
    if OBJECTS.insert(object, &PENDING, gate::IF_NEW).is_ok()
        && !emit::wanted(WantedRecord { object: *object, begin, end, pid, reserved: 0 })
    {
        let _ = OBJECTS.remove(object);
    }
    None
}

/// Whether what was read from `table` was that of `object`: the memory of an entry that is replaced may be another entry's
/// at once (`htab_lru_push_free`, kernel/bpf/hashtab.c).
#[inline(always)]
pub fn is_still(object: &ObjectKey, table: &ObjectTable) -> bool {
    // SAFETY: only its address is asked for.
    unsafe { OBJECTS.get(object) }.is_some_and(|still| ptr::eq(still, table))
}
