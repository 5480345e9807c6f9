//! Tags that target processes set: the current tag of each thread, the ids of all tags, and the functions that set
//! them.

use core::ptr::read_volatile;

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::{Array, HashMap};
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::helpers::generated::bpf_probe_read_user_str;
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::{LossReason, TagAction};
use memtrace_common::wire::{
    MAX_TAG_FUNCTIONS, MAX_TAG_LEVELS, MAX_TAGGED_PROCESSES, MAX_TAGS, OTHER_TAGS, SEEN_VALUES, SeenValue, TAG_NAME,
    TagCookie, TagEntry, TagFunctionState, TagKey, UNTAGGED,
};

use crate::limits::{BPF_NOEXIST, PENDING_SLOTS};
use crate::thread::Thread;
use crate::{atomic, loss, pending, settings, verifier};

/// Tags of a thread. The size is 64 bytes, so that no two threads share a cache line.
#[repr(C, align(64))]
struct ThreadTags {
    /// Id of the current tag; [`UNTAGGED`] if there is none.
    current: u32,
    /// Number of tags that were entered and not left.
    level: u32,
    /// Id of the tag for the block of a single call; [`UNTAGGED`] if there is none.
    of_call: u32,
    reserved: u32,
    /// Stack pointer at the entry of the call that `of_call` belongs to.
    call: u64,
    /// Ids of the tags that were current before the entered tags, by level.
    outer: [u16; MAX_TAG_LEVELS],
}

/// Tags of the threads, by the index of the thread's slot of pending calls.
#[btf_map]
static THREAD_TAGS: Array<ThreadTags, PENDING_SLOTS> = Array::new();

/// Id of the tag of each process that has a tag, by process id.
#[btf_map]
static PROCESS_TAGS: HashMap<u32, u32, MAX_TAGGED_PROCESSES> = HashMap::new();

/// All tags that were set.
#[btf_map]
static TAGS: HashMap<TagKey, TagEntry, { MAX_TAGS as usize }> = HashMap::new();

/// The last id that was assigned to a tag.
#[btf_map]
static TAG_COUNT: Array<u64, 1> = Array::new();

/// Functions that change tags, by their index in the cookies.
#[btf_map]
static TAG_FUNCTIONS: Array<TagFunctionState, MAX_TAG_FUNCTIONS> = Array::new();

/// Empty name, for a tag that is a number.
const NO_NAME: [u64; TAG_NAME / 8] = [0; TAG_NAME / 8];

#[inline(always)]
fn of_thread(slot: u32) -> Option<&'static mut ThreadTags> {
    let tags = THREAD_TAGS.get_ptr_mut(slot)?;
    // SAFETY: the pointer refers to a map value. Only the thread that owns the slot uses it.
    Some(unsafe { &mut *tags })
}

/// Returns the id of the tag for the block of a call that was entered at `stack_pointer`: the tag of the call, else the
/// tag of the thread, else the tag of the process.
#[inline(always)]
pub fn of_allocation(thread: Thread, stack_pointer: u64) -> u32 {
    if let Some(tags) = pending::slot_of(thread.tid).and_then(of_thread) {
        if tags.of_call != UNTAGGED && tags.call == stack_pointer {
            let of_call = tags.of_call;
            tags.of_call = UNTAGGED;
            return of_call;
        }
        if tags.current != UNTAGGED {
            return tags.current;
        }
    }
    of_process(thread.pid).unwrap_or(UNTAGGED)
}

/// Returns the id of the thread's current tag; if the thread has no tag, the id of the process's tag.
#[inline(always)]
pub fn current(thread: Thread) -> u32 {
    match pending::slot_of(thread.tid).and_then(of_thread) {
        Some(tags) if tags.current != UNTAGGED => tags.current,
        _ => of_process(thread.pid).unwrap_or(UNTAGGED),
    }
}

#[inline(always)]
fn function(cookie: TagCookie) -> Option<&'static mut TagFunctionState> {
    let function = TAG_FUNCTIONS.get_ptr_mut(cookie.function()?)?;
    // SAFETY: the pointer refers to a map value. User space has written the field with the tag before it attached the
    // probe. The counts change by atomic instructions only.
    Some(unsafe { &mut *function })
}

/// Counts a call of a function. `tested`: the argument that its condition tests.
#[inline(always)]
pub fn count_call(cookie: TagCookie, tested: Option<u64>) {
    let Some(function) = function(cookie) else { return };
    // SAFETY: the word belongs to a map value, and is aligned.
    unsafe { atomic::add(&raw mut function.calls, 1) };
    if let Some(tested) = tested {
        count_value(function, tested as u32);
    }
}

/// Counts a call that has changed a tag.
#[inline(always)]
pub fn count_effect(cookie: TagCookie) {
    if let Some(function) = function(cookie) {
        // SAFETY: the word belongs to a map value, and is aligned.
        unsafe { atomic::add(&raw mut function.effective, 1) };
    }
}

