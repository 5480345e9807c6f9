//! What of a file is mapped at an address, as the kernel itself knows it.

use core::ffi::c_void;
use core::ptr::{self, from_mut, read_volatile, write_volatile};

use aya_ebpf::bindings::task_struct;
use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::helpers::generated::{bpf_find_vma, bpf_get_current_task_btf};
use aya_ebpf::macros::btf_map;
use memtrace_common::unwind::{Mapping, ObjectKey, mapping};
use memtrace_common::wire::End;
use memtrace_unwind::lookup::{self, Area};

use super::tables::copy;
use super::{State, objects};
use crate::kernel::{self, read};
use crate::settings::{self, areas as layout};
use crate::stack::Scratch;

/// Of `errno`s.
pub const NOT_FOUND: i64 = -2;

/// Code may be run there (`VM_EXEC`, include/linux/mm.h).
const EXECUTABLE: u64 = 1 << 2;

const PAGE_SHIFT: u64 = 12;

/// Mappings are remembered for each 2^16 bytes of addresses with code that was met, and what was met last for each 2^20 and
/// 2^24 bytes. So the kernel is asked about a large mapping a few times only, and what is mapped is known while it cannot say
/// so.
const PARTS: [u32; 3] = [16, 20, 24];

/// Some addresses of a process: those that are `part` without their lowest bits, `bits` many.
#[repr(C)]
struct Place {
    part: u64,
    generation: u32,
    bits: u32,
}

impl Place {
    #[inline(always)]
    fn of(pc: u64, bits: u32, generation: u32) -> Self {
        Self { part: pc >> bits, generation, bits }
    }
}

/// Mappings that the kernel was asked for. Asking takes it some hundred nanoseconds, and fails while another thread changes
/// the process' mappings.
///
/// The memory of an entry that is replaced may be another entry's at once (`htab_lru_push_free`, kernel/bpf/hashtab.c), so
/// that who has copied one looks whether it is still there.
#[btf_map]
static KNOWN: LruHashMap<Place, Mapping, 16384> = LruHashMap::new();

/// How often the kernel is asked while the process' mappings are locked for a change by another of its threads.
const TRIES: u32 = 64;

/// A part of a process' addresses, and what it shows. It lies in the walk's scratch memory, since the stack has little room.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Mapped {
    begin: u64,
    end: u64,
    offset: u64,
    object: ObjectKey,
    executable: bool,
    /// Whether there is a file, or what the kernel lends as one.
    is_file: bool,
    read: bool,
}

impl Mapped {
    /// Its addresses, read anew: what is kept over a call takes room of the stack, which has none left (see [`forget`]).
    #[inline(always)]
    fn area(&self) -> Area {
        // SAFETY: they are borrowed for reading.
        unsafe {
            Area {
                begin: read_volatile(&raw const self.begin),
                end: read_volatile(&raw const self.end),
                offset: read_volatile(&raw const self.offset),
            }
        }
    }
}

const FOUND: u64 = 0;
const NO_MAPPING: u64 = End::NoMapping as u64;
const PENDING: u64 = End::TablePending as u64;
const BUSY: u64 = End::MappingsBusy as u64;

/// Finds the mapping of the current process that `pc` lies in, and puts it into the walk in progress in the scratch memory
/// of `slot`. Returns 0, or the [`End`] of the walk.
///
/// Is verified by itself, as the step is.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn unwind_find_mapping(slot: u32, pc: u64) -> u64 {
    let Some(scratch) = Scratch::at(slot) else { return NO_MAPPING };
    let generation = scratch.unwind.process.generation;
    for bits in PARTS {
        if recall(slot, &Place::of(pc, bits, generation), pc) {
            if bits != PARTS[0] {
                keep(slot, &Place::of(pc, PARTS[0], generation));
            }
            return FOUND;
        }
    }
    let mut result = BUSY;
    for _ in 0..TRIES {
        result = unwind_ask(slot, pc);
        if result != BUSY {
            break;
        }
    }
    if result == FOUND
        && let Some(scratch) = Scratch::at(slot)
        // What is not known yet may be so when it is looked up next.
        && (scratch.unwind.last.pages_and_kind >> 24) as u8 == mapping::TABLE
    {
        for bits in PARTS {
            keep(slot, &Place::of(pc, bits, generation));
        }
    }
    result
}

/// Whether the mapping that holds `pc` is remembered for `place`; it is the last one then.
#[inline(always)]
fn recall(slot: u32, place: &Place, pc: u64) -> bool {
    let Some(scratch) = Scratch::at(slot) else { return false };
    let last = &mut scratch.unwind.last;
    // SAFETY: its memory stays that of a value of the map; whether of this one is seen below.
    let Some(known) = (unsafe { KNOWN.get(place) }) else { return false };
    copy(last, known);
    // SAFETY: as above.
    unsafe { KNOWN.get(place) }.is_some_and(|still| ptr::eq(still, known)) && lookup::holds(last, pc)
}

/// Remembers the last mapping for `place`. What cannot be kept is asked for again.
#[inline(always)]
fn keep(slot: u32, place: &Place) {
    if let Some(scratch) = Scratch::at(slot) {
        let _ = KNOWN.insert(place, &scratch.unwind.last, 0);
    }
}

