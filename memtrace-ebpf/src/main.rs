//! memtrace's BPF programs.
//!
//! The attached programs are in [`probes`]. [`file_id`] has the programs that user space runs itself. A program
//! checks the [`gate`], which asks the [`process_filter`], and sends its records with [`emit`]. [`pending`] keeps
//! allocator calls until they return. [`stack`] takes call stacks, and walks them with [`unwind`]. [`settings`] are
//! fixed before loading, and [`limits`] at compile time.

#![no_std]
#![no_main]
// `core` has no atomic read-modify-write operations for the target, so `atomic` uses inline assembly.
#![feature(asm_experimental_arch)]

mod activity;
mod address_space;
mod arguments;
mod atomic;
mod blocks;
mod call_rate;
mod cgroup;
mod demotion;
mod emit;
mod file_id;
mod gate;
mod kernel;
mod late_tags;
mod limits;
mod loss;
mod memcg;
mod origin;
mod owner;
mod pending;
mod private_stack;
mod probes;
mod process_filter;
mod reclaim;
mod redundant;
mod registers;
mod rusage;
mod sampled;
mod sampled_processes;
mod scratch;
mod settings;
mod size_filter;
mod stack;
mod tags;
mod task_iterator;
mod thread;
mod unpreempted;
mod unwind;
mod usage;
mod user_memory;
mod verifier;

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