/// Counts a call by the value of the tested argument. The first values have counts of their own.
#[inline(always)]
fn count_value(function: &mut TagFunctionState, value: u32) {
    let key = value as u64 + 1;
    // Not a loop: the compiler may compare the address of an entry with the end of the array, and the verifier does not
    // bound such a loop.
    macro_rules! count {
        ($($place:literal)*) => { $(if count_in(&mut function.values[$place], key) { return; })* };
    }
    const { assert!(SEEN_VALUES == 8) };
    count!(0 1 2 3 4 5 6 7);
    // SAFETY: the word belongs to a map value, and is aligned.
    unsafe { atomic::add(&raw mut function.others, 1) };
}

/// Counts a call in `seen`. Returns false if `seen` belongs to another value.
#[inline(always)]
fn count_in(seen: &mut SeenValue, key: u64) -> bool {
    // SAFETY: a word of a map value.
    let mut found = unsafe { read_volatile(&raw const seen.key) };
    if found == 0 {
        // SAFETY: the word belongs to a map value, and is aligned.
        let _ = unsafe { atomic::lock(&raw mut seen.key, key) };
        // Another thread may have stored its value first.
        // SAFETY: as above.
        found = unsafe { read_volatile(&raw const seen.key) };
    }
    if found != key {
        return false;
    }
    // SAFETY: as above.
    unsafe { atomic::add(&raw mut seen.calls, 1) };
    true
}

/// Returns the id of the tag to which `value`, an argument or the result of the function, leads; [`UNTAGGED`] if a
/// pointer to it is null or cannot be read.
#[inline(always)]
pub fn id(context: &impl EbpfContext, cookie: TagCookie, value: u64) -> u32 {
    let value = match function(cookie) {
        Some(function) => field(context, function, cookie.is_half(), value),
        None => Some(value),
    };
    match value {
        Some(address) if cookie.is_name() => number_of_name(context, address),
        Some(value) => number(context, &TagKey { is_name: 0, value: cookie.cut(value) }, &NO_NAME),
        None => UNTAGGED,
    }
}

/// Returns the value of the field to which `argument` leads; `None` if a pointer to it is null or cannot be read.
/// `is_half`: true if the field has 32 bits.
#[inline(always)]
fn field(context: &impl EbpfContext, function: &TagFunctionState, is_half: bool, argument: u64) -> Option<u64> {
    let [first, second, third] = function.offsets;
    match function.steps {
        0 => Some(add(argument, first)),
        1 => Some(add(read(context, add(argument, first), is_half)?, second)),
        _ => {
            let pointer = read(context, add(argument, first), false)?;
            Some(add(read(context, add(pointer, second), is_half)?, third))
        }
    }
}

/// Adds an offset to an address. A null pointer remains one.
#[inline(always)]
fn add(address: u64, offset: i32) -> u64 {
    if address == 0 { 0 } else { address.wrapping_add(offset as i64 as u64) }
}

/// Reads a field of the process; `None` if the address is null, or cannot be read.
#[inline(always)]
fn read(context: &impl EbpfContext, address: u64, is_half: bool) -> Option<u64> {
    if address == 0 {
        return None;
    }
    let value = if is_half {
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_user(address as *const u32) }.map(u64::from)
    } else {
        // SAFETY: as above.
        unsafe { bpf_probe_read_user(address as *const u64) }
    };
    if value.is_err() {
        loss::count(context, LossReason::TagFieldUnreadable, 1);
    }
    value.ok()
}

/// Handles a call of a function that changes the tag of a thread, a process or a call. `tag` is the id of the new tag;
/// `stack_pointer` is the value at the entry of the function.
#[inline(always)]
pub fn change(context: &impl EbpfContext, thread: Thread, action: TagAction, tag: u32, stack_pointer: u64) {
    if action == TagAction::SetProcess {
        if PROCESS_TAGS.insert(&thread.pid, &tag, 0).is_err() {
            loss::count(context, LossReason::TagsFull, 1);
        }
        return;
    }
    let Some(tags) = pending::claim_slot(thread.tid).and_then(of_thread) else {
        loss::count(context, LossReason::PendingFull, 1);
        return;
    };
    match action {
        TagAction::Enter => enter(context, tags, tag),
        TagAction::Leave => leave(tags),
        // Only the outermost call is recorded, so a nested call does not replace the tag of the outermost call.
        TagAction::SetCall if tags.call > stack_pointer && pending::is_pending(thread.tid, tags.call) => {}
        TagAction::SetCall => {
            tags.of_call = tag;
            tags.call = stack_pointer;
        }
        _ => tags.current = tag,
    }
}

