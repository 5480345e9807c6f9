//! VMA look-up: which file is mapped at an address of the current process.

use core::ffi::c_void;
use core::ptr::{self, from_mut, read_volatile, write_volatile};

use aya_ebpf::bindings::task_struct;
use aya_ebpf::btf_maps::LruHashMap;
use aya_ebpf::helpers::generated::{bpf_find_vma, bpf_get_current_task_btf};
use aya_ebpf::macros::btf_map;
use memtrace_common::unwind::{Mapping, ObjectKey, mapping};
use memtrace_common::wire::End;
use memtrace_unwind::lookup::{self, VmaRange};

use super::{objects, vma_tree};
use crate::file_id;
use crate::kernel::{self, read};
use crate::limits::ENOENT;
use crate::scratch::{Scratch, Vma, WalkState, copy_mapping};
use crate::settings::{self, field};

/// `VM_EXEC`, include/linux/mm.h.
const VM_EXEC: u64 = 1 << 2;

const PAGE_SHIFT: u64 = 12;

/// Maximum distance in bytes from the stack pointer to the end of its stack. The stacks of other threads are further
/// away from the end of the main thread's stack (`mmap_base`, arch/x86/mm/mmap.c).
const MAX_STACK: u64 = 128 << 20;

/// Sizes of the address ranges in the cache of mappings, as powers of two. The entries of the smallest size have every mapping
/// that was hit. An entry of a larger size has the last mapping in its range, so a large mapping needs few look-ups in the
/// kernel, and is known even if such a look-up fails.
const RANGE_BITS: [u32; 3] = [16, 20, 24];

/// Cache key: the 2^`bits`-sized address range that contains an address.
#[repr(C)]
struct RangeKey {
    prefix: u64,
    generation: u32,
    bits: u32,
}

impl RangeKey {
    #[inline(always)]
    fn containing(pc: u64, bits: u32, generation: u32) -> Self {
        Self { prefix: pc >> bits, generation, bits }
    }
}

/// Cache of look-ups. A look-up in the kernel takes some hundred nanoseconds, and can fail while another thread
/// changes the mappings.
///
/// The kernel can reuse the memory of a replaced entry for another entry at once (`htab_lru_push_free`, kernel/bpf/hashtab.c).
/// So a reader that has copied an entry checks that the entry is still there.
#[btf_map]
static VMA_CACHE: LruHashMap<RangeKey, Mapping, 16384> = LruHashMap::new();

/// Maximum number of attempts while the mmap lock is held, or while a table is replaced.
const TRIES: u32 = 64;

/// Maximum number of attempts if each attempt also searches without the mmap lock. Such a search misses a VMA only
/// while the tree node of the VMA is replaced.
const SEARCHES: u32 = 3;

const FOUND: u64 = 0;
const NO_MAPPING: u64 = End::NoMapping as u64;
const PENDING: u64 = End::TablePending as u64;
const BUSY: u64 = End::MappingsBusy as u64;

/// Finds the mapping of the current process that contains `pc`, and stores it in the scratch memory of `slot`. Returns
/// [`FOUND`], or the [`End`] of the walk. The function is global, like [`super::unwind_step`].
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn unwind_find_mapping(slot: u32, pc: u64) -> u64 {
    let Some(scratch) = Scratch::get(slot) else { return NO_MAPPING };
    let generation = scratch.walk.process.generation;
    for bits in RANGE_BITS {
        if load_cached(slot, &RangeKey::containing(pc, bits, generation), pc) {
            if bits != RANGE_BITS[0] {
                cache(slot, &RangeKey::containing(pc, RANGE_BITS[0], generation));
            }
            return FOUND;
        }
    }
    let mut result = BUSY;
    let tries = if vma_tree::is_known() { SEARCHES } else { TRIES };
    for attempt in 0..TRIES {
        if attempt >= tries {
            break;
        }
        result = unwind_find_vma(slot, pc);
        if result == BUSY && vma_tree::is_known() {
            result = unwind_search_vma(slot, pc);
        }
        if result == FOUND {
            result = unwind_map_vma(slot, pc);
        }
        if result != BUSY {
            break;
        }
    }
    if result == FOUND
        && let Some(scratch) = Scratch::get(slot)
        // A mapping whose table is missing is not cached, because the table may exist at the next look-up.
        && matches!((scratch.walk.mapping.pages_and_kind >> 24) as u8, mapping::TABLE | mapping::GENERATED)
    {
        for bits in RANGE_BITS {
            cache(slot, &RangeKey::containing(pc, bits, generation));
        }
    }
    result
}

