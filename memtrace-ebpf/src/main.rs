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

mod atomic;
mod bound;
mod counts;
mod emit;
mod groups;
mod hook;
mod kernel;
mod loss;
mod maps;
mod own_stack;
mod pending;
mod probes;
mod rate;
mod reclaim;
mod registers;
mod scope;
mod settings;
mod stack;
mod thread;
mod thrice;
mod unwind;

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
