//! Reader of `/proc/vmstat`: the machine's memory management counters.

use std::io;

use memtrace_model::VmCounters;

use crate::procfs::kernel_files;

/// Reads the counters. Counters that the kernel lacks are 0.
///
/// # Errors
///
/// Errors of the read.
pub fn vm_counters() -> io::Result<VmCounters> {
    kernel_files::read_to_string("/proc/vmstat").map(|text| parse(&text))
}

/// Returns true if there is a swap device or file. `/proc/swaps` has a line for each of them after its head.
#[must_use]
pub fn has_swap() -> bool {
    kernel_files::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}

/// Parses lines of `NAME NUMBER` (mm/vmstat.c, `vmstat_text`).
fn parse(text: &str) -> VmCounters {
    let mut counters = VmCounters::default();
    for line in text.lines() {
        let Some((name, number)) = line.split_once(' ') else { continue };
        let counter = match name {
            "pgscan_anon" | "pgscan_file" => &mut counters.scanned,
            // These counters leave out reclaim at the limit of a cgroup (`do_try_to_free_pages`, mm/vmscan.c). On newer
            // kernels, `pgscan_direct` includes it.
            name if name == "pgscan_kswapd" || name.starts_with("allocstall_") => &mut counters.machine_reclaim,
            "pgsteal_anon" | "pgsteal_file" => &mut counters.reclaimed,
            "workingset_refault_anon" | "workingset_refault_file" => &mut counters.refaults,
            "pswpin" => &mut counters.swapped_in,
            "pswpout" => &mut counters.swapped_out,
            "pgmajfault" => &mut counters.major_faults,
            "oom_kill" => &mut counters.oom_kills,
            // `balance_pgdat` (mm/vmscan.c) counts each wakeup of kswapd that finds too little free memory.
            "pageoutrun" => &mut counters.kswapd_runs,
            _ => continue,
        };
        *counter += number.trim().parse().unwrap_or(0);
    }
    counters
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn counters_are_parsed_by_name() {
        let text = "nr_free_pages 5\npgscan_kswapd 99\npgscan_anon 3\npgscan_file 4\npgsteal_anon 1\npgsteal_file 2\n\
                    workingset_refault_anon 10\nworkingset_refault_file 20\npswpin 6\npswpout 7\npgmajfault 8\n\
                    oom_kill 9\npageoutrun 11\nallocstall_normal 1\nallocstall_movable 2\npgscan_direct 50\nhalf\npgscan_file x\n";
        let expected = VmCounters {
            scanned: 7,
            machine_reclaim: 102,
            reclaimed: 3,
            refaults: 30,
            swapped_in: 6,
            swapped_out: 7,
            major_faults: 8,
            oom_kills: 9,
            kswapd_runs: 11,
        };
        assert_eq!(parse(text), expected);
    }

    #[test]
    fn the_running_kernel_has_the_counters() {
        assert!(fs::read_to_string("/proc/vmstat").unwrap().lines().any(|line| line.starts_with("pgscan_file ")));
        assert!(vm_counters().is_ok());
    }
}