/// Loads the mapping that is cached for `key`. Returns true if it contains `pc`.
#[inline(always)]
fn load_cached(slot: u32, key: &RangeKey, pc: u64) -> bool {
    let Some(scratch) = Scratch::get(slot) else { return false };
    let mapping = &mut scratch.walk.mapping;
    // SAFETY: the memory of a removed entry remains a value of this map. The check below finds a removed entry.
    let Some(cached) = (unsafe { VMA_CACHE.get(key) }) else { return false };
    copy_mapping(mapping, cached);
    // SAFETY: as above.
    unsafe { VMA_CACHE.get(key) }.is_some_and(|still| ptr::eq(still, cached)) && lookup::holds(mapping, pc)
}

/// Caches the mapping of the last look-up.
#[inline(always)]
fn cache(slot: u32, key: &RangeKey) {
    if let Some(scratch) = Scratch::get(slot) {
        let _ = VMA_CACHE.insert(key, &scratch.walk.mapping, 0);
    }
}

/// Looks up the VMA that contains `pc` with `bpf_find_vma`, and copies it into the scratch memory of `slot`. The
/// function is global, so that the verifier does not check it for each attempt.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_find_vma(slot: u32, pc: u64) -> u64 {
    match Scratch::get(slot) {
        Some(scratch) => scratch.walk.vma.is_read = false,
        None => return NO_MAPPING,
    }
    let mut argument = slot as u64;
    // SAFETY: the callback is a program of this object, and only reads `argument`.
    let result = unsafe {
        bpf_find_vma(bpf_get_current_task_btf(), pc, copy_vma as *mut c_void, from_mut(&mut argument).cast(), 0)
    };
    match result {
        0 => FOUND,
        ENOENT => NO_MAPPING,
        _ => BUSY,
    }
}

/// Searches for the VMA that contains `pc` without the mmap lock, and copies it into the scratch memory of `slot`.
/// Returns [`BUSY`] if the search fails. The function is global, like [`unwind_find_vma`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_search_vma(slot: u32, pc: u64) -> u64 {
    let mm = kernel::read_word(kernel::current_task(), field!(vma.task_mm));
    let vma = vma_tree::find(mm, pc);
    if vma != 0
        && let Some(scratch) = Scratch::get(slot)
    {
        let copy = &mut scratch.walk.vma;
        // The VMA may be changing, or its memory may belong to another VMA by now.
        copy.is_read = read_vma(vma, copy).is_some()
            && kernel::read_word(vma, field!(vma.vm_mm)) == mm
            && kernel::read_word(vma, field!(vma.vm_start)) == copy.begin
            && kernel::read_word(vma, field!(vma.vm_pgoff)) << PAGE_SHIFT == copy.offset
            && copy.begin <= pc
            && pc < copy.end;
        if copy.is_read {
            return FOUND;
        }
    }
    BUSY
}

/// Stores the mapping for the VMA that was copied into the scratch memory of `slot`. The function is global, like
/// [`unwind_find_vma`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn unwind_map_vma(slot: u32, pc: u64) -> u64 {
    let Some(scratch) = Scratch::get(slot) else { return NO_MAPPING };
    let WalkState { mapping, pid, vma, .. } = &mut scratch.walk;
    if !vma.is_read || !vma.executable {
        return NO_MAPPING;
    }
    let (begin, end) = (vma.begin, vma.end);
    if !vma.is_file {
        let generated = (mapping::GENERATED as u32) << 24;
        copy_mapping(mapping, &Mapping { begin, end, bias: 0, page_base: 0, pages_and_kind: generated });
        return FOUND;
    }
    let Some(table) = objects::table(*pid, &vma.object, begin, end) else { return PENDING };
    copy_mapping(mapping, &lookup::mapping(table, &range(vma), pc));
    if objects::is_current(&vma.object, table) { FOUND } else { BUSY }
}

/// Returns the addresses of a VMA. The volatile reads load them again after a call: values kept across a call need
/// stack space, and none is left (see [`clear`]).
#[inline(always)]
fn range(vma: &Vma) -> VmaRange {
    // SAFETY: the fields are borrowed for reading.
    unsafe {
        VmaRange {
            begin: read_volatile(&raw const vma.begin),
            end: read_volatile(&raw const vma.end),
            offset: read_volatile(&raw const vma.offset),
        }
    }
}

