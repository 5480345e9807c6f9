//! Reader of `/proc`, cgroupfs, PSI and the page map.

pub(crate) mod cgroup;
pub(crate) mod error;
pub(crate) mod image;
pub(crate) mod maps;
pub(crate) mod memcg;
pub(crate) mod memcg_limits;
pub(crate) mod objects;
pub(crate) mod own_process;
pub(crate) mod page_map;
pub(crate) mod peek;
pub(crate) mod pidfd;
pub(crate) mod pressure;
pub(crate) mod process;
pub(crate) mod process_metadata;
pub(crate) mod processor_time;
pub(crate) mod resident;
pub(crate) mod rusage;
pub(crate) mod select;
pub(crate) mod smaps;
pub(crate) mod status;
pub(crate) mod system;
pub(crate) mod tmpfs;
pub(crate) mod users;
pub(crate) mod vmstat;

pub(crate) use error::ProcessError;
pub(crate) use image::{object_at, program_of, read_image, vdso};
pub(crate) use memcg::{GroupReading, MemoryGroups};
pub(crate) use memcg_limits::cgroup_memory;
pub(crate) use objects::Objects;
pub(crate) use own_process::{descriptor_path, own_pid_namespace, own_status, own_uid_map};
pub(crate) use pressure::machine_pressure;
pub(crate) use process::{Process, inspect};
pub(crate) use process_metadata::{MetadataReader, ProcessMetadata, thread_names};
pub(crate) use processor_time::processor_time;
pub(crate) use resident::resident;
pub(crate) use rusage::kernel_counts;
pub(crate) use select::{Traits, all_processes, cgroup_id, is_in_cgroup, traits, user_id};
#[cfg(test)]
pub(crate) use smaps::rollup;
pub(crate) use status::counted;
pub(crate) use system::{kernel_btf, kernel_release, lockdown_modes, online_cpus, sysctl, uprobe_type};
pub(crate) use vmstat::vm_counters;
