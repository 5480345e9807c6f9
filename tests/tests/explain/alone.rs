//! Tests that use the whole machine: PSS depends on the other processes that map the C library.

use memtrace_tests::memory_cgroup::{MemoryCgroup, Version};
use memtrace_tests::poll;
use memtrace_tests::process::children;

use super::*;

#[test]
fn mapping_kinds_add_up_to_smaps() {
    let scratch = Scratch::new();
    let file = file_of_16_mib(&scratch);
    let victim = victim::start_with("ranges", &[file.to_str().expect("the path is UTF-8")]);
    victim.wait_until_reading_stdin();
    let page = explain::explain_pid(victim.pid());
    let smaps = fs::read_to_string(format!("/proc/{}/smaps", victim.pid())).expect("the victim runs");
    let sum = |of: fn(&Sizes) -> u64| page.kinds.iter().map(|kind| of(&kind.sizes)).sum::<u64>();
    assert_eq!(sum(|usage| usage.reserved_bytes), sum_of(&smaps, &["Size"]));
    assert_eq!(sum(|usage| usage.resident_bytes), sum_of(&smaps, &["Rss"]));
    assert_eq!(sum(|usage| usage.swap_bytes), sum_of(&smaps, &["Swap"]));
    // The victim requests 8 MiB of huge pages; fragmentation decides how many it gets.
    let huge = sum_of(&smaps, &["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"]);
    assert_eq!(sum(|usage| usage.huge_bytes), huge);
    // PSS changes when other processes map or unmap a shared library.
    assert!(page.pss_bytes.abs_diff(sum_of(&smaps, &["Pss"])) < MIB / 8, "{page:#?}");
    let kind = |name: &str| page.kinds.iter().find(|kind| kind.kind == name).map(|kind| kind.sizes.resident_bytes);
    assert_eq!(kind("shmem"), Some(14 * MIB));
    assert_eq!(kind("stack"), Some(page.main_stack.resident_bytes));
    assert_eq!(kind("file"), Some(page.files.iter().map(|file| file.sizes.resident_bytes).sum()));
    victim.finish();
}

/// Number of child processes of a preforking victim.
const CHILDREN: u64 = 3;

/// Asserts that the sizes of a preforking victim with its child processes equal the sizes that the kernel reports.
fn assert_is_family(page: &SelectionExplanation, pids: &[u32]) {
    let sums = &page.total.sizes;
    let kernels = |name: &str| pids.iter().map(|pid| rollup(*pid, name)).sum::<u64>();
    let slack = MIB / 8 * pids.len() as u64;
    assert_eq!(page.total.processes, pids.len() as u64, "{page:#?}");
    for (ours, name) in [
        (sums.pss_bytes, "Pss"),
        (sums.pss_anonymous_bytes, "Pss_Anon"),
        (sums.pss_file_bytes, "Pss_File"),
        (sums.pss_shmem_bytes, "Pss_Shmem"),
        (sums.rss_bytes, "Rss"),
        (sums.swap_bytes, "SwapPss"),
    ] {
        // The PSS changes when other processes map or unmap a shared library.
        let kernels = kernels(name);
        assert!(ours.abs_diff(kernels) < slack, "{name} {kernels} {page:#?}");
    }
    // Each shared page counts once.
    let anonymous = 32 * MIB + CHILDREN * 12 * MIB;
    assert!((anonymous..anonymous + slack + 4 * MIB).contains(&sums.pss_anonymous_bytes), "{page:#?}");
    assert!(sums.pss_shmem_bytes.abs_diff(16 * MIB) < MIB / 8, "{page:#?}");
    // The kernel frees pages in batches for each processor.
    let freed = CHILDREN * 8 * MIB;
    assert!((freed - 2 * MIB..=freed).contains(&sums.lazy_free_bytes), "{page:#?}");
    assert!(sums.returnable_bytes >= sums.lazy_free_bytes && sums.returnable_bytes < sums.pss_bytes, "{page:#?}");
    assert!(page.processes.windows(2).all(|pair| pair[0].sizes.pss_bytes >= pair[1].sizes.pss_bytes), "{page:#?}");
    let mut found: Vec<_> = page.processes.iter().map(|process| process.pid).collect();
    found.sort_unstable();
    assert_eq!(found, pids);
    assert!(page.unread.named.is_empty() && page.others.processes == 0, "{page:#?}");
}

#[test]
fn shared_pages_of_a_family_count_once() {
    let scratch = Scratch::new();
    let program = scratch.copy(victim::path("prefork"), "explained-srv");
    let victim = Victim::start(Command::new(program).arg(CHILDREN.to_string()));
    victim.wait_until_reading_stdin();
    let pid = victim.pid().to_string();
    let mut pids = children(victim.pid());
    pids.push(victim.pid());
    pids.sort_unstable();
    assert_is_family(&explain::explain_selection(&["--pid", &pid, "--children"]), &pids);
    assert_is_family(&explain::explain_selection(&["--comm", "explained-srv"]), &pids);
    let named: Vec<_> = pids.iter().map(|pid| format!("--pid={pid}")).collect();
    let named: Vec<_> = named.iter().map(String::as_str).collect();
    assert_is_family(&explain::explain_selection(&named), &pids);
    let output = explain(["--pid", &pid, "--children", "--top", "1"]);
    let text = String::from_utf8(output.stdout).expect("the output is UTF-8");
    assert!(text.contains(&format!("process {pid} with its child processes, 4 processes")), "{text}");
    assert!(text.contains("3 other processes\n") && text.contains("all processes\n"), "{text}");
    victim.finish();
}

