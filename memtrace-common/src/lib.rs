//! What memtrace's two halves agree on.
//!
//! The kernel half (`memtrace-ebpf`) and the user half (`memtrace`) are compiled for different targets and meet only
//! here: [`vocabulary`] names the hooked functions and the reasons for which something can be lost, [`wire`] says how
//! records and settings lie in memory.

#![no_std]

pub mod unwind;
pub mod vocabulary;
pub mod wire;
