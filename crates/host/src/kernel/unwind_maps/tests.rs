use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memtrace_common::unwind::{MAX_BLOBS, MAX_PAGES, cfa, fp, mapping, page, row};
use memtrace_common::wire::FRAME_BY_FP;
use memtrace_model::{AbsAddr, AllocatorId, Bytes, EventKind, FileOffset, Signature, Stack, StackEnd, StackId};

use super::super::{Kernel, MapSizes, Options, Probe, Probes, RingReader, Scope};
use super::*;
use chain::{Function, address, here};

mod chain;
mod copies;

/// First address in the chain that a rule applies to, and the rule.
type Row = (u64, Rule);

fn by_sp(offset: i32) -> Rule {
    Rule { cfa_kind: cfa::SP, cfa_offset: offset, ..Rule::default() }
}

fn outermost() -> Rule {
    Rule { cfa_kind: cfa::END, ..Rule::default() }
}

/// Returns the rows of the correct unwind table of the chain.
fn chain_rows() -> Vec<Row> {
    let by_fp = Rule { cfa_kind: cfa::FP, cfa_offset: 16, fp_kind: fp::AT_CFA, fp_offset: -16, ..Rule::default() };
    let realigned = Rule { cfa_kind: cfa::DEREF_FP, cfa_offset: -8, fp_kind: fp::AT_FP, ..Rule::default() };
    let signal = Rule { cfa_kind: cfa::SIGNAL, ..Rule::default() };
    vec![
        (here!(chain_outermost), outermost()),
        (here!(chain_first), by_sp(48)),
        (here!(chain_second), by_fp),
        (here!(chain_third), realigned),
        (here!(chain_deep), by_sp(32)),
        (here!(chain_interrupted), by_sp(32)),
        (here!(chain_handler), by_sp(16)),
        (here!(chain_restorer) - 1, signal),
        (here!(chain_alloc), Rule::default()),
    ]
}

/// Returns the stack of the chain in the third function, innermost frame first.
fn in_third() -> Vec<u64> {
    vec![
        here!(chain_third_return),
        here!(chain_second_return),
        here!(chain_first_return),
        here!(chain_outermost_return),
    ]
}

/// Returns the mapping of the chain with its table.
fn chain_mapping() -> Mapping {
    let begin = here!(chain_begin);
    Mapping { begin, end: here!(chain_end), bias: begin, page_base: 0, pages_and_kind: 1 }
}

fn pid() -> Pid {
    Pid(std::process::id())
}

/// Lock that serializes the tests: the probes of one test record the calls of all threads.
fn lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Loaded BPF programs with a probe on a function of the chain.
struct Trace {
    kernel: Kernel,
    readers: Vec<RingReader>,
    probes: Probes,
}

impl Trace {
    fn load(max_depth: u32) -> Self {
        let options = Options { map_sizes: MapSizes::FULL, max_depth, ..Options::default() };
        let (kernel, readers) = Kernel::load(&options).unwrap();
        Self { kernel, readers, probes: Probes::default() }
    }

    fn probe(mut self, function: u64) -> Self {
        let probe = Probe {
            signature: Signature::Alloc { size: 0 },
            offset: FileOffset(chain::offset_in_file(function)),
            return_sites: Vec::new(),
            function: None,
            allocator: AllocatorId::UNKNOWN,
            has_sizes: false,
            is_leaf: false,
            loaded_word: None,
            results: None,
        };
        self.kernel.attach(&mut self.probes, Scope::Process(pid()), Path::new("/proc/self/exe"), &[probe]).unwrap();
        self.kernel.open().unwrap();
        self
    }

    fn of_chain(max_depth: u32) -> Self {
        Self::load(max_depth).probe(here!(chain_alloc))
    }

    /// Publishes the rows as the table of this executable.
    fn set(&mut self, rows: &[Row]) {
        self.write_table(rows);
        self.kernel.unwind_maps().set_object(own_object(), chain_table()).unwrap();
    }

    /// Writes the rows to the first page. Rules are numbered from 1.
    fn write_table(&mut self, rows: &[Row]) {
        let rules: Vec<Rule> = rows.iter().map(|&(_, rule)| rule).collect();
        let mut packed = vec![0];
        packed.extend((1..).zip(rows).map(|(number, &(from, _))| row(from - here!(chain_begin), number)));
        let tables = self.kernel.unwind_maps();
        tables.write_rules(1, &rules).unwrap();
        tables.write_rows(0, 0, &packed).unwrap();
        tables.write_pages(0, &[page(1, rows.len() as u32)]).unwrap();
    }

