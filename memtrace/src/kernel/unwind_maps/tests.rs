use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memtrace_common::unwind::{cfa, fp, mapping, page, row};

use super::super::{Kernel, Options, Probe, Probes, ProcessFilter, RingReader, Scope};
use super::*;
use crate::model::{AllocatorId, Bytes, EventKind, FileOffset, Signature, StackEnd};
use chain::{Function, address, here};

mod chain;

/// A rule, and from which of the chain's addresses on it holds.
type Row = (u64, Rule);

fn by_sp(offset: i32) -> Rule {
    Rule { cfa_kind: cfa::SP, cfa_offset: offset, ..Rule::default() }
}

fn outermost() -> Rule {
    Rule { cfa_kind: cfa::END, ..Rule::default() }
}

/// What an assembler would say about the chain, had it been asked.
fn truth() -> Vec<Row> {
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

/// The chain's stack in the third function, leaf first.
fn in_third() -> Vec<u64> {
    vec![
        here!(chain_third_return),
        here!(chain_second_return),
        here!(chain_first_return),
        here!(chain_outermost_return),
    ]
}

fn range(addresses: Range<u64>, kind: u8) -> Mapping {
    let bias = here!(chain_begin);
    Mapping {
        begin: addresses.start,
        end: addresses.end,
        bias,
        page_base: 0,
        pages_and_kind: 1 | u32::from(kind) << 24,
    }
}

fn whole(kind: u8) -> Mapping {
    range(here!(chain_begin)..here!(chain_end), kind)
}

fn pid() -> Pid {
    Pid(std::process::id())
}

/// The probes of one test see the calls of every thread, and so of all tests: they take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// memtrace with a probe on the chain's allocator.
struct Trace {
    kernel: Kernel,
    readers: Vec<RingReader>,
    probes: Probes,
}

impl Trace {
    fn begin(max_depth: u32) -> Self {
        let options = Options {
            rings: 1,
            ring_size: Bytes(1 << 16),
            max_depth,
            min_size: Bytes(0),
            max_size: Bytes(u64::MAX),
            start_ns: 0,
            filter: ProcessFilter::Probed,
            records_allocators: false,
            page_sample: None,
            reclaim: false,
            records_mappings: false,
        };
        let (kernel, readers) = Kernel::load(&options).unwrap();
        Self { kernel, readers, probes: Probes::default() }
    }

    fn probe(mut self, function: u64) -> Self {
        let probe = Probe {
            signature: Signature::Alloc { size: 0 },
            offset: FileOffset(chain::offset_in_file(function)),
            return_sites: Vec::new(),
            allocator: AllocatorId::UNKNOWN,
        };
        self.kernel.place(&mut self.probes, Scope::Process(pid()), Path::new("/proc/self/exe"), &[probe]).unwrap();
        self.kernel.open().unwrap();
        self
    }

    fn of_the_chain(max_depth: u32) -> Self {
        Self::begin(max_depth).probe(here!(chain_alloc))
    }

    fn tell(&mut self, rows: &[Row], mappings: &[Mapping]) {
        self.write_table(rows);
        self.kernel.tables().set_process(pid(), mappings).unwrap();
    }

    /// Writes the rows into the first page; the rules are numbered from 1 on.
    fn write_table(&mut self, rows: &[Row]) {
        let rules: Vec<Rule> = rows.iter().map(|&(_, rule)| rule).collect();
        let mut packed = vec![0];
        packed.extend((1..).zip(rows).map(|(number, &(from, _))| row(from - here!(chain_begin), number)));
        let tables = self.kernel.tables();
        tables.write_rules(1, &rules).unwrap();
        tables.write_rows(0, 0, &packed).unwrap();
        tables.write_pages(0, &[page(1, rows.len() as u32)]).unwrap();
    }

    /// Runs it and returns the stack at which it allocated.
    fn stack_of(&mut self, function: Function, argument: u64) -> (Vec<u64>, StackEnd) {
        chain::run(function, argument);
        let mut allocated = None;
        let mut stacks = BTreeMap::new();
        self.readers[0].drain(u64::MAX, |event| match event.kind {
            EventKind::Alloc { size, stack, .. } => {
                assert_eq!(size, Bytes(chain::SIZE));
                assert!(allocated.replace(stack).is_none(), "one allocation a run");
            }
            EventKind::Stack { id, stack } => {
                stacks.insert(id, *stack);
            }
            other => panic!("{other:?}"),
        });
        let stack = stacks.remove(&allocated.expect("an allocation")).expect("a stack that was not seen before");
        (stack.frames.iter().map(|frame| frame.0).collect(), stack.end)
    }
}

#[test]
fn privileged_a_stack_is_walked_by_its_table_frame_for_frame() {
    let _turn = turn();
    let mut trace = Trace::of_the_chain(128);
    trace.tell(&truth(), &[whole(mapping::TABLE)]);
    assert_eq!(trace.stack_of(chain::first, 0), (in_third(), StackEnd::Complete));
}

/// This program, as the kernel knows it.
fn own_object() -> ObjectKey {
    let file = std::fs::metadata("/proc/self/exe").unwrap();
    ObjectKey {
        inode: file.ino(),
        changed_s: file.ctime(),
        changed_ns: u32::try_from(file.ctime_nsec()).unwrap(),
        device: libc::major(file.dev()) << 20 | libc::minor(file.dev()),
    }
}

/// The chain's code.
fn chain_table() -> ObjectTable {
    let offset = chain::offset_in_file(here!(chain_begin));
    let mut table = ObjectTable { pages_and_kind: 1, ..ObjectTable::default() };
    // The chain's addresses count from its beginning.
    table.segments[0] =
        Segment { offset, end: offset + here!(chain_end) - here!(chain_begin), shift: offset.wrapping_neg() };
    table
}

#[test]
fn privileged_where_the_kernel_knows_the_mappings_it_is_asked_and_told_of_objects_alone() {
    let _turn = turn();
    let mut trace = Trace::of_the_chain(128);
    let leaf = here!(chain_third_return);
    if !trace.kernel.tables().finds_mappings() {
        let (frames, end) = trace.stack_of(chain::first, 0);
        assert_eq!((frames[0], end), (leaf, StackEnd::FramePointers), "kernels before 5.17 have no bpf_find_vma");
        assert!(trace.kernel.take_wanted().unwrap().is_none());
        return;
    }
    let mut reader = trace.kernel.take_wanted().unwrap().unwrap();
    let mut wanted = || {
        let mut wanted = Vec::new();
        reader.drain(|one| wanted.push(one));
        wanted
    };
    assert_eq!(trace.stack_of(chain::first, 0), (vec![leaf], StackEnd::TablePending));
    chain::run(chain::first, 0);
    trace.readers[0].drain(u64::MAX, |_| ());
    let asked = wanted();
    let [TableRequest { object, pid: who, range: Some((start, end)) }] = asked[..] else {
        panic!("asked once: {asked:?}")
    };
    assert_eq!((object, who), (own_object(), pid()));
    assert!(start.0 <= here!(chain_begin) && here!(chain_end) <= end.0);
    let tables = trace.kernel.tables();
    tables
        .set_object(object, ObjectTable { pages_and_kind: u32::from(mapping::UNUSABLE) << 24, ..chain_table() })
        .unwrap();
    assert_eq!(trace.stack_of(chain::first, 0), (vec![leaf], StackEnd::NoTable));
    trace.write_table(&truth());
    trace.kernel.tables().set_object(object, chain_table()).unwrap();
    assert_eq!(trace.stack_of(chain::first, 0), (in_third(), StackEnd::Complete));
    trace.kernel.tables().forget_object(object);
    assert_eq!(wanted(), [], "what is known is not asked for");
}

#[test]
fn privileged_a_deep_stack_is_walked_to_its_end_or_as_deep_as_was_asked() {
    let _turn = turn();
    let deep = |calls: usize| {
        let mut frames = vec![here!(chain_deep_return); calls - 1];
        frames.insert(0, here!(chain_deepest_return));
        frames.push(here!(chain_outermost_return));
        frames
    };
    for (most, calls) in [(256, 255), (256, 256), (256, 1000), (128, 1000), (128, 127), (20, 20), (1, 5)] {
        let mut trace = Trace::of_the_chain(most);
        trace.tell(&truth(), &[whole(mapping::TABLE)]);
        let mut expected = (deep(calls), StackEnd::Complete);
        if calls >= most as usize {
            expected.0.truncate(most as usize);
            expected.1 = StackEnd::Truncated;
        }
        assert_eq!(trace.stack_of(chain::deep, calls as u64), expected, "{calls} calls of which {most} were asked for");
    }
}

#[test]
fn privileged_a_walk_goes_through_a_signal_to_what_it_interrupted() {
    let _turn = turn();
    let mut trace = Trace::of_the_chain(128);
    trace.tell(&truth(), &[whole(mapping::TABLE)]);
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
fn privileged_code_without_a_table_is_walked_by_frame_pointers_where_it_was_generated() {
    let _turn = turn();
    let mut trace = Trace::of_the_chain(128);
    let parts = [
        range(here!(chain_begin)..here!(chain_second), mapping::TABLE),
        range(here!(chain_second)..here!(chain_third), mapping::GENERATED),
        range(here!(chain_third)..here!(chain_end), mapping::TABLE),
    ];
    // Whatever order they are told in.
    trace.tell(&truth(), &[parts[2], parts[0], parts[1]]);
    assert_eq!(trace.stack_of(chain::first, 0), (in_third(), StackEnd::Generated));
}

#[test]
fn privileged_return_addresses_that_other_probes_have_exchanged_are_undone() {
    let _turn = turn();
    let _others = [Trace::begin(0).probe(here!(chain_first)), Trace::begin(0).probe(here!(chain_second))];
    let mut trace = Trace::of_the_chain(128);
    trace.tell(&truth(), &[whole(mapping::TABLE)]);
    assert_eq!(trace.stack_of(chain::first, 0), (in_third(), StackEnd::Complete));
    let _more = [Trace::begin(0).probe(here!(chain_deep)), Trace::begin(0).probe(here!(chain_deep))];
    let mut expected = vec![here!(chain_deep_return); 29];
    expected.insert(0, here!(chain_deepest_return));
    expected.push(here!(chain_outermost_return));
    assert_eq!(trace.stack_of(chain::deep, 30), (expected, StackEnd::Complete));
}

#[test]
fn privileged_new_mappings_hold_at_once_and_what_was_remembered_under_the_old_does_not() {
    let _turn = turn();
    let mut trace = Trace::of_the_chain(128);
    let cut_in = |rows: &mut Vec<Row>, function: u64| {
        rows.iter_mut().find(|(from, _)| *from == function).unwrap().1 = outermost();
    };
    for ends_in in 1..4 {
        let mut rows = truth();
        cut_in(&mut rows, [here!(chain_third), here!(chain_second), here!(chain_first)][ends_in - 1]);
        trace.tell(&rows, &[whole(mapping::TABLE)]);
        assert_eq!(trace.stack_of(chain::first, 0), (in_third()[..ends_in].to_vec(), StackEnd::Complete));
    }
    for (kind, end) in [(mapping::PENDING, StackEnd::TablePending), (mapping::UNUSABLE, StackEnd::NoTable)] {
        trace.kernel.tables().set_process(pid(), &[whole(kind)]).unwrap();
        assert_eq!(trace.stack_of(chain::first, 0), (in_third()[..1].to_vec(), end));
    }
    trace.kernel.tables().set_process(pid(), &[range(0..1, mapping::TABLE)]).unwrap();
    assert_eq!(trace.stack_of(chain::first, 0), (in_third()[..1].to_vec(), StackEnd::NoMapping));
}

#[test]
fn privileged_places_of_replaced_mappings_are_used_again() {
    let _turn = turn();
    let mut trace = Trace::of_the_chain(128);
    let mut many = vec![whole(mapping::TABLE)];
    many.extend((1..MAX_PROCESS_MAPPINGS as u64).map(|index| range(index..index + 1, mapping::GENERATED)));
    trace.tell(&truth(), &many);
    for _ in 0..3 * MAX_MAPPINGS / MAX_PROCESS_MAPPINGS {
        trace.kernel.tables().set_process(pid(), &many).unwrap();
    }
    assert_eq!(trace.stack_of(chain::first, 0), (in_third(), StackEnd::Complete));
}

#[test]
fn privileged_mappings_that_a_forked_process_shares_are_not_written_over() {
    const PARENT: Pid = Pid(1);
    const CHILD: Pid = Pid(2);
    let mut trace = Trace::begin(1);
    let tables = trace.kernel.tables();
    let many = vec![whole(mapping::TABLE); MAX_PROCESS_MAPPINGS];
    let places_until = |tables: &mut Tables, wanted: Option<u32>| {
        let set = |_| {
            tables.set_process(PARENT, &many).unwrap();
            tables.held[&PARENT].first
        };
        (0..3 * MAX_MAPPINGS / MAX_PROCESS_MAPPINGS).map(set).any(|place| Some(place) == wanted)
    };
    places_until(tables, None);
    let shared = tables.processes.get(&PARENT.0, 0).unwrap();
    // As the kernel half does it at a fork.
    tables.processes.insert(CHILD.0, shared, 0).unwrap();
    tables.set_process(PARENT, &[]).unwrap();
    assert!(!places_until(tables, Some(shared.0.base)), "while the child has them");
    tables.drop_process(CHILD);
    assert!(places_until(tables, Some(shared.0.base)), "when nobody has them");
}

#[test]
fn privileged_what_does_not_fit_is_refused() {
    let _turn = turn();
    let mut trace = Trace::begin(1);
    let tables = trace.kernel.tables();
    let refused = |told: Result<(), KernelError>| assert!(matches!(told, Err(KernelError::Failed { .. })));
    refused(tables.write_rules(MAX_RULES as u32, &[Rule::default()]));
    refused(tables.write_rules(u32::MAX, &[Rule::default()]));
    refused(tables.write_pages(MAX_PAGES as u32 - 1, &[1, 2]));
    refused(tables.write_rows(0, BLOB_ROWS as u32, &[1]));
    refused(tables.write_rows(MAX_BLOBS as u32, 0, &[1]));
    refused(tables.set_process(Pid(1), &vec![Mapping::default(); MAX_PROCESS_MAPPINGS + 1]));
    tables.write_rules(MAX_RULES as u32 - 1, &[Rule::default()]).unwrap();
    tables.write_pages(MAX_PAGES as u32 - 1, &[1]).unwrap();
    tables.write_rows(MAX_BLOBS as u32 - 1, BLOB_ROWS as u32 - 1, &[1]).unwrap();
}
