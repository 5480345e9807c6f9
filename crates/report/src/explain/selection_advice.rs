//! Draws conclusions from the memory of several processes and their control groups. A warning about processes that were not
//! read comes first, then an alarm about a limit.

use memtrace_model::format as number;
use memtrace_model::{
    Bytes, CgroupMemory, KernelMemory, ProcessSizes, SelectedCgroup, SelectionExplanation, UnreadProcess, UnreadReason,
};

use super::advice::{Advice, MUCH_FREE, is_much, limit, oom_kills, plain, pressure, warning};
use super::rss_parts::share;
use crate::escape;

/// Minimum difference between the sums of RSS and PSS for a conclusion: share of the sum of RSS, and size.
const MUCH_SHARED: (f64, Bytes) = (0.2, Bytes(16 << 20));
/// Minimum unmapped shared memory of a control group for a conclusion: share of the use, and size.
const MUCH_UNMAPPED: (f64, Bytes) = (0.1, Bytes(16 << 20));
/// Minimum page cache of a control group for a conclusion: share of the use, and size.
const MUCH_CACHE: (f64, Bytes) = (0.3, Bytes(16 << 20));
/// Minimum kernel memory of a control group for a conclusion: share of the use, and size.
const MUCH_KERNEL: (f64, Bytes) = (0.2, Bytes(16 << 20));

/// Returns all conclusions, ordered as in the text.
pub(super) fn conclusions(page: &SelectionExplanation) -> Vec<Advice> {
    let groups = || page.cgroups.iter().map(|group| &group.memory);
    let mut all = unread(page);
    all.extend(timeouts(page));
    all.extend(page.unknown_cgroups.iter().map(|path| unknown(path)));
    all.extend(groups().filter_map(limit));
    all.extend(page.cgroups.iter().flat_map(|group| {
        let path = &group.memory.path;
        oom_kills(&group.memory, group.given.as_ref().unwrap_or(path))
    }));
    all.extend(shared(page));
    all.extend(largest(page));
    all.extend(page.cgroups.iter().filter_map(|group| unmapped(page, group)));
    all.extend(groups().filter_map(cache));
    all.extend(groups().filter_map(kernel));
    all.extend(free_heap(page));
    let of_group = |group: &CgroupMemory| pressure("A control group's", group.pressure?);
    let waits: Vec<_> = groups().filter_map(of_group).collect();
    if waits.is_empty() {
        all.extend(page.pressure.and_then(|found| pressure("The machine's", found)));
    }
    all.extend(waits);
    all
}

/// Names the processes that were not read, by reason.
fn unread(page: &SelectionExplanation) -> Vec<Advice> {
    let unread = &page.unread;
    let name = |process: &UnreadProcess| {
        let rss = process.rss.map_or_else(String::new, |rss| format!(", RSS {rss}"));
        format!("{} ({}{rss})", escape::visible(process.comm.raw()), process.pid)
    };
    let of_reason = |reason: UnreadReason| {
        let count = unread.count(reason);
        let mut names: Vec<_> = unread.named(reason).map(name).collect();
        let others = count.saturating_sub(names.len() as u64);
        if others > 0 {
            names.push(format!("{} more", number::grouped(others)));
        }
        let processes = number::counted(count, "process", "processes");
        let text = format!("Not read: {processes} ({}): {}.", reason.explanation(), names.join(", "));
        let advice = if reason.is_loss() { warning(text) } else { plain(text) };
        (count > 0).then_some(advice)
    };
    let mut all: Vec<_> = UnreadReason::ALL.into_iter().filter_map(of_reason).collect();
    if !unread.is_complete() {
        all.push(warning(format!("The sums lack processes with an RSS of {} in all.", unread.rss)));
    }
    all
}

fn timeouts(page: &SelectionExplanation) -> Option<Advice> {
    let reads = number::counted(page.file_timeouts, "read was", "reads were");
    (page.file_timeouts > 0).then(|| {
        warning(format!(
            "{reads} given up (file_timeout): a lock of a process or a file system did not answer in time. The sums may be \
             incomplete."
        ))
    })
}

fn unknown(path: &str) -> Advice {
    warning(format!(
        "The memory of the control group {path} is unknown: it is the root, or the hierarchy with the memory controller has no \
         such group."
    ))
}

