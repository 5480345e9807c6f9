//! Unwind tables of objects. A missing table is requested from user space.

use core::ptr;

use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::btf_map;
use memtrace_common::unwind::{MAX_OBJECTS, MAX_SEGMENTS, ObjectKey, ObjectTable, Segment, mapping};
use memtrace_common::wire::TableRequestRecord;

use crate::emit;
use crate::limits::BPF_NOEXIST;

/// Tables by object. If an entry was evicted, its table is requested again.
#[btf_map]
static OBJECTS: LruHashMap<ObjectKey, ObjectTable, MAX_OBJECTS> = LruHashMap::new();

/// Entry of an object while its table is requested.
const PENDING: ObjectTable = ObjectTable {
    page_base: 0,
    pages_and_kind: (mapping::PENDING as u32) << 24,
    segments: [Segment { offset: 0, end: 0, shift: 0 }; MAX_SEGMENTS],
};

/// Returns the table of `object`. The table is valid as long as [`is_current`] returns true. If the table is not known,
/// requests it once and returns `None`. `begin` and `end` are the addresses of the object's mapping in the process;
/// both are 0 for the new executable of an exec, because the program at the exec does not look up the mapping.
#[inline(always)]
pub fn table(pid: u32, object: &ObjectKey, begin: u64, end: u64) -> Option<&'static ObjectTable> {
    // SAFETY: the memory of a removed entry remains a value of this map.
    if let Some(known) = unsafe { OBJECTS.get(object) } {
        return Some(known);
    }
    // The thread that inserts the entry sends the request.
    if OBJECTS.insert(object, &PENDING, BPF_NOEXIST).is_ok()
        && !emit::table_request(TableRequestRecord { object: *object, begin, end, pid, reserved: 0 })
    {
        let _ = OBJECTS.remove(object);
    }
    None
}

/// Returns true if `table` is still the entry of `object`. The kernel can reuse the memory of a replaced entry for another
/// entry at once (`htab_lru_push_free`, kernel/bpf/hashtab.c).
#[inline(always)]
pub fn is_current(object: &ObjectKey, table: &ObjectTable) -> bool {
    // SAFETY: only the address of the value is used.
    unsafe { OBJECTS.get(object) }.is_some_and(|still| ptr::eq(still, table))
}
