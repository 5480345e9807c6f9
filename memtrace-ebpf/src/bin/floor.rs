//! The kernel's own share of the overhead: two empty programs, and one that only has the kernel walk frame pointers.
//!
//! The benchmarks attach them instead of memtrace's programs. memtrace does not contain them.

#![no_std]
#![no_main]

use aya_ebpf::EbpfContext as _;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::generated::bpf_get_stack;
use aya_ebpf::macros::{btf_map, uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};

/// Walk the user stack, not the kernel's (`BPF_F_USER_STACK`, include/uapi/linux/bpf.h).
const USER_STACK: u64 = 1 << 8;

/// Default maximum of frames of the walk (`PERF_MAX_STACK_DEPTH`, include/uapi/linux/perf_event.h).
const FRAMES: usize = 127;

/// Number of frames of the last walk, and the frames. One thread at a time is measured.
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
    // SAFETY: a map value's pointer; its first word is followed by space for all frames.
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