    /// Runs the function and returns the stack of its allocation.
    fn stack_of(&mut self, function: Function, argument: u64) -> (Vec<u64>, StackEnd) {
        let (id, mut stacks) = self.run(function, argument);
        // If the stack was copied, the frames of the cut walk have another id.
        let frames = stacks.remove(&id).or_else(|| stacks.pop_first().map(|(_, cut)| cut));
        let stack = frames.expect("the frames of a new stack");
        (stack.frames.iter().map(|frame| frame.0).collect(), stack.end)
    }

    /// Runs the function. Returns the stack id of its allocation, and the stacks in the ring.
    fn run(&mut self, function: Function, argument: u64) -> (StackId, BTreeMap<StackId, Stack>) {
        chain::run(function, argument);
        let mut allocated = None;
        let mut stacks = BTreeMap::new();
        self.readers[0].drain(u64::MAX, |event| match event.kind {
            EventKind::Alloc { size, stack, .. } => {
                assert_eq!(size, Bytes(chain::SIZE));
                assert!(allocated.replace(stack).is_none(), "one allocation per run");
            }
            EventKind::Stack { id, stack } => {
                stacks.insert(id, *stack);
            }
            other => panic!("{other:?}"),
        });
        (allocated.expect("an allocation"), stacks)
    }
}

#[test]
fn privileged_stacks_are_walked_by_tables() {
    let _lock = lock();
    let mut trace = Trace::of_chain(128);
    trace.set(&chain_rows());
    assert_eq!(trace.stack_of(chain::first, 0), (in_third(), StackEnd::Complete));
}

/// Returns the file id of this executable.
fn own_object() -> ObjectKey {
    let file = std::fs::metadata("/proc/self/exe").unwrap();
    ObjectKey {
        inode: file.ino(),
        changed_s: file.ctime(),
        changed_ns: u32::try_from(file.ctime_nsec()).unwrap(),
        device: libc::major(file.dev()) << 20 | libc::minor(file.dev()),
    }
}

/// Returns a table of this executable that covers the chain.
fn chain_table() -> ObjectTable {
    let offset = chain::offset_in_file(here!(chain_begin));
    let mut table = ObjectTable { pages_and_kind: 1, ..ObjectTable::default() };
    // Addresses of the table are relative to the chain.
    table.segments[0] =
        Segment { offset, end: offset + here!(chain_end) - here!(chain_begin), shift: offset.wrapping_neg() };
    table
}

/// Returns the entry for an object without a table.
fn unusable() -> ObjectTable {
    ObjectTable { pages_and_kind: u32::from(mapping::UNUSABLE) << 24, ..chain_table() }
}

/// Asserts that all frames after the leaf were found by frame pointers, as in an object without a table.
#[track_caller]
fn assert_crossed_by_frame_pointers((frames, end): &(Vec<u64>, StackEnd), leaf: u64) {
    let (first, callers) = frames.split_first().unwrap();
    assert_eq!(*first, leaf);
    assert!(callers.iter().all(|frame| frame & FRAME_BY_FP != 0), "{frames:x?}");
    assert!(!callers.is_empty() || *end == StackEnd::NoTable, "{end:?}");
}

#[test]
fn privileged_tables_of_objects_are_requested_once() {
    let _lock = lock();
    let mut trace = Trace::of_chain(128);
    let leaf = here!(chain_third_return);
    let mut reader = trace.kernel.take_table_requests().unwrap();
    let mut requests = || {
        let mut requests = Vec::new();
        reader.drain(|request| requests.push(request));
        requests
    };
    assert_eq!(trace.stack_of(chain::first, 0), (vec![leaf], StackEnd::TablePending));
    chain::run(chain::first, 0);
    trace.readers[0].drain(u64::MAX, |_| ());
    let received = requests();
    let [TableRequest { object, pid: process, range: Some((start, end)) }] = received[..] else {
        panic!("one request: {received:?}")
    };
    assert_eq!((object, process), (own_object(), pid()));
    assert!(start.0 <= here!(chain_begin) && here!(chain_end) <= end.0);
    let tables = trace.kernel.unwind_maps();
    tables.set_object(object, unusable()).unwrap();
    assert_crossed_by_frame_pointers(&trace.stack_of(chain::first, 0), leaf);
    trace.write_table(&chain_rows());
    trace.kernel.unwind_maps().set_object(object, chain_table()).unwrap();
    assert_eq!(trace.stack_of(chain::first, 0), (in_third(), StackEnd::Complete));
    trace.kernel.unwind_maps().forget_object(object);
    // The stack can continue in objects that are not known.
    let again = requests().into_iter().find(|request| request.object == object);
    assert_eq!(again, None, "known objects are not requested");
}

