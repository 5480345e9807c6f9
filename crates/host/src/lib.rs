//! The running machine: files of processes and of the kernel, events of perf, commands, and the BPF programs.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod bounded_file;
mod bpf_call;
pub mod cache_directory;
mod copy_limit;
pub mod debuginfod;
pub mod go_profile;
pub mod kernel;
pub mod launch;
pub mod loader;
pub mod mmap_events;
mod object_budget;
mod own_mapping;
mod own_server;
pub mod patcher;
mod perf_event;
pub mod pmu;
pub mod privileges;
pub mod procfs;
pub mod symbolizer;
pub mod target_files;
pub mod unread_files;
pub mod unwind_tables;
