//! Two programs that do nothing: what a probe costs before any work is done at it.
//!
//! `cargo xtask bench overhead` places them where memtrace places its own. memtrace itself carries none of this.

#![no_std]
#![no_main]

use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};

#[uprobe]
fn empty_entry(_: ProbeContext) -> u32 {
    0
}

#[uretprobe]
fn empty_return(_: RetProbeContext) -> u32 {
    0
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
