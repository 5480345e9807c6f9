//! memtrace's kernel half.
//!
//! [`probes`] has one file a family of hooked functions; each reads its arguments and says what happened. [`hook`] reads
//! arguments where one program serves several shapes, [`pending`] remembers a call until it returns, [`stack`] takes and names
//! call stacks, which [`unwind`] walks by tables, [`emit`] alone touches the rings, [`counts`] tells what the kernel itself has
//! counted of a process, [`loss`] counts what could not be told, and [`settings`] is what user space fixed before loading.
//! [`reclaim`] and [`groups`] keep the books of the search for memory, [`kernel`] reads the kernel's own memory, and
//! [`registers`] knows the machine.

#![no_std]
#![no_main]
// The target has no atomic exchange in `core`; `atomic` writes those instructions itself.
#![feature(asm_experimental_arch)]

mod arguments;
mod atomic;
mod call_rate;
mod emit;
mod file_id;
mod gate;
mod kernel;
mod loss;
mod memcg;
mod pending;
mod private_stack;
mod probes;
mod process_filter;
mod reclaim;
mod redundant;
mod registers;
mod rusage;
mod settings;
mod stack;
mod thread;
mod unwind;
mod verifier;

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
