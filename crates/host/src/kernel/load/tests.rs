use std::num::NonZeroU32;
use std::path::Path;

use memtrace_model::Bytes;

use super::*;
use crate::kernel::{MapSizes, ProcessFilter, bpf_syscall};

/// Maximum number of instructions that the verifier may process for a program. The kernel's limit is 1,000,000
/// (`BPF_COMPLEXITY_LIMIT_INSNS`, include/linux/bpf.h), but other kernels process up to twice as many instructions for the same
/// program.
const LIMIT: u32 = 300_000;

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
