//! Memory use of ended processes: it depends on the amount of distinct code, not on the number of processes.

#[path = "../src/test_code.rs"]
mod test_code;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::heap::{self, CountingAllocator};
use memtrace_history::{CompletedImage, EndedProcesses, EndedSettings};
use memtrace_model::{
    AbsAddr, Amount, BuildId, Bytes, Cgroup, EventClass, FileOffset, ImageEnd, ImageId, ImageStart, ImageUsage,
    Mapping, Object, Pid, ProcessImage, Quantities, Quantity, Stack, StackEnd, StackId, Stacks, Tick, User,
};
use test_code::TestCode;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Default settings of a system-wide trace.
const SETTINGS: EndedSettings = EndedSettings {
    keep: 1000,
    max_stack_entries: 1 << 20,
    max_call_paths: 1 << 22,
    max_name_bytes: 1 << 20,
    start: Tick(0),
};

const DEPTH: u64 = 20;

/// Returns an ended process that ran /usr/bin/gcc at a load address of its own. Each of its stacks has another leaf
/// function, and many have common callers.
fn process(number: u32, stacks: u64) -> CompletedImage {
    let base = 0x5500_0000_0000 + u64::from(number) * 0x10_0000;
    let (mut usage, mut frames) = (ImageUsage::default(), Stacks::default());
    for nth in 0..stacks {
        let id = StackId(2 + u64::from(number) * stacks + nth);
        let leaf = AbsAddr(base + 0x1000 + nth * 16);
        let callers = (0..DEPTH).map(|depth| AbsAddr(base + 1 + depth * 16 + if depth < 4 { nth / 4 % 16 } else { 0 }));
        let addresses = std::iter::once(leaf).chain(callers).collect();
        frames.insert(id, &Stack { frames: addresses, end: StackEnd::Complete, taken: Duration::ZERO });
        let count = 1 + (u64::from(number) + nth) % 300;
        let alloc = Amount { bytes: Bytes(count * 64), count };
        let of_stack = Quantities::ZERO.with_amount(Quantity::AllocBytes, alloc).with_free(alloc);
        usage.total += of_stack;
        usage.by_stack.insert(id.into(), of_stack);
    }
    usage.ended = Some(ImageEnd::Exit);
    let object = Object {
        path: PathBuf::from("/usr/bin/gcc"),
        handle: Some(PathBuf::from("/proc/1/fd/20")),
        build_id: Some(BuildId([7; 20].into())),
        root: Some(PathBuf::from("/proc/1/fd/21").into()),
    };
    let mapping = Mapping {
        start: AbsAddr(base),
        end: AbsAddr(base + 0x10_0000),
        offset: FileOffset(0x1000),
        object: Some(Arc::new(object)),
    };
    let (start, at) = (Tick(number), Tick(number + 10));
    let image = ProcessImage {
        comm: "gcc".into(),
        exe: Some(PathBuf::from("/usr/bin/gcc")),
        mappings: vec![mapping],
        user: Some(User { uid: 1000, name: Some(String::from("builder")) }),
        cgroup: Some(Arc::new(Cgroup { path: String::from("/user.slice/build.scope"), ..Cgroup::default() })),
        start: ImageStart::Exec(start),
        ended: Some((ImageEnd::Exit, at)),
        ..ProcessImage::default()
    };
    let id = ImageId { pid: Pid(2 + number), ordinal: 1 };
    CompletedImage { id, end: ImageEnd::Exit, at, image, usage: vec![(EventClass::Heap, usage)], stacks: frames }
}

fn add(ended: &mut EndedProcesses, completed: CompletedImage) {
    let mut code = TestCode::new();
    ended.add(completed, &mut code);
}

/// Returns the memory in use after `processes` processes with 20 stacks each, and the collection.
fn memory_of(processes: u32) -> (usize, EndedProcesses) {
    let before = heap::allocated();
    let mut ended = EndedProcesses::new(SETTINGS);
    for number in 0..processes {
        add(&mut ended, process(number, 20));
    }
    (heap::allocated() - before, ended)
}

/// There is only one test, since the counters of the allocator are global.
#[test]
fn memory_depends_on_distinct_code() {
    let (of_100, few) = memory_of(100);
    let (of_10_000, many) = memory_of(10_000);
    println!("100 processes: {of_100} bytes; 10,000 processes: {of_10_000} bytes");
    assert!(of_10_000 <= of_100 * 12 / 10 + 64 * 10_000, "{of_10_000} bytes, and {of_100} for 100 processes");
    drop((few, many));

    // Processes with as many stacks as a compiler.
    let stacks = 60_000;
    let compilers: Vec<_> = (0..3).map(|number| process(number, stacks)).collect();
    let before = heap::allocated();
    let mut ended = EndedProcesses::new(EndedSettings { keep: 0, ..SETTINGS });
    for compiler in compilers {
        let (of_compiler, added) = (heap::allocated(), Instant::now());
        add(&mut ended, compiler);
        println!("{} ns per stack", added.elapsed().as_nanos() / u128::from(stacks));
        assert!(heap::allocated() < of_compiler);
    }
    drop(ended);
    assert!(heap::allocated() < before);
}
