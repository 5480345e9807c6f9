//! Memory of the stacks of a process that has reached the limit of stacks.

#[path = "../src/test_code.rs"]
mod test_code;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use harness::heap::{self, CountingAllocator};
use memtrace_history::ledger::{Ledger, Settings};
use memtrace_history::pipeline::EndedParts;
use memtrace_history::{CompletedImage, EndedProcesses, EndedSettings};
use memtrace_model::{
    AbsAddr, AllocatorId, Bytes, EndedImage, Event, EventKind, FileOffset, Mapping, Object, Pid, ProcessImage, Stack,
    StackEnd, StackId, TagId, Tick, Tid,
};
use test_code::TestCode;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const SHARDS: usize = 2;

/// Maximum number of stacks in a shard.
const STACKS: u32 = 5_000;

/// Maximum bytes of a stack in a running process.
const RUNNING: u64 = 512;

/// Maximum bytes of a stack for a moment, while stacks are merged or tables grow.
const PEAK: u64 = 640;

/// Maximum bytes of a stack for a moment, while the process is added to the ended ones. Its call paths are not limited
/// yet.
const PEAK_AT_END: u64 = 1152;

const PID: Pid = Pid(7);
const CODE: AbsAddr = AbsAddr(0x5500_0000_0000);

fn event(kind: EventKind) -> Event {
    Event { pid: PID, tid: Tid(7), tick: Tick(1), kind }
}

/// Returns the frames of the nth stack. Ten of its twenty frames occur in no other stack, as in an average stack of
/// a compiler.
fn stack(nth: u64) -> Stack {
    let own = (0..10).map(|depth| 1000 + nth * 10 + depth);
    let frames = own.chain(0..10).map(|call| AbsAddr(CODE.0 + 1 + call * 4)).collect();
    Stack { frames, end: StackEnd::Complete, taken: Duration::ZERO }
}

/// Allocates a block with the nth stack, in the shard of its address, and frees it. The frames of half of the stacks
/// arrive in another shard.
fn allocate(shards: &mut [Ledger], nth: u64) {
    let id = StackId(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(nth + 1) | 2);
    let address = AbsAddr(0x7000_0000_0000 + nth * 16);
    let alloc = EventKind::Alloc {
        address,
        size: Bytes(16 + nth % 512),
        stack: id,
        allocator: AllocatorId::UNKNOWN,
        tag: TagId::UNTAGGED,
    };
    let shard = nth as usize % SHARDS;
    shards[(nth / 2) as usize % SHARDS].apply(&event(EventKind::Stack { id, stack: Box::new(stack(nth)) }));
    shards[shard].apply(&event(alloc));
    shards[shard].apply(&event(EventKind::Free { address, is_last: true }));
}

fn image() -> ProcessImage {
    let object = Object { path: PathBuf::from("/usr/bin/rustfmt"), handle: None, build_id: None, root: None };
    let end = AbsAddr(CODE.0 + (1 << 40));
    let mapping = Mapping { start: CODE, end, offset: FileOffset(0), object: Some(Arc::new(object)) };
    ProcessImage { mappings: vec![mapping], ..ProcessImage::default() }
}

/// Returns the bytes for each stack of the limit.
fn per_stack(bytes: usize) -> u64 {
    bytes as u64 / u64::from(STACKS) / SHARDS as u64
}

#[test]
fn memory_of_a_process_with_all_stacks_of_the_limit() {
    let settings = Settings { stacks: STACKS, ..Settings::UNLIMITED };
    let mut ended = EndedProcesses::new(EndedSettings {
        keep: 1000,
        max_stack_entries: STACKS as usize,
        max_call_paths: STACKS as usize * 10,
        max_name_bytes: 1 << 20,
        start: Tick(0),
    });
    let mut shards = [Ledger::new(settings), Ledger::new(settings)];
    let before = heap::allocated();
    for nth in 0..10 * SHARDS as u64 * u64::from(STACKS) {
        allocate(&mut shards, nth);
    }
    let (running, peak) = (per_stack(heap::allocated() - before), per_stack(heap::peak() - before));
    println!("{running} bytes for each stack, {peak} at the peak");
    assert!(running <= RUNNING && peak <= PEAK, "{running} bytes for each stack, {peak} at the peak");

    heap::begin_peak();
    let mut parts = EndedParts::new(SHARDS);
    for shard in &mut shards {
        shard.apply(&event(EventKind::Exit));
        parts.add(shard.take_ended());
    }
    let image = image();
    for EndedImage { id, end, at, usage, stacks, .. } in parts.take_complete(|_| true) {
        assert!(stacks.with_frames() > STACKS as usize, "the limit is used: {}", stacks.with_frames());
        let completed = CompletedImage { id, end, at, image: image.clone(), usage, stacks };
        ended.add(completed, &mut TestCode::new());
    }
    let (after, peak) = (per_stack(heap::allocated() - before), per_stack(heap::peak() - before));
    println!("{after} bytes after the end, {peak} at the peak");
    assert!(after < running && peak <= PEAK_AT_END, "{after} bytes after the end, {peak} at the peak");
}
