//! Note about other tracers with probes in the same functions.

use std::collections::BTreeSet;

use memtrace_host::kernel::{OtherTracer, OtherTracers, ProcessFilter};
use memtrace_model::format::{counted, limited_list};

use super::probes::AllocatorProbes;
use super::running::RunningSelection;
use super::targets::Targets;

/// Maximum number of tracers that the note names.
const MAX_NAMED: usize = 8;

/// Finds other tracers with probes in the functions of `allocators` that run in `targets`, or in processes that `filter`
/// selects.
pub(crate) fn find(allocators: &[AllocatorProbes], targets: &Targets, filter: &ProcessFilter) -> OtherTracers {
    // Without pids, the targets are selected by their properties.
    let pids: BTreeSet<_> = targets.family().collect();
    let selection = RunningSelection::new(filter.clone());
    let is_target = |pid| if pids.is_empty() { selection.contains(pid) } else { pids.contains(&pid) };
    let functions = allocators.iter().map(|allocator| (allocator.object.as_path(), allocator.functions.as_slice()));
    let found = OtherTracers::find(functions, is_target);
    found.inspect_err(|error| log::info!("other tracers are not known: {error}")).unwrap_or_default()
}

/// Returns the name of the step that attaches the probes. The kernel inserts or removes the probes of one tracer at a time
/// (`register_for_each_vma`, kernel/events/uprobes.c).
pub(crate) fn attach_step(tracers: &OtherTracers) -> String {
    match tracers.processes.len() {
        0 => String::from("attaching probes"),
        1 => String::from("attaching probes (waits while 1 other tracer changes its probes)"),
        others => format!("attaching probes (waits while {others} other tracers change theirs)"),
    }
}

/// Returns a sentence about the tracers; `None` if there are none.
pub(crate) fn note(tracers: &OtherTracers) -> Option<String> {
    let OtherTracers { processes, pinned, events, hidden, is_cut } = tracers;
    let mut parts = Vec::new();
    if !processes.is_empty() {
        parts.push(limited_list(processes.iter().map(name), MAX_NAMED));
    }
    if *pinned > 0 {
        let holder = if *is_cut { "of unknown processes" } else { "without a process" };
        parts.push(format!("{} {holder}", counted(*pinned, "BPF link", "BPF links")));
    }
    if *events > 0 {
        parts.push(format!("{} of tracefs, if enabled", counted(*events, "uprobe event", "uprobe events")));
    }
    if !parts.is_empty() {
        let least = if *is_cut { "at least " } else { "" };
        let tracers = match processes.len() as u64 {
            0 => String::from("other probes are"),
            count => counted(count, "other tracer has probes", "other tracers have probes"),
        };
        return Some(format!("{least}{tracers} in the same functions, so that calls cost more: {}", parts.join(", ")));
    }
    if *hidden > 0 {
        let links = counted(*hidden, "BPF link of another tracer has", "BPF links of other tracers have");
        let cause = "this kernel does not show where (Linux 6.8 does)";
        return Some(format!("{links} probes, and {cause}: calls can cost more"));
    }
    let cut = "other tracers can have probes in the same functions: the search for them took too long";
    is_cut.then(|| cut.to_owned())
}

fn name(tracer: &OtherTracer) -> String {
    let OtherTracer { pid, comm, is_memtrace } = tracer;
    if *is_memtrace { format!("memtrace {pid}") } else { format!("{comm} {pid}") }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{Comm, Pid};

    use super::*;

    fn tracer(pid: u32, is_memtrace: bool) -> OtherTracer {
        OtherTracer { pid: Pid(pid), comm: Comm::from("bpftrace"), is_memtrace }
    }

    #[test]
    fn tracers_are_counted_and_named() {
        assert_eq!(note(&OtherTracers::default()), None);
        let one = OtherTracers { processes: vec![tracer(7, true)], ..OtherTracers::default() };
        let text = "1 other tracer has probes in the same functions, so that calls cost more: memtrace 7";
        assert_eq!(note(&one).as_deref(), Some(text));
        let processes = (1..=10).map(|pid| tracer(pid, false)).collect();
        let many = OtherTracers { processes, pinned: 1, events: 2, hidden: 3, is_cut: true };
        let text = note(&many).unwrap();
        assert!(text.starts_with("at least 10 other tracers have probes in the same functions, "), "{text}");
        let end = "bpftrace 8, 2 more, 1 BPF link of unknown processes, 2 uprobe events of tracefs, if enabled";
        assert!(text.ends_with(end), "{text}");
        let pinned = OtherTracers { pinned: 2, ..OtherTracers::default() };
        let text = "other probes are in the same functions, so that calls cost more: 2 BPF links without a process";
        assert_eq!(note(&pinned).as_deref(), Some(text));
    }

    #[test]
    fn step_names_the_tracers_that_it_waits_for() {
        let step = |count| {
            let processes = (0..count).map(|pid| tracer(pid, true)).collect();
            attach_step(&OtherTracers { processes, ..OtherTracers::default() })
        };
        assert_eq!(step(0), "attaching probes");
        assert_eq!(step(1), "attaching probes (waits while 1 other tracer changes its probes)");
        assert_eq!(step(2), "attaching probes (waits while 2 other tracers change theirs)");
    }

    #[test]
    fn probes_that_are_not_found_are_stated() {
        let text = note(&OtherTracers { hidden: 2, ..OtherTracers::default() }).unwrap();
        assert!(text.starts_with("2 BPF links of other tracers have probes, "), "{text}");
        let text = note(&OtherTracers { is_cut: true, ..OtherTracers::default() }).unwrap();
        assert!(text.ends_with("the search for them took too long"), "{text}");
    }
}