/// Returns the number of pages in the executable mappings of the current process (`vm_stat_account`, mm/mmap.c).
#[inline(always)]
pub fn exec_pages() -> Option<u32> {
    match field!(vma.task_mm) {
        // The offset is unknown when the object is verified before user space has written its settings.
        0 => read(read(kernel::current_task(), field!(vma.task_mm))?, field!(vma.mm_exec_vm)),
        task_mm => {
            let exec_vm = field!(vma.mm_exec_vm) as usize;
            // SAFETY: the verifier knows the types of the members, and a load from an address that is not mapped is 0.
            unsafe {
                let task = bpf_get_current_task_btf().cast::<u8>();
                let mm = read_volatile(task.add(task_mm as usize).cast::<*const u8>());
                Some(read_volatile(mm.add(exec_vm).cast()))
            }
        }
    }
}

/// Returns the address range of the code of the current process's executable, from its `mm_struct`.
#[inline(always)]
pub fn executable_range() -> Option<(u64, u64)> {
    let mm = read(kernel::current_task(), field!(vma.task_mm))?;
    Some((read(mm, field!(vma.mm_start_code))?, read(mm, field!(vma.mm_end_code))?))
}

/// Returns the start address of the main thread's stack, where `argc` is (`load_elf_binary`, fs/binfmt_elf.c).
#[inline(always)]
pub fn main_stack_start() -> u64 {
    kernel::read_word(kernel::read_word(kernel::current_task(), field!(vma.task_mm)), field!(vma.mm_start_stack))
}

/// Returns the end address of the frames of the stack that contains `sp`; the highest address if the end is not known. The
/// environment is above the frames of a main thread (`create_elf_tables`, fs/binfmt_elf.c). C libraries place the thread
/// control block of another thread above its frames; the thread pointer is the address of this block.
#[inline(always)]
pub fn stack_limit(sp: u64) -> u64 {
    let main = main_stack_start();
    let thread = kernel::read_word(kernel::current_task(), field!(vma.task_thread_pointer));
    let is_above = |limit: u64| limit.wrapping_sub(sp) < MAX_STACK;
    if is_above(main) {
        main
    } else if is_above(thread) {
        thread
    } else {
        u64::MAX
    }
}

/// Callback of `bpf_find_vma`, which holds the mmap lock.
extern "C" fn copy_vma(_task: *mut task_struct, vma: *mut c_void, argument: *mut c_void) -> i64 {
    // SAFETY: `unwind_find_vma` passes a pointer to a word.
    let slot = unsafe { *argument.cast::<u64>() } as u32;
    if let Some(scratch) = Scratch::get(slot) {
        let copy = &mut scratch.walk.vma;
        copy.is_read = read_vma(vma as u64, copy).is_some();
    }
    0
}

#[inline(always)]
fn read_vma(vma: u64, copy: &mut Vma) -> Option<()> {
    copy.executable = read::<u64>(vma, field!(vma.vm_flags))? & VM_EXEC != 0;
    copy.begin = read(vma, field!(vma.vm_start))?;
    copy.end = read(vma, field!(vma.vm_end))?;
    copy.offset = read::<u64>(vma, field!(vma.vm_pgoff))? << PAGE_SHIFT;
    let file = file_id::vma_file(vma)?;
    clear(&mut copy.object);
    if file == 0 {
        // The vDSO has no file. Its address is in the `mm_struct`.
        let mm = read(vma, field!(vma.vm_mm))?;
        copy.is_file = read::<u64>(mm, field!(vma.mm_vdso))? == copy.begin;
        copy.offset = 0;
        return Some(());
    }
    copy.is_file = true;
    file_id::read(file, &mut copy.object)
}

/// Clears an object key field by field. The compiler would otherwise call a function, and each call takes at least 32
/// bytes of stack (`check_max_stack_depth`, kernel/bpf/verifier.c). No stack is left at this depth.
#[inline(always)]
fn clear(object: &mut ObjectKey) {
    object.inode = 0;
    // SAFETY: the field is borrowed for writing.
    unsafe { write_volatile(&raw mut object.changed_s, 0) };
    object.changed_ns = 0;
    object.device = 0;
}

/// Requests the unwind table of a process's new executable. `bprm` is the address of the `struct linux_binprm` of the
/// exec.
#[inline(always)]
pub fn prefetch_executable(pid: u32, bprm: u64) {
    let mut object = ObjectKey { inode: 0, changed_s: 0, changed_ns: 0, device: 0 };
    if settings::max_depth() != 0
        && let Some(file) = read(bprm, field!(vma.bprm_file))
        && file_id::read(file, &mut object).is_some()
    {
        let _ = objects::table(pid, &object, 0, 0);
    }
}
