//! Programs that measure the kernel's own share of the overhead: two empty ones, and one that only calls
//! `bpf_get_stack`, which walks frame pointers.
//!
//! The benchmarks attach these programs instead of memtrace's. They are not in memtrace's BPF object.

#![no_std]
#![no_main]

use aya_ebpf::EbpfContext as _;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::generated::bpf_get_stack;
use aya_ebpf::macros::{btf_map, uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};

/// Flag of `bpf_get_stack`: walk the user stack (`BPF_F_USER_STACK`, include/uapi/linux/bpf.h).
const USER_STACK: u64 = 1 << 8;

/// Maximum number of frames: the kernel's default (`PERF_MAX_STACK_DEPTH`, include/uapi/linux/perf_event.h).
const FRAMES: usize = 127;

/// Number of frames of the last walk, followed by the frames. The benchmarks measure one thread at a time.
#[btf_map]
static STACK: Array<[u64; FRAMES + 1], 1> = Array::new();

#[uprobe]
fn empty_entry(_: ProbeContext) -> u32 {
    0
}

#[uretprobe]
fn empty_return(_: RetProbeContext) -> u32 {
    0
}

#[uretprobe]
fn stack_return(context: RetProbeContext) -> u32 {
    let Some(stack) = STACK.get_ptr_mut(0) else { return 0 };
    let stack = stack.cast::<u64>();
    // SAFETY: the pointer refers to a map value. Its first word is followed by space for all frames.
    let frames = unsafe { stack.add(1) };
    // SAFETY: the helper writes at most the given size.
    let written = unsafe { bpf_get_stack(context.as_ptr(), frames.cast(), FRAMES as u32 * 8, USER_STACK) };
    // SAFETY: the first word of a map value.
    unsafe { *stack = if written > 0 { written as u64 / 8 } else { 0 } };
    0
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
