//! Readers of files below `/proc`, `/sys` and cgroupfs, and the few writes to them.

mod blocked_time;
mod caches;
mod cgroup_hierarchies;
mod cgroup_parser;
mod cgroup_path;
mod cpu_clock;
mod credentials;
mod damon;
mod error;
mod freezer;
mod futex;
mod generated_code;
mod held_objects;
mod image;
mod image_memory;
pub(crate) mod kernel_files;
mod kernel_text;
pub(crate) mod locks;
mod machine_memory;
mod machine_usage;
mod maps;
mod mem;
mod memcg;
mod memcg_counters;
mod memcg_limits;
mod mountinfo;
mod objects;
mod own_process;
mod page_touches;
mod pagemap;
mod passwd;
mod patched;
mod pidfd;
mod pressure;
mod process;
mod process_end;
mod process_metadata;
mod process_user;
mod process_values;
mod references;
mod refusal;
mod remote_counters;
mod remote_words;
mod resident;
mod rusage;
mod schedstat;
mod select;
mod shared_frames;
mod sharer;
mod smaps;
mod status;
mod system;
#[cfg(target_arch = "x86_64")]
mod task_status;
mod undo;
mod uprobe_events;
mod vmstat;

pub(crate) use blocked_time::BlockedTime;
pub use caches::{data_caches, tlb_reach};
pub use cgroup_hierarchies::Hierarchies;
pub(crate) use cpu_clock::time_without_processor;
pub use cpu_clock::{processor_time, processor_time_of_children};
pub(crate) use credentials::{Credentials, all_credentials, credentials};
pub use damon::{Damon, DamonError};
pub use error::ProcessError;
pub use freezer::{Freezer, PauseError};
pub use futex::{FutexWaiter, futex_wait, system_call};
pub use generated_code::{CodeGenerator, belongs_to, code_generator, is_generated_code, perf_map, perf_map_of};
pub(crate) use held_objects::HeldObjects;
pub use image::{object_at, program_of, read_image, vdso};
pub use image_memory::{BoundedMemory, ImageMemory};
pub use locks::end_reader;
pub use machine_memory::{machine_memory, memory_by_type};
pub use machine_usage::{machine_usage, processor_time_of_machine};
pub use maps::Inode;
#[cfg(target_arch = "x86_64")]
pub(crate) use maps::MapsEntry;
pub use mem::{MemoryReader, MemoryView, WordReader};
pub use memcg::{GroupReading, MemoryGroups};
pub use memcg_limits::{cgroup_memory, memory_high, memory_of_cgroup};
pub use mountinfo::Tmpfs;
pub(crate) use mountinfo::{is_9p_of_host, is_served_by_root};
pub use objects::{Objects, Opened};
pub(crate) use own_process::opened_path;
pub use own_process::{
    boot_offset, descriptor_path, monotonic_offset, own_pid_namespace, own_program, own_uid_map, set_own_oom_score,
};
pub use page_touches::{ClearedPages, PageReading, PageTracker, UnmappedCache, has_soft_dirty, tracked_ranges};
pub use pagemap::page_size;
pub use patched::{ControlPage, ControlValues, PatchedStub, mapped_inode, patched_processes, stubs};
#[cfg(target_arch = "x86_64")]
pub(crate) use patched::{
    is_stub_descriptor, open_mapped_stub, open_memory_for_writing, open_new_stub, open_thread_memory,
};
pub(crate) use pidfd::open_pidfd;
pub use pidfd::{exits_within, has_ended};
pub use pressure::machine_pressure;
pub use process::{Process, comm, inspect, proc_path, start_time};
pub(crate) use process::{is_in_procfs, mount_namespace};
pub(crate) use process_end::has_threads;
pub use process_metadata::{MetadataReader, ProcessMetadata, thread_name, thread_names, threads};
pub(crate) use process_user::is_in_own_user_namespace;
pub use process_user::responsible_user;
pub use process_values::process_values;
pub use references::{clear_references, has_clear_refs, huge_page_size};
pub use refusal::{ReadRefusal, in_root_user_namespace, missing_for_mapped_files};
pub use remote_counters::RemoteCounters;
pub use resident::resident;
pub use rusage::{kernel_counts, page_faults};
pub use schedstat::ProcessorWait;
pub(crate) use select::user_id;
pub use select::{all_processes, descendants, kernel_threads, traits};
pub use shared_frames::{CountedFrames, FrameCounter};
pub use sharer::parent_with_same_memory;
pub use smaps::{Sizes, Vma, read_vmas, rollup, vmas};
pub use status::counted;
pub(crate) use system::kernel_btf;
pub(crate) use system::uprobe_type;
pub use system::{kernel_release, kernel_version, last_pid, lockdown_modes, online_cpus, sysctl};
#[cfg(target_arch = "x86_64")]
pub(crate) use task_status::{
    TaskStatus, age, auxiliary_vector, children, is_ending, is_frozen, is_io_worker, mappings, task_status, tasks,
};
pub(crate) use uprobe_events::uprobe_events;
pub use vmstat::{has_swap, vm_counters};
