//! Demoted processes: the smallest block that the BPF programs record, and the sums of the blocks below it.

use aya::maps::{Array, HashMap, MapData, MapError};
use memtrace_common::wire::{DroppedBlocks, MAIN_HAS_EXITED};
use memtrace_model::{Amount, Bytes, Pid};

use super::bpf::Bpf;
use super::error::KernelError;
use super::wire_type::MapEntry;

/// Stops recording the blocks of `pid` below `min_size`. Returns true if the process was not demoted before.
pub(super) fn demote(bpf: &mut Bpf, pid: Pid, min_size: Bytes) -> Result<bool, KernelError> {
    let mut dropped: HashMap<&mut MapData, u32, MapEntry<DroppedBlocks>> = map(bpf, "DROPPED")?;
    // A process that is demoted again, to a higher minimum size, keeps its sum.
    let is_new = dropped.get(&pid.0, 0).is_err();
    if is_new {
        dropped.insert(pid.0, MapEntry(DroppedBlocks::default()), 0).map_err(|error| failed(&error))?;
    }
    let mut min_sizes: HashMap<&mut MapData, u32, u64> = map(bpf, "MIN_SIZES")?;
    let known = min_sizes.get(&pid.0, 0).unwrap_or(0);
    min_sizes.insert(pid.0, min_size.0.max(known), 0).map_err(|error| failed(&error))?;
    let mut demotions: Array<&mut MapData, u64> =
        bpf.map_mut("DEMOTIONS")?.try_into().map_err(|error: MapError| failed(&error))?;
    demotions.set(0, 1_u64, 0).map_err(|error| failed(&error))?;
    Ok(is_new)
}

/// Returns the sum of the dropped blocks of `pid` since its demotion; `None` if it has exited or was not demoted.
pub(super) fn dropped(bpf: &Bpf, pid: Pid) -> Option<Amount> {
    let sums: HashMap<&MapData, u32, MapEntry<DroppedBlocks>> = bpf.map("DROPPED")?.try_into().ok()?;
    let MapEntry(DroppedBlocks { count, bytes }) = sums.get(&pid.0, 0).ok()?;
    Some(Amount { bytes: Bytes(bytes), count })
}

/// Returns true if other processes share the memory of `pid`. The BPF programs then keep its demotion after its exit.
pub(super) fn is_memory_shared(bpf: &Bpf, pid: Pid) -> bool {
    let counts = bpf.map("SHARER_COUNTS").and_then(|map| HashMap::<&MapData, u32, u64>::try_from(map).ok());
    counts.and_then(|counts| counts.get(&pid.0, 0).ok()).is_some_and(|count| count & !MAIN_HAS_EXITED != 0)
}

/// Returns true if `pid` shares the memory of another process.
pub(super) fn is_memory_sharer(bpf: &Bpf, pid: Pid) -> bool {
    let mains = bpf.map("MAIN_PROCESSES").and_then(|map| HashMap::<&MapData, u32, u32>::try_from(map).ok());
    mains.is_some_and(|mains| mains.get(&pid.0, 0).is_ok())
}

/// Ends the demotion of `pid`. Another process may get this pid.
pub(super) fn forget(bpf: &mut Bpf, pid: Pid) -> Result<(), KernelError> {
    // This fails if a BPF program has removed the entries at the exit of the process.
    let _ = map::<u64>(bpf, "MIN_SIZES")?.remove(&pid.0);
    let _ = map::<MapEntry<DroppedBlocks>>(bpf, "DROPPED")?.remove(&pid.0);
    Ok(())
}

fn map<'bpf, V: aya::Pod>(bpf: &'bpf mut Bpf, name: &str) -> Result<HashMap<&'bpf mut MapData, u32, V>, KernelError> {
    bpf.map_mut(name)?.try_into().map_err(|error| failed(&error))
}

fn failed(error: &MapError) -> KernelError {
    KernelError::from_error("write the demoted processes", error)
}
