//! Code that memtrace adds to a running process, so that the process counts its allocations by itself.
//!
//! A jump replaces one instruction of each allocator function. It leads to the stub, a mapped file with the code of all
//! functions. The stub subtracts the size from a countdown of the thread. When a countdown has ended, it draws the next one,
//! notes the address of the block, and executes an instruction with a uprobe.
//!
//! [`site`] chooses the instructions, [`stub`] makes the bytes of the file, and [`layout`] describes them. The modules read no
//! file and no process.

mod assembler;
mod displaced;
mod error;
pub mod layout;
mod routines;
pub mod site;
mod site_stub;
pub mod stub;

#[cfg(test)]
mod tests;
