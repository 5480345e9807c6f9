//! The privileged tests: a module for each topic.
//!
//! Modules run in two lanes at the same time. A test in a module `alone` runs by itself, because it
//! traces, loads or changes the whole machine. A test in a module `long` runs in the long tier
//! only.

mod accounts;
mod activity;
mod allocators;
mod alone;
mod block_times;
mod debuginfod;
mod deep_stacks;
mod diff;
mod dlopen;
mod doctor;
mod equality;
mod explain;
mod explain_go;
mod explain_programs;
mod fair_shares;
mod faults;
mod filters;
mod formats_of_runs;
mod generated_code;
mod go_profiles;
mod group_by;
mod grouped_recordings;
mod hostile_names;
mod hostile_objects;
mod kernels;
mod launch;
mod libc_versions;
mod lifetimes;
mod limits;
mod losses;
mod mappings;
mod page_tracking;
#[cfg(target_arch = "x86_64")]
mod patching;
mod performance_schema;
mod privileges;
mod probes;
mod program_tags;
mod progress;
mod python;
mod recording;
mod recording_reports;
mod redis;
mod refusals;
mod releases;
mod rescue_files;
mod samplers;
mod second_signal;
mod service_manager;
mod shards;
mod stack_completeness;
mod stacks_against_libgcc;
mod symbols;
mod tag_presets;
mod tags;
mod thread_filters;
mod tracer_killed;
mod unusual_stacks;
mod victim_totals;
