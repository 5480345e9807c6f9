use std::num::NonZeroU32;

use super::*;
use crate::kernel::{ProcessFilter, bpf_syscall};

/// What the kernel takes is 1,000,000 (`BPF_COMPLEXITY_LIMIT_INSNS`, include/linux/bpf.h); other kernels' verifiers
/// look at up to twice as many as this one's.
const MOST: u32 = 300_000;

#[test]
fn privileged_no_program_is_long_to_verify() {
    let options = Options {
        rings: 16,
        ring_size: SPARE_SIZE,
        max_depth: memtrace_common::wire::MAX_FRAMES as u32,
        min_size: Bytes(1),
        max_size: Bytes(1 << 40),
        start_ns: 0,
        filter: ProcessFilter::Matching(Vec::new()),
        records_allocators: true,
        page_sample: NonZeroU32::new(2),
        reclaim: true,
        records_mappings: true,
    };
    let (mut kernel, _readers) = Kernel::load(&options).unwrap();
    kernel.way().load_all().unwrap();
    assert!(kernel.programs().any(|(name, _)| name == "page_fault_user"));
    let count = |program| bpf_syscall::program_info(program).unwrap().verified_insns;
    let mut verified: Vec<_> = kernel.programs().map(|(name, program)| (name.to_owned(), count(program))).collect();
    verified.sort();
    assert!(verified.iter().any(|(name, count)| name == "call_return" && *count > 1000), "{verified:?}");
    assert!(verified.iter().all(|(_, count)| *count <= MOST), "{verified:?}");
    for (name, count) in verified {
        println!("{name}: {count}");
    }
}