/// Explains the difference between the sums of RSS and PSS.
fn shared(page: &SelectionExplanation) -> Option<Advice> {
    let total = page.total();
    let ProcessSizes { pss, private, resident, .. } = total.sizes;
    let repeated = Bytes(resident.0.saturating_sub(pss.0));
    (total.processes > 1 && is_much(repeated, resident, MUCH_SHARED)).then(|| {
        plain(format!(
            "The sum of the RSS, {resident}, counts a shared page once for each process. Together the processes use \
             {pss} (PSS): {private} of it is private to one process, and the rest is shared. The PSS has only a part of \
             a page that processes outside of the selection map too."
        ))
    })
}

/// Returns the process with the largest PSS, and the command for its parts.
fn largest(page: &SelectionExplanation) -> Option<Advice> {
    let process = page.processes.first().filter(|process| process.sizes.pss.0 > 0)?;
    let (pss, pid) = (process.sizes.pss, process.pid);
    let part = number::percent(share(pss, page.total().sizes.pss));
    let comm = escape::visible(process.comm.raw());
    let text = format!("{part} of the PSS ({pss}) is that of {comm} ({pid}). For the parts of its RSS, run:");
    Some(Advice { command: Some(format!("sudo memtrace explain --pid {pid}")), ..plain(text) })
}

/// Returns a warning about files of tmpfs and other shared memory that no process maps.
fn unmapped(page: &SelectionExplanation, group: &SelectedCgroup) -> Option<Advice> {
    let memory = &group.memory;
    let estimate = page.unmapped_shmem(group);
    let unmapped = estimate.or_else(|| memory.counters.unmapped_shmem().map(|(least, _)| least))?;
    let about = if estimate.is_some() { "About" } else { "At least" };
    is_much(unmapped, memory.current, MUCH_UNMAPPED).then(|| {
        warning(format!(
            "{about} {unmapped} ({}) of the control group {} is shared memory that no process maps: files of tmpfs (`df -t \
             tmpfs`), or System V segments (`ipcs -m`). It stays until they are deleted.",
            number::percent(share(unmapped, memory.current)),
            memory.path
        ))
    })
}

fn cache(group: &CgroupMemory) -> Option<Advice> {
    let clean = group.counters.clean()?;
    is_much(clean, group.current, MUCH_CACHE).then(|| {
        plain(format!(
            "{clean} ({}) of the control group {} is unmodified page cache. The kernel drops it when memory is short, so it \
             causes no OOM kill.",
            number::percent(share(clean, group.current)),
            group.path
        ))
    })
}

fn kernel(group: &CgroupMemory) -> Option<Advice> {
    let sum = group.counters.kernel.sum()?;
    is_much(sum, group.current, MUCH_KERNEL).then(|| {
        warning(format!(
            "{sum} ({}) of the control group {} is memory of the kernel, which is in the RSS of no process. {}",
            number::percent(share(sum, group.current)),
            group.path,
            kernel_parts(&group.counters.kernel)
        ))
    })
}

/// Returns a sentence about the largest part of the kernel memory of a control group.
fn kernel_parts(kernel: &KernelMemory) -> String {
    let KernelMemory { slab_reclaimable, slab_unreclaimable, stacks, page_tables, sockets, zswap, .. } = *kernel;
    let sockets = sockets.filter(|bytes| bytes.0 > 0);
    if slab_unreclaimable.is_none() {
        return match sockets {
            Some(bytes) => format!(
                "{bytes} of it is buffers of sockets (`ss -m`); version 1 of cgroups does not count the other parts."
            ),
            None => String::from("Version 1 of cgroups does not count its parts."),
        };
    }
    let parts = [
        (slab_reclaimable, "reclaimable slab, such as cached directory entries (`slabtop`)"),
        (slab_unreclaimable, "slab that the kernel cannot reclaim (`slabtop`)"),
        (stacks, "stacks of threads"),
        (page_tables, "page tables"),
        (sockets, "buffers of sockets (`ss -m`)"),
        (zswap, "compressed pages of swapped-out memory (zswap)"),
    ];
    let known = parts.into_iter().filter_map(|(bytes, name)| Some((bytes?, name)));
    match known.max_by_key(|(bytes, _)| *bytes).filter(|(bytes, _)| bytes.0 > 0) {
        Some((bytes, name)) => format!("The largest part is {bytes} of {name}."),
        None => String::from("The kernel does not count its parts."),
    }
}

fn free_heap(page: &SelectionExplanation) -> Option<Advice> {
    let sizes = page.total().sizes;
    let free = sizes.returnable.heap;
    is_much(free, sizes.pss, MUCH_FREE).then(|| {
        warning(format!(
            "About {free} ({}) of the PSS is free heap memory that glibc has not returned to the kernel: malloc_trim(3) does.",
            number::percent(share(free, sizes.pss))
        ))
    })
}