/// Asks the kernel once. Is verified by itself, lest it be so for each time.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_ask(slot: u32, pc: u64) -> u64 {
    if !settings::can_find_areas() {
        return NO_MAPPING;
    }
    match Scratch::at(slot) {
        Some(scratch) => scratch.unwind.mapped.read = false,
        None => return NO_MAPPING,
    }
    let mut whose = slot as u64;
    // SAFETY: the callback is a program of this object, and reads what `whose` is only.
    let result = unsafe {
        bpf_find_vma(bpf_get_current_task_btf(), pc, describe as *mut c_void, from_mut(&mut whose).cast(), 0)
    };
    if result != 0 && result != NOT_FOUND {
        return BUSY;
    }
    let Some(scratch) = Scratch::at(slot) else { return NO_MAPPING };
    let State { last, pid, mapped, .. } = &mut scratch.unwind;
    if result != 0 || !mapped.read || !mapped.executable {
        return NO_MAPPING;
    }
    let (begin, end) = (mapped.begin, mapped.end);
    if !mapped.is_file {
        let generated = (mapping::GENERATED as u32) << 24;
        copy(last, &Mapping { begin, end, bias: 0, page_base: 0, pages_and_kind: generated });
        return FOUND;
    }
    let Some(table) = objects::table(*pid, &mapped.object, begin, end) else { return PENDING };
    copy(last, &lookup::mapping(table, &mapped.area(), pc));
    if objects::is_still(&mapped.object, table) { FOUND } else { BUSY }
}

/// How many pages of code the current process has mapped (`vm_stat_account`, mm/mmap.c).
#[inline(always)]
pub fn code_pages() -> Option<u32> {
    read(read(kernel::task(), layout::task_memory())?, layout::code_pages())
}

/// From where to where the current process has its program's code, as the program says (`mm_struct`).
#[inline(always)]
pub fn program_code() -> Option<(u64, u64)> {
    let memory = read(kernel::task(), layout::task_memory())?;
    Some((read(memory, layout::program_begin())?, read(memory, layout::program_end())?))
}

/// As `bpf_find_vma` calls it, while the mappings are locked.
extern "C" fn describe(_task: *mut task_struct, area: *mut c_void, whose: *mut c_void) -> i64 {
    // SAFETY: what `unwind_ask` gave.
    let slot = unsafe { *whose.cast::<u64>() } as u32;
    if let Some(scratch) = Scratch::at(slot) {
        let mapped = &mut scratch.unwind.mapped;
        mapped.read = read_area(area as u64, mapped).is_some();
    }
    0
}

#[inline(always)]
fn read_area(area: u64, mapped: &mut Mapped) -> Option<()> {
    mapped.executable = read::<u64>(area, layout::flags())? & EXECUTABLE != 0;
    mapped.begin = read(area, layout::begin())?;
    mapped.end = read(area, layout::end())?;
    mapped.offset = read::<u64>(area, layout::page_offset())? << PAGE_SHIFT;
    let file = file(area)?;
    forget(&mut mapped.object);
    if file == 0 {
        // The code that the kernel lends has no file; where it lies it tells.
        let memory = read(area, layout::memory())?;
        mapped.is_file = read::<u64>(memory, layout::vdso())? == mapped.begin;
        mapped.offset = 0;
        return Some(());
    }
    mapped.is_file = true;
    read_object(file, &mut mapped.object)
}

/// The address of the `struct file` that is mapped there; 0: none is.
#[inline(always)]
pub fn file(area: u64) -> Option<u64> {
    read(area, layout::file())
}

/// Word by word: the compiler would call a function, and each call takes at least 32 bytes of a stack that has none left
/// (`check_max_stack_depth`, kernel/bpf/verifier.c).
#[inline(always)]
fn forget(object: &mut ObjectKey) {
    object.inode = 0;
    // SAFETY: it is borrowed for writing.
    unsafe { write_volatile(&raw mut object.changed_s, 0) };
    object.changed_ns = 0;
    object.device = 0;
}

/// `file` is the address of a `struct file`.
#[inline(always)]
pub fn read_object(file: u64, object: &mut ObjectKey) -> Option<()> {
    let inode = read(file, layout::inode())?;
    object.inode = read(inode, layout::number())?;
    object.changed_s = read::<u64>(inode, layout::changed_s())? as i64;
    object.changed_ns = read::<u32>(inode, layout::changed_ns())? & NANOSECONDS;
    object.device = read(read(inode, layout::super_block())?, layout::device())?;
    Some(())
}

/// Has the table made of the program that the process runs from now on, if it is not known; `program` is the address of
/// the `struct linux_binprm`.
#[inline(always)]
pub fn announce(pid: u32, program: u64) {
    let mut object = ObjectKey { inode: 0, changed_s: 0, changed_ns: 0, device: 0 };
    if settings::can_find_areas()
        && settings::max_depth() != 0
        && let Some(file) = read(program, layout::program())
        && read_object(file, &mut object).is_some()
    {
        // It is for what comes.
        let _ = objects::table(pid, &object, 0, 0);
    }
}

/// Of a time's nanoseconds the kernel uses the upper bit for itself (`I_CTIME_QUERIED`, include/linux/fs.h, Linux 6.13).
const NANOSECONDS: u32 = (1 << 31) - 1;