#[test]
fn memory_of_a_sharer_counts_once() {
    let victim = victim::start_with("prefork", &["1", "sharer"]);
    victim.wait_until_reading_stdin();
    let page = explain::explain_selection(&["--pid", &victim.pid().to_string(), "--children"]);
    assert_eq!((page.total.processes, page.unread.shares_memory), (2, 1), "{page:#?}");
    let [sharer] = &page.unread.named[..] else { panic!("{page:#?}") };
    assert!(sharer.reason == "shares_memory" && page.unread.rss_bytes == 0, "{page:#?}");
    let anonymous = (32 + 12) * MIB;
    assert!((anonymous..anonymous + 8 * MIB).contains(&page.total.sizes.pss_anonymous_bytes), "{page:#?}");
    victim.finish();
}

#[test]
fn tmpfs_file_of_a_control_group_is_in_no_process() {
    const FILE: u64 = 64 * MIB;
    /// Margin for pages that the kernel charges per processor.
    const MARGIN: u64 = 4 * MIB;
    let group = MemoryCgroup::with_memory(512 * MIB);
    let path = group.path().to_str().expect("the path is UTF-8").to_owned();
    let folder = Scratch::in_memory();
    let file = format!("of={}", folder.path("file").display());
    let [shell, words @ ..] = group.enter();
    run(Command::new(&shell).args(&words).args(["dd", "if=/dev/zero", &file, "bs=1M", "count=64", "status=none"]));
    let mut command = Command::new(&shell);
    let victim = Victim::start(command.args(&words).arg(victim::path("prefork")).arg(CHILDREN.to_string()));
    victim.wait_until_reading_stdin();
    let counter = match group.version() {
        Version::One => "total_shmem",
        Version::Two => "shmem",
    };
    // The kernel adds up the counters of the processors from time to time.
    let is_added_up = |expected: u64| {
        let shmem = group.stat(counter);
        if shmem.abs_diff(expected) < MARGIN { Ok(()) } else { Err(shmem) }
    };
    poll::until(|| is_added_up(FILE + 16 * MIB));

    let page = explain::explain_selection(&["--cgroup", &path]);
    let [selected] = &page.cgroups[..] else { panic!("{page:#?}") };
    let counters = &selected.cgroup.counters;
    assert!(selected.whole && page.unknown_cgroups.is_empty(), "{page:#?}");
    assert_eq!(page.total.processes, CHILDREN + 1);
    assert!(counters.shmem_bytes.expect("it is counted").abs_diff(FILE + 16 * MIB) < MARGIN, "{page:#?}");
    let estimate = selected.unmapped_shmem_estimate_bytes.expect("the group is whole");
    assert!(estimate.abs_diff(FILE) < MARGIN, "{page:#?}");
    assert!(counters.unmapped_shmem_least_bytes <= Some(estimate), "{page:#?}");
    assert!(counters.unmapped_shmem_most_bytes >= Some(estimate), "{page:#?}");
    assert!(selected.cgroup.current_bytes > page.total.sizes.pss_anonymous_bytes + FILE - MARGIN, "{page:#?}");
    assert_eq!(selected.cgroup.limit.as_ref().map(|limit| limit.limit_bytes), Some(512 * MIB));
    assert_eq!(selected.cgroup.events.oom_kill, Some(group.oom_kills()));
    if group.version() == Version::Two {
        assert!(counters.kernel.bytes > Some(0) && counters.kernel.slab_unreclaimable_bytes.is_some(), "{page:#?}");
    }
    let text = String::from_utf8(explain(["--cgroup", &path]).stdout).expect("the output is UTF-8");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("is shared memory that no process maps"), "{text}");

    // The processes are in one group, so it is shown without --cgroup too.
    let page = explain::explain_selection(&["--pid", &victim.pid().to_string(), "--children"]);
    assert!(page.cgroups.iter().any(|group| !group.whole && group.cgroup.path == selected.cgroup.path), "{page:#?}");
    victim.finish();

    poll::until(|| is_added_up(FILE));
    let page = explain::explain_selection(&["--cgroup", &path]);
    let [empty] = &page.cgroups[..] else { panic!("{page:#?}") };
    assert_eq!(page.total.processes, 0);
    assert!(empty.cgroup.counters.shmem_bytes.expect("it is counted").abs_diff(FILE) < MARGIN, "{page:#?}");
    assert!(empty.unmapped_shmem_estimate_bytes.expect("the group is whole").abs_diff(FILE) < MARGIN, "{page:#?}");
}

#[test]
fn whole_machine_has_its_memory_and_all_processes() {
    let (victim, _) = heaps("0");
    let output = explain(["--all", "--format", "json"]);
    let page: SelectionExplanation = serde_json::from_slice(&output.stdout).expect("memtrace explain writes JSON");
    // Processes of another user namespace can refuse even root.
    let code = if page.unread.named.is_empty() { 0 } else { INCOMPLETE };
    assert_eq!(output.status.code(), Some(code), "{:#?}", page.unread);
    let machine = page.machine.expect("the machine is selected");
    let meminfo = fs::read_to_string("/proc/meminfo").expect("procfs is mounted");
    assert_eq!(machine.total_bytes, sum_of(&meminfo, &["MemTotal"]));
    assert!(machine.counters.anonymous_bytes > Some(0) && machine.counters.kernel.bytes > Some(0), "{machine:#?}");
    assert!(page.total.sizes.pss_bytes < machine.total_bytes, "{:#?}", page.total);
    let process = page.processes.iter().find(|process| process.pid == victim.pid());
    let process = process.unwrap_or_else(|| panic!("{page:#?}"));
    assert!(process.sizes.pss_bytes.abs_diff(rollup(victim.pid(), "Pss")) < MIB / 8, "{process:#?}");
    victim.finish();
}
