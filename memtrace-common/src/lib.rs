//! Interface between the BPF programs (`memtrace-ebpf`) and user space (`memtrace`).
//!
//! The two sides are compiled for different targets. [`vocabulary`] has the tables of hooked functions, loss reasons
//! and stack ends. [`wire`] defines the layout of records and settings, and [`unwind`] the layout of unwind tables.
//! [`branch`] evaluates the conditions of jumps, and [`thinning`] chooses samples. The walk of a stack, which both sides
//! run, is in `memtrace-unwind`.

#![no_std]

pub mod branch;
pub mod thinning;
pub mod unwind;
pub mod vocabulary;
pub mod wire;
