//! Facts about the memory of a control group or of the machine.

use memtrace_model::format as number;
use memtrace_model::{Bytes, CgroupEvents, CgroupMemory, KernelMemory, MachineMemory, MemoryCounters, Pressure};

use super::rss_parts::share;

type Facts = Vec<(&'static str, String)>;

/// Returns the facts about a control group. `unmapped_shmem`: estimate of the shared memory that no process maps, if known.
pub(super) fn of_group(group: &CgroupMemory, unmapped_shmem: Option<Bytes>) -> Facts {
    let mut memory = format!("{}{}", group.current, limit(group));
    if let Some(peak) = group.peak.filter(|peak| *peak > group.current) {
        memory += &format!("; at most it was {peak}");
    }
    let mut facts = vec![("memory", memory)];
    facts.extend(group.high.as_ref().map(|high| {
        let used = number::percent(share(high.current, high.most));
        ("memory.high", format!("{} of {}, used to {used}: above it, processes are throttled", high.most, high.path))
    }));
    facts.extend(of_counters(&group.counters, unmapped_shmem));
    facts.extend(events(&group.events).map(|text| ("events", text)));
    facts.extend(group.pressure.map(|found| ("pressure", pressure(found))));
    facts
}

/// Returns the facts about the machine.
pub(super) fn of_machine(machine: &MachineMemory) -> Facts {
    let MachineMemory { total, free, available, hugetlb, counters } = machine;
    let text = format!("{total}, {free} of it unused; programs can get {available} without swapping");
    let mut facts = vec![("memory", text)];
    facts.extend(of_counters(counters, None));
    let pool = |bytes: Bytes| ("huge pages", format!("{bytes} in the kernel's pool (hugetlb), used or not"));
    facts.extend(hugetlb.filter(|bytes| bytes.0 > 0).map(pool));
    facts
}

fn of_counters(counters: &MemoryCounters, unmapped_shmem: Option<Bytes>) -> Facts {
    let mut facts = Vec::new();
    let anonymous = |bytes: Bytes| ("anonymous", format!("{bytes}: heaps, stacks and other memory without a file"));
    facts.extend(counters.anonymous.map(anonymous));
    facts.extend(page_cache(counters).map(|text| ("page cache", text)));
    facts.extend(shared_memory(counters, unmapped_shmem).map(|text| ("shared memory", text)));
    facts.extend(counters.unmapped().map(|bytes| {
        ("not mapped", format!("{bytes} of the page cache and the shared memory: in the RSS of no process"))
    }));
    facts.extend(counters.swap.filter(|swap| swap.0 > 0).map(|swap| ("swapped out", swap.to_string())));
    facts.extend(kernel(&counters.kernel).map(|text| ("kernel memory", text)));
    facts
}

fn page_cache(counters: &MemoryCounters) -> Option<String> {
    let (file, shmem) = (counters.file?, counters.shmem.unwrap_or_default());
    let mut text = format!("{} of files on disk", Bytes(file.0.saturating_sub(shmem.0)));
    if let Some(clean) = counters.clean() {
        text += &format!(", {clean} of it unmodified: the kernel drops it when memory is short");
    }
    Some(text)
}

/// Describes the shared memory, and its part that no process maps. The kernel has no counter for this part.
fn shared_memory(counters: &MemoryCounters, unmapped: Option<Bytes>) -> Option<String> {
    let shmem = counters.shmem?;
    let text = format!("{shmem} in tmpfs, memfds, System V segments and shared anonymous mappings");
    let Some((least, most)) = counters.unmapped_shmem() else { return Some(text) };
    Some(match unmapped {
        _ if least == most => format!("{text}; no process maps {least} of it"),
        Some(estimate) => format!("{text}; no process maps about {estimate} of it, at least {least}, at most {most}"),
        None => format!("{text}; no process maps between {least} and {most} of it (the kernel does not count it)"),
    })
}

fn kernel(kernel: &KernelMemory) -> Option<String> {
    let sum = kernel.sum()?;
    let slab = |bytes: Bytes| match kernel.slab_reclaimable {
        Some(part) => format!("slab {} ({part} reclaimable)", Bytes(bytes.0.saturating_add(part.0))),
        None => format!("slab {bytes}"),
    };
    let part = |name: &str, bytes: Option<Bytes>| bytes.map(|bytes| format!("{name} {bytes}"));
    let parts: Vec<_> = [
        kernel.slab_unreclaimable.map(slab),
        part("stacks", kernel.stacks),
        part("page tables", kernel.page_tables),
        part("sockets", kernel.sockets),
        part("per-CPU data", kernel.per_cpu),
        part("vmalloc", kernel.vmalloc),
        part("zswap", kernel.zswap.filter(|bytes| bytes.0 > 0)),
    ]
    .into_iter()
    .flatten()
    .collect();
    Some(match (parts.is_empty(), kernel.slab_unreclaimable) {
        (true, _) => sum.to_string(),
        (false, Some(_)) => format!("{sum}: {}", parts.join(", ")),
        (false, None) => format!("{sum}: {}; version 1 does not count the other parts", parts.join(", ")),
    })
}

fn events(events: &CgroupEvents) -> Option<String> {
    let CgroupEvents { high, max, oom, oom_kill } = *events;
    let part = |count: Option<u64>, one: &str, many: &str| count.map(|count| number::counted(count, one, many));
    let parts: Vec<_> = [
        part(oom_kill, "process killed by the OOM killer (oom_kill)", "processes killed by the OOM killer (oom_kill)"),
        part(oom, "allocation without reclaimable memory (oom)", "allocations without reclaimable memory (oom)"),
        part(max, "attempt to exceed the limit (max)", "attempts to exceed the limit (max)"),
        part(high, "reclaim above memory.high (high)", "reclaims above memory.high (high)"),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Returns the end of a sentence about the limit of a control group.
pub(super) fn limit(group: &CgroupMemory) -> String {
    let used = |bytes: Bytes, most: Bytes| number::percent(share(bytes, most));
    match &group.limit {
        None => String::from("; no limit"),
        Some(limit) if limit.path == group.path => {
            format!(", {} of its limit of {}", used(limit.current, limit.most), limit.most)
        }
        Some(limit) => {
            let used = used(limit.current, limit.most);
            format!("; the limit of {}, {}, is used to {used}", limit.path, limit.most)
        }
    }
}

/// Describes the memory pressure.
pub(super) fn pressure(found: Pressure) -> String {
    let full = found.full.map_or_else(String::new, |full| format!(", all of them {:.2}%", full.minute));
    format!("tasks stalled on memory {:.2}% of the last minute{full}", found.some.minute)
}
