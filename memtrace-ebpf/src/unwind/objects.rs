//! Which objects have tables, and asking for those that have none yet.

use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::macros::btf_map;
use memtrace_common::unwind::{MAX_OBJECTS, MAX_SEGMENTS, ObjectKey, ObjectTable, Segment, mapping};
use memtrace_common::wire::WantedRecord;

use crate::emit;

/// What it forgets is asked for again.
#[btf_map]
static OBJECTS: LruHashMap<ObjectKey, ObjectTable, MAX_OBJECTS> = LruHashMap::new();

/// Only where there is no entry yet (`BPF_NOEXIST`, include/uapi/linux/bpf.h).
const IF_NEW: u64 = 1;

/// An object that has been asked for.
const PENDING: ObjectTable = ObjectTable {
    page_base: 0,
    pages_and_kind: (mapping::PENDING as u32) << 24,
    segments: [Segment { offset: 0, end: 0, shift: 0 }; MAX_SEGMENTS],
};

/// Where the table of `object` lies. If it is not known, user space is asked, once, to look at what the process has
/// mapped there.
#[inline(always)]
pub fn table(pid: u32, object: &ObjectKey, begin: u64, end: u64) -> Option<&'static ObjectTable> {
    // SAFETY: user space replaces entries as a whole; should it do so while one is read, the old one stays readable
    // until the program ends.
    if let Some(known) = unsafe { OBJECTS.get(object) } {
        return Some(known);
    }
    // Only who has entered it asks.
    if OBJECTS.insert(object, &PENDING, IF_NEW).is_ok()
        && !emit::wanted(WantedRecord { object: *object, begin, end, pid, reserved: 0 })
    {
        let _ = OBJECTS.remove(object);
    }
    None
}
