//! Interface between the BPF programs (`memtrace-ebpf`) and user space (`memtrace`).
//!
//! Both are compiled for different targets and share this crate only. [`vocabulary`] has the tables of hooked
//! functions, loss reasons and stack ends. [`wire`] defines the layout of records and settings, [`unwind`] that of
//! unwind tables.

#![no_std]

pub mod unwind;
pub mod vocabulary;
pub mod wire;
