//! Reader of `/proc`, cgroupfs, PSI and the page map.

mod caches;
mod cgroup;
mod cgroup_hierarchies;
mod cpu_clock;
mod damon;
mod error;
mod freezer;
mod futex;
mod generated_code;
mod image;
mod machine_memory;
mod machine_usage;
mod maps;
mod mem;
mod memcg;
mod memcg_limits;
mod mountinfo;
mod objects;
mod own_process;
mod page_touches;
mod pagemap;
mod passwd;
mod pidfd;
mod pressure;
mod process;
mod process_metadata;
mod process_values;
mod references;
mod refusal;
mod remote_counters;
mod remote_words;
mod resident;
mod rusage;
mod select;
mod smaps;
mod status;
mod system;
mod undo;
mod vmstat;

pub(crate) use caches::{data_caches, tlb_reach};
pub(crate) use cgroup_hierarchies::Hierarchies;
pub(crate) use cpu_clock::{processor_time, processor_time_of_children};
pub(crate) use damon::{Damon, DamonError};
pub(crate) use error::ProcessError;
pub(crate) use freezer::{Freezer, PauseError};
pub(crate) use futex::{FutexWaiter, futex_wait};
pub(crate) use generated_code::{CodeGenerator, belongs_to, code_generator, perf_map, perf_map_of};
pub(crate) use image::{object_at, program_of, read_image, vdso};
pub(crate) use machine_memory::machine_memory;
pub(crate) use machine_usage::machine_usage;
pub(crate) use maps::Inode;
pub(crate) use mem::{MemoryReader, MemoryView, WordReader, read_memory};
pub(crate) use memcg::{GroupReading, MemoryGroups};
pub(crate) use memcg_limits::{cgroup_memory, memory_high};
pub(crate) use mountinfo::Tmpfs;
pub(crate) use objects::{Objects, Opened, regular};
pub(crate) use own_process::{
    boot_offset, descriptor_path, effective_capabilities, monotonic_offset, own_pid_namespace, own_program, own_status,
    own_uid_map, set_own_oom_score,
};
pub(crate) use page_touches::{ClearedPages, PageReading, PageTracker, UnmappedCache, has_soft_dirty, tracked_ranges};
pub(crate) use pagemap::page_size;
#[cfg(test)]
pub(crate) use pidfd::exits_within;
pub(crate) use pidfd::{has_ended, open_pidfd};
pub(crate) use pressure::machine_pressure;
pub(crate) use process::{Process, comm, inspect, proc_path};
pub(crate) use process_metadata::{MetadataReader, ProcessMetadata, thread_name, thread_names, threads};
pub(crate) use process_values::process_values;
pub(crate) use references::{clear_references, has_clear_refs, huge_page_size};
pub(crate) use refusal::{ReadRefusal, in_root_user_namespace, missing_for_mapped_files};
pub(crate) use remote_counters::RemoteCounters;
pub(crate) use resident::resident;
pub(crate) use rusage::{kernel_counts, page_faults};
pub(crate) use select::{all_processes, traits, user_id};
pub(crate) use smaps::{Sizes, Vma, vmas};
#[cfg(test)]
pub(crate) use smaps::{read_vmas, rollup};
pub(crate) use status::counted;
pub(crate) use system::{kernel_btf, kernel_release, lockdown_modes, online_cpus, sysctl, uprobe_type};
pub(crate) use vmstat::{has_swap, vm_counters};