#[inline(always)]
fn enter(context: &impl EbpfContext, tags: &mut ThreadTags, tag: u32) {
    match tags.outer.get_mut(tags.level as usize) {
        Some(outer) => {
            *outer = tags.current as u16;
            tags.current = tag;
        }
        None => loss::count(context, LossReason::TagTooDeep, 1),
    }
    tags.level += 1;
}

#[inline(always)]
fn leave(tags: &mut ThreadTags) {
    if tags.level == 0 {
        // The tag was entered before the probes were attached.
        tags.current = UNTAGGED;
        return;
    }
    tags.level -= 1;
    if let Some(outer) = tags.outer.get(verifier::clamp::<{ MAX_TAG_LEVELS as u64 }>(tags.level as u64) as usize) {
        tags.current = *outer as u32;
    }
}

/// Returns the id of the tag with the C string at `address` as its name; [`UNTAGGED`] for a null pointer.
#[inline(always)]
fn number_of_name(context: &impl EbpfContext, address: u64) -> u32 {
    if address == 0 {
        return UNTAGGED;
    }
    let mut words = [0_u64; TAG_NAME / 8];
    // SAFETY: the helper checks the address, and writes at most the size of `words`.
    let length = unsafe { bpf_probe_read_user_str(words.as_mut_ptr().cast(), TAG_NAME as u32, address as *const _) };
    if length < 0 {
        // The page with the name may not be present yet. In this case, the address of the name identifies the tag.
        loss::count(context, LossReason::TagUnreadable, 1);
        return number(context, &TagKey { is_name: 0, value: address }, &NO_NAME);
    }
    // The bytes after the end of the string are zero. The hash is FNV-1a by words (Fowler, Noll, Vo) with an
    // additional shift: the probability of a collision among 4,096 names is below 10^-12.
    let mut value = 0xcbf2_9ce4_8422_2325_u64;
    for word in words {
        value = (value ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        value ^= value >> 32;
    }
    number(context, &TagKey { is_name: 1, value }, &words)
}

#[inline(always)]
fn of_process(pid: u32) -> Option<u32> {
    // SAFETY: the value is one word, which only the process itself changes.
    unsafe { PROCESS_TAGS.get(&pid) }.copied()
}

#[inline(always)]
fn known_number(key: &TagKey) -> Option<u32> {
    // SAFETY: entries never change, and are never removed.
    unsafe { TAGS.get(key) }.map(|entry| entry.number)
}

/// Returns the id of a tag; assigns an id if the tag is new. Returns [`OTHER_TAGS`] if there are too many tags.
#[inline(always)]
fn number(context: &impl EbpfContext, key: &TagKey, name: &[u64; TAG_NAME / 8]) -> u32 {
    if let Some(number) = known_number(key) {
        return number;
    }
    let Some(count) = TAG_COUNT.get_ptr_mut(0) else { return UNTAGGED };
    // SAFETY: the pointer refers to a map value of 8 bytes, which is aligned.
    let number = unsafe { atomic::fetch_add(count, 1) } + 1;
    if number <= MAX_TAGS as u64 {
        // SAFETY: both are plain bytes of the same length.
        let name = unsafe { core::mem::transmute::<[u64; TAG_NAME / 8], [u8; TAG_NAME]>(*name) };
        if TAGS.insert(key, &TagEntry { number: number as u32, reserved: 0, name }, BPF_NOEXIST).is_ok() {
            return number as u32;
        }
        // Another thread has inserted the tag first, or the map is full.
        if let Some(number) = known_number(key) {
            return number;
        }
    }
    loss::count(context, LossReason::TagsFull, 1);
    OTHER_TAGS
}

/// Gives a forked process and its first thread the tags of the parent, because the child continues where the parent has
/// set or entered these tags.
#[inline(always)]
pub fn copy(parent: Thread, child: u32) {
    if !settings::records_tags() {
        return;
    }
    if let Some(tag) = of_process(parent.pid) {
        let _ = PROCESS_TAGS.insert(&child, &tag, 0);
    }
    let Some(from) = pending::slot_of(parent.tid).and_then(of_thread) else { return };
    if (from.current != UNTAGGED || from.level != 0)
        && let Some(into) = pending::claim_slot(child).and_then(of_thread)
    {
        into.current = from.current;
        into.level = from.level;
        into.of_call = UNTAGGED;
        into.outer = from.outer;
    }
}

/// Forgets the tags of a thread that exits or has called exec. The thread must still own its slot of pending calls.
#[inline(always)]
pub fn forget(tid: u32) {
    if settings::records_tags()
        && let Some(tags) = pending::slot_of(tid).and_then(of_thread)
    {
        tags.current = UNTAGGED;
        tags.level = 0;
        tags.of_call = UNTAGGED;
    }
}

/// Forgets the tag of a process that exits or has called exec.
#[inline(always)]
pub fn forget_process(pid: u32) {
    if settings::records_tags() {
        let _ = PROCESS_TAGS.remove(&pid);
    }
}
