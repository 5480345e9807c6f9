//! Sentences that assess the working set of the machine and of a control group.

use memtrace_model::format as number;
use memtrace_model::{Assessment, MachineReclaim, MemcgMemory, PerSecond, ReclaimKind};

/// Returns the assessment of the machine, with the numbers of seconds and the threshold.
pub(super) fn of_machine(machine: &MachineReclaim) -> String {
    let PerSecond { all, scanning, paging } = machine.seconds;
    let scanned = |kind: ReclaimKind| machine.efforts.get(&kind).map_or(0, |effort| effort.scanned);
    let everybody: u64 = machine.efforts.values().map(|effort| effort.scanned).sum();
    // If most pages were scanned by memcg reclaim, cgroups are short of memory, and the machine may have free memory.
    let limit = if scanned(ReclaimKind::Memcg) * 2 > everybody { "the limits of control groups" } else { "memory" };
    let scans = format!("Pages were scanned in {}", seconds(scanning, all));
    let both = format!("{scans}, and 1 MiB or more was read back in {}.", seconds(paging, all));
    let text = match machine.seconds.assessment() {
        Assessment::TooShort => format!(
            "none, since it needs {} seconds of tracing. This trace has {}.",
            PerSecond::LEAST,
            number::counted(all, "second", "seconds")
        ),
        Assessment::Quiet => format!("memory was not short. {scans}."),
        Assessment::Bursts => format!("memory was short at times. {scans}."),
        Assessment::Near => format!("the working set is about as large as {limit}. {both}"),
        Assessment::Beyond => format!("the working set is larger than {limit}. {both}"),
    };
    format!("Assessment: {text}")
}

/// Returns the assessment of a control group; `None` if it was observed for too few seconds, or was quiet.
pub(super) fn of_group(name: &str, memory: &MemcgMemory) -> Option<String> {
    let PerSecond { all, scanning, paging } = memory.seconds;
    let limit =
        memory.effective_limit().map_or_else(|| String::from("its limit"), |limit| format!("its limit of {limit}"));
    let scans = format!("Pages were scanned for the limit in {}", seconds(scanning, all));
    let both = format!("{scans}, and 1 MiB or more was read back in {}.", seconds(paging, all));
    let is_scanned = scanning * 2 >= all;
    let text = match memory.seconds.assessment() {
        Assessment::TooShort | Assessment::Quiet => return None,
        Assessment::Bursts => format!("it reached {limit} at times. {scans}."),
        Assessment::Near if memory.refaults.is_none() => {
            format!("its working set is as large as {limit} or larger; refaults are not reported. {scans}.")
        }
        Assessment::Near => format!("its working set is about as large as {limit}. {both}"),
        Assessment::Beyond if is_scanned => format!("its working set is larger than {limit}. {both}"),
        Assessment::Beyond => {
            format!("memory of the machine, or of a group above, is short, rather than its own limit. {both}")
        }
    };
    Some(format!("Assessment of {name}: {text}"))
}

/// Returns a phrase that compares `some` seconds with half of `all` seconds, the threshold of assessments.
fn seconds(some: u64, all: u64) -> String {
    match some {
        0 => format!("none of {all} seconds"),
        some if some == all => format!("all {all} seconds"),
        some if some * 2 >= all => format!("{some} of {all} seconds (half or more)"),
        some => format!("{some} of {all} seconds (less than half)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_compared_with_half() {
        assert_eq!(seconds(10, 10), "all 10 seconds");
        assert_eq!(seconds(5, 10), "5 of 10 seconds (half or more)");
        assert_eq!(seconds(4, 10), "4 of 10 seconds (less than half)");
        assert_eq!(seconds(0, 10), "none of 10 seconds");
    }
}