#[test]
fn privileged_deep_stacks_are_walked_to_the_maximum_depth() {
    let _lock = lock();
    let deep = |calls: usize| {
        let mut frames = vec![here!(chain_deep_return); calls - 1];
        frames.insert(0, here!(chain_deepest_return));
        frames.push(here!(chain_outermost_return));
        frames
    };
    for (max_depth, calls) in [(256, 255), (256, 256), (256, 1000), (128, 1000), (128, 127), (20, 20), (1, 5)] {
        let mut trace = Trace::of_chain(max_depth);
        trace.set(&chain_rows());
        let mut expected = (deep(calls), StackEnd::Complete);
        if calls >= max_depth as usize {
            expected.0.truncate(max_depth as usize);
            expected.1 = StackEnd::Truncated;
        }
        assert_eq!(trace.stack_of(chain::deep, calls as u64), expected, "{calls} calls, maximum depth {max_depth}");
    }
}

#[test]
fn privileged_stacks_are_walked_across_signal_frames() {
    let _lock = lock();
    let mut trace = Trace::of_chain(128);
    trace.set(&chain_rows());
    let expected = vec![
        here!(chain_handler_return),
        here!(chain_restorer) + 1,
        here!(chain_interrupted_at) + 1,
        here!(chain_outermost_return),
    ];
    let ids = chain::handle_signals();
    assert_eq!(trace.stack_of(chain::interrupted, &raw const ids as u64), (expected, StackEnd::Complete));
}

#[test]
fn privileged_return_addresses_of_other_uretprobes_are_found() {
    let _lock = lock();
    let _others = [Trace::load(0).probe(here!(chain_first)), Trace::load(0).probe(here!(chain_second))];
    let mut trace = Trace::of_chain(128);
    trace.set(&chain_rows());
    assert_eq!(trace.stack_of(chain::first, 0), (in_third(), StackEnd::Complete));
    let _more = [Trace::load(0).probe(here!(chain_deep)), Trace::load(0).probe(here!(chain_deep))];
    let mut expected = vec![here!(chain_deep_return); 29];
    expected.insert(0, here!(chain_deepest_return));
    expected.push(here!(chain_outermost_return));
    assert_eq!(trace.stack_of(chain::deep, 30), (expected, StackEnd::Complete));
}

#[test]
fn privileged_new_tables_take_effect_at_once() {
    let _lock = lock();
    let mut trace = Trace::of_chain(128);
    let cut_in = |rows: &mut Vec<Row>, function: u64| {
        rows.iter_mut().find(|(from, _)| *from == function).unwrap().1 = outermost();
    };
    for ends_in in 1..4 {
        let mut rows = chain_rows();
        cut_in(&mut rows, [here!(chain_third), here!(chain_second), here!(chain_first)][ends_in - 1]);
        trace.set(&rows);
        trace.kernel.unwind_maps().forget_process(pid());
        assert_eq!(trace.stack_of(chain::first, 0), (in_third()[..ends_in].to_vec(), StackEnd::Complete));
    }
    trace.kernel.unwind_maps().set_object(own_object(), unusable()).unwrap();
    trace.kernel.unwind_maps().forget_process(pid());
    assert_crossed_by_frame_pointers(&trace.stack_of(chain::first, 0), in_third()[0]);
}

/// A record of an allocation takes 48 bytes of the ring. The ring size of 64 KiB is not a multiple of 48, so records wrap.
#[test]
fn privileged_records_that_wrap_around_a_ring_are_whole() {
    let _lock = lock();
    let mut trace = Trace::load(0).probe(here!(chain_alloc));
    for _ in 0..5000 {
        let (_, stacks) = trace.run(chain::first, 0);
        assert!(stacks.is_empty(), "{stacks:?}");
    }
}

#[test]
fn privileged_writes_beyond_the_maps_are_refused() {
    let _lock = lock();
    let mut trace = Trace::load(1);
    let tables = trace.kernel.unwind_maps();
    let refused = |result: Result<(), KernelError>| assert!(matches!(result, Err(KernelError::Failed { .. })));
    refused(tables.write_rules(MAX_RULES as u32, &[Rule::default()]));
    refused(tables.write_rules(u32::MAX, &[Rule::default()]));
    refused(tables.write_pages(MAX_PAGES as u32 - 1, &[1, 2]));
    refused(tables.write_rows(0, BLOB_ROWS as u32, &[1]));
    refused(tables.write_rows(MAX_BLOBS as u32, 0, &[1]));
    tables.write_rules(MAX_RULES as u32 - 1, &[Rule::default()]).unwrap();
    tables.write_pages(MAX_PAGES as u32 - 1, &[1]).unwrap();
    tables.write_rows(MAX_BLOBS as u32 - 1, BLOB_ROWS as u32 - 1, &[1]).unwrap();
}
