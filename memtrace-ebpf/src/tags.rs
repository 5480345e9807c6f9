//! Tags that target processes set: the current tag of each thread, and the ids of all tags.

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::{Array, HashMap};
use aya_ebpf::helpers::generated::bpf_probe_read_user_str;
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::{LossReason, TagAction};
use memtrace_common::wire::{
    MAX_TAG_LEVELS, MAX_TAGGED_PROCESSES, MAX_TAGS, OTHER_TAGS, TAG_NAME, TagCookie, TagEntry, TagKey, UNTAGGED,
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

/// Handles a call of a function that changes the tag. `value` is the value of the tag or the address of its name;
/// `stack_pointer` is the value at the entry of the function.
#[inline(always)]
pub fn change(context: &impl EbpfContext, thread: Thread, cookie: TagCookie, value: u64, stack_pointer: u64) {
    let action = cookie.action();
    let tag = match action {
        TagAction::Leave => UNTAGGED,
        _ if cookie.is_name() => number_of_name(context, value),
        _ => number(context, &TagKey { is_name: 0, value: cookie.cut(value) }, &NO_NAME),
    };
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
        // Only the outermost call is recorded, so a nested call does not replace its tag.
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
        // The page of the name may not be present yet. The address then stands for the name.
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

/// Gives a forked process and its first thread the tags of the parent, because the child continues inside the tags that
/// the parent has set or entered.
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
