//! Processes whose allocations are sampled: the BPF programs record none of their page faults.

use aya::maps::{Array, HashMap, MapData, MapError};
use memtrace_common::wire::sampled_process;
use memtrace_model::Pid;

use super::bpf::Bpf;
use super::error::KernelError;

/// Adds a process. `with_children`: true to add its later children too.
pub(super) fn add(bpf: &mut Bpf, pid: Pid, with_children: bool) -> Result<(), KernelError> {
    let value = if with_children { sampled_process::WITH_CHILDREN } else { sampled_process::ALONE };
    map(bpf)?.insert(pid.0, value, 0).map_err(|error| failed(&error))?;
    let mut flag: Array<&mut MapData, u64> =
        bpf.map_mut("HAS_SAMPLED_PROCESSES")?.try_into().map_err(|error: MapError| failed(&error))?;
    flag.set(0, 1_u64, 0).map_err(|error| failed(&error))
}

pub(super) fn remove(bpf: &mut Bpf, pid: Pid) -> Result<(), KernelError> {
    // This fails if a BPF program has removed the entry at an exec or exit.
    let _ = map(bpf)?.remove(&pid.0);
    Ok(())
}

fn map(bpf: &mut Bpf) -> Result<HashMap<&mut MapData, u32, u32>, KernelError> {
    bpf.map_mut("SAMPLED_PROCESSES")?.try_into().map_err(|error| failed(&error))
}

fn failed(error: &MapError) -> KernelError {
    KernelError::from_error("write the processes whose page faults are left out", error)
}
