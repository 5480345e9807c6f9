use std::io::{BufRead as _, BufReader, Write as _};
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Command, Stdio};

use aya::maps::{Array, HashMap, MapData};
use memtrace_model::{Bytes, EventKind};

use super::*;
use crate::kernel::{MapSizes, MapUses, ProcessFilter, bpf_syscall};

/// Maximum number of instructions that the verifier may process for a program. The kernel's limit is 1,000,000
/// (`BPF_COMPLEXITY_LIMIT_INSNS`, include/linux/bpf.h), but other kernels process up to twice as many instructions for the same
/// program.
const LIMIT: u32 = 300_000;

#[test]
fn object_is_readable_after_its_release() {
    let before = OBJECT.to_vec();
    release_object();
    assert!(OBJECT == before);
}

#[test]
fn privileged_programs_are_far_from_the_verifiers_limit() {
    let options = Options {
        rings: 16,
        map_sizes: MapSizes::FULL,
        max_depth: memtrace_common::wire::MAX_FRAMES as u32,
        max_size: Bytes(1 << 40),
        filter: ProcessFilter::Matching(Vec::new()),
        records_allocators: true,
        page_sample: NonZeroU32::new(2),
        records_huge_pages: true,
        records_moves: true,
        reclaim: true,
        records_mappings: true,
        ..Options::default()
    };
    let (mut kernel, _readers) = Kernel::load(&options).unwrap();
    kernel.attach_backend().load_all().unwrap();
    assert!(kernel.programs().any(|(name, _)| name == "page_fault_user"));
    // A kernel without kprobes may refuse programs at functions.
    assert!(kernel.records_huge_pages() || !Path::new("/sys/bus/event_source/devices/kprobe").exists());
    let count = |program| bpf_syscall::program_info(program).unwrap().verified_insns;
    let mut verified: Vec<_> = kernel.programs().map(|(name, program)| (name.to_owned(), count(program))).collect();
    verified.sort();
    assert!(verified.iter().any(|(name, count)| name == "call_return" && *count > 1000), "{verified:?}");
    assert!(verified.iter().all(|(_, count)| *count <= LIMIT), "{verified:?}");
    for (name, count) in verified {
        println!("{name}: {count}");
    }
}

#[test]
fn privileged_start_of_a_process_ends_the_share_of_an_earlier_one() {
    const SHARERS: u32 = 1000;
    let options = Options { rings: 2, map_sizes: MapSizes::FULL, ..Options::default() };
    let (mut kernel, mut readers) = Kernel::load(&options).unwrap();
    kernel.open().unwrap();
    let start = || {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        Pid(child.id())
    };
    let Pid(first) = start();
    let mut mains: HashMap<&mut MapData, u32, u32> = kernel.bpf.map_mut("MAIN_PROCESSES").unwrap().try_into().unwrap();
    // The exits of earlier processes with these pids were missed.
    (first + 1..=first + SHARERS).for_each(|pid| mains.insert(pid, 1_u32, 0).unwrap());
    let mut sharers: Array<&mut MapData, u64> = kernel.bpf.map_mut("SHARERS").unwrap().try_into().unwrap();
    sharers.set(0, u64::from(SHARERS), 0).unwrap();
    let child = start();
    assert!((first + 1..=first + SHARERS).contains(&child.0), "pids are given in order: {first}, {child}");
    let ends = |reader: &mut RingReader| {
        let mut count = 0;
        reader.drain(u64::MAX, |event| count += u32::from(event.pid == child && event.kind == EventKind::Unshare));
        count
    };
    assert_eq!(readers.iter_mut().map(ends).collect::<Vec<_>>(), [1, 1]);
}

/// Starts a copy of itself when it has read a line, and prints the pid of the copy. Both end when standard input is closed.
const COPIED_SHELL: &str = "read line; exec 3<&0; (read line <&3; exit 0) & echo $!; wait";

#[test]
fn privileged_page_faults_of_children_can_be_left_out_too() {
    let uses = MapUses { samples: true, ..MapUses::default() };
    let options = Options { map_sizes: MapSizes::FULL.with(uses), ..Options::default() };
    let (mut kernel, _readers) = Kernel::load(&options).unwrap();
    kernel.open().unwrap();
    let is_left_out = |kernel: &Kernel, pid: u32| {
        let map: HashMap<&MapData, u32, u32> = kernel.bpf.map("SAMPLED_PROCESSES").unwrap().try_into().unwrap();
        map.get(&pid, 0).is_ok()
    };
    for with_children in [false, true] {
        let mut shell = Command::new("sh");
        let script = format!("echo runs; {COPIED_SHELL}");
        shell.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut parent = shell.spawn().unwrap();
        let pid = parent.id();
        let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
        // Its exec, which would remove the entry, is over.
        assert_eq!(lines.next().unwrap().unwrap(), "runs");
        assert!(!is_left_out(&kernel, pid));
        kernel.leave_out_pages(Pid(pid), with_children).unwrap();
        let mut stdin = parent.stdin.take().unwrap();
        stdin.write_all(b"\n").unwrap();
        let child = lines.next().unwrap().unwrap().parse().unwrap();
        assert_eq!([pid, child].map(|pid| is_left_out(&kernel, pid)), [true, with_children]);
        kernel.record_pages(Pid(pid)).unwrap();
        assert_eq!([pid, child].map(|pid| is_left_out(&kernel, pid)), [false, with_children]);
        drop(stdin);
        parent.wait().unwrap();
        assert!(!is_left_out(&kernel, child));
    }
}
