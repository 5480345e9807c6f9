use memtrace_model::{
    CgroupEvents, CgroupLimit, CgroupMemory, KernelMemory, MachineMemory, MemoryCounters, Pid, ProcessUse, Returnable,
    SelectedCgroup, UnreadProcess, UnreadProcesses, UnreadReason,
};

use super::*;

const MIB: u64 = 1 << 20;

const fn mib(number: u64) -> Bytes {
    Bytes(number * MIB)
}

fn process(pid: u32, comm: &str, pss: u64) -> ProcessUse {
    let sizes = ProcessSizes {
        pss: mib(pss),
        anonymous: mib(pss / 2),
        file: mib(pss / 4),
        private: mib(pss / 8),
        resident: mib(pss * 3),
        returnable: Returnable { heap: mib(1), lazy_free: mib(2), clean_file: mib(3) },
        ..ProcessSizes::default()
    };
    ProcessUse { pid: Pid(pid), comm: comm.into(), sizes, is_heap_known: pid == 1 }
}

/// Returns the memory of three processes and their control group.
fn page() -> SelectionExplanation {
    let counters = MemoryCounters {
        anonymous: Some(mib(100)),
        file: Some(mib(300)),
        shmem: Some(mib(200)),
        mapped: Some(mib(50)),
        dirty: Some(mib(0)),
        swap: Some(mib(0)),
        kernel: KernelMemory {
            total: Some(mib(150)),
            slab_reclaimable: Some(mib(90)),
            slab_unreclaimable: Some(mib(10)),
            sockets: Some(mib(20)),
            ..KernelMemory::default()
        },
    };
    let memory = CgroupMemory {
        path: "/system.slice/web.service".into(),
        current: mib(550),
        peak: Some(mib(600)),
        limit: Some(CgroupLimit { path: "/system.slice/web.service".into(), most: mib(600), current: mib(550) }),
        counters,
        events: CgroupEvents { high: Some(0), max: Some(7), oom: Some(2), oom_kill: Some(1) },
        ..CgroupMemory::default()
    };
    SelectionExplanation {
        name: "the processes of control group system.slice/web.service".into(),
        processes: vec![process(1, "web", 64), process(2, "web", 32), process(3, "log", 16)],
        cgroups: vec![SelectedCgroup { memory, given: Some("system.slice/web.service".into()), is_whole: true }],
        ..SelectionExplanation::default()
    }
}

fn text(page: &SelectionExplanation, top: usize) -> String {
    let mut bytes = Vec::new();
    write(page, PageOptions { top, colour: false, columns: 100 }, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Returns the text with single spaces, in one line.
fn joined(page: &SelectionExplanation) -> String {
    text(page, 20).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn processes_beyond_the_list_are_added_up() {
    let all = text(&page(), 1);
    let table: Vec<_> = all.lines().skip(4).take(4).collect();
    assert_eq!(
        table,
        [
            "         PSS  SHARE    PRIVATE         RSS  SWAPPED OUT  RETURNABLE  PID  COMMAND",
            "   64.00 MiB  57.1%   8.00 MiB  192.00 MiB          0 B    6.00 MiB    1  web",
            "   48.00 MiB  42.9%   6.00 MiB  144.00 MiB          0 B   12.00 MiB       2 other processes",
            "  112.00 MiB   100%  14.00 MiB  336.00 MiB          0 B   18.00 MiB       all processes",
        ],
        "{all}"
    );
    let title = "memtrace: the processes of control group system.slice/web.service, 3 processes\n";
    assert!(all.starts_with(title), "{all}");
    assert!(text(&page(), 3).contains("  log\n"), "{all}");
    assert!(!text(&page(), 3).contains("other process"), "{all}");
}

#[test]
fn memory_of_a_control_group_without_a_mapping_is_stated() {
    let all = joined(&page());
    for part in [
        "memory 550.00 MiB, 91.7% of its limit of 600.00 MiB; at most it was 600.00 MiB",
        "page cache 100.00 MiB of files on disk, 100.00 MiB of it unmodified",
        "no process maps about 200.00 MiB of it, at least 150.00 MiB, at most 200.00 MiB",
        "not mapped 250.00 MiB of the page cache",
        "kernel memory 170.00 MiB: slab 100.00 MiB (90.00 MiB reclaimable), sockets 20.00 MiB",
        "1 process killed by the OOM killer (oom_kill), 2 allocations without reclaimable memory (oom), 7 attempts",
        "About 200.00 MiB (36.4%) of the control group /system.slice/web.service is shared memory that no process maps",
        "The OOM killer has killed 1 process of the control group /system.slice/web.service",
        "sudo memtrace record --cgroup system.slice/web.service --wait -o oom.memtrace - To see the stalls",
        "170.00 MiB (30.9%) of the control group /system.slice/web.service is memory of the kernel",
        "The largest part is 90.00 MiB of reclaimable slab",
        "57.1% of the PSS (64.00 MiB) is that of web (1). For the parts of its RSS, run: sudo memtrace explain --pid 1",
        "18.00 MiB: about 3.00 MiB of free heap memory that malloc_trim(3) returns (known of 1 of 3 processes)",
    ] {
        assert!(all.contains(part), "{part}\n{all}");
    }
}

#[test]
fn a_part_of_a_control_group_has_bounds_without_an_estimate() {
    let mut page = page();
    page.cgroups[0].is_whole = false;
    let all = joined(&page);
    assert!(all.contains("no process maps between 150.00 MiB and 200.00 MiB of it"), "{all}");
    assert!(all.contains("At least 150.00 MiB"), "{all}");
    assert!(all.contains("processes the group may have other processes too"), "{all}");
}

#[test]
fn unread_processes_are_named_first() {
    let mut unread = UnreadProcesses::default();
    let process = |pid, reason| UnreadProcess { pid: Pid(pid), comm: "db".into(), rss: Some(mib(7)), reason };
    unread.add(process(8, UnreadReason::Exited));
    unread.add(process(9, UnreadReason::SharesMemory));
    (20..32).for_each(|pid| unread.add(process(pid, UnreadReason::NotPermitted)));
    let all = selection_advice::conclusions(&SelectionExplanation { unread, ..page() });
    let said: Vec<_> = all.iter().take(4).map(|advice| advice.text.as_str()).collect();
    assert_eq!(said[0], "Not read: 1 process (ended in the meantime): db (8, RSS 7.00 MiB).");
    assert!(said[1].starts_with("Not read: 1 process (the memory is that of the parent"), "{said:?}");
    assert!(said[2].starts_with("Not read: 12 processes (no permission"), "{said:?}");
    assert!(said[2].ends_with("db (29, RSS 7.00 MiB), 2 more."), "{said:?}");
    assert_eq!(said[3], "The sums lack processes with an RSS of 84.00 MiB in all.");
}

#[test]
fn the_machine_is_described_without_processes() {
    let machine = MachineMemory {
        total: mib(8192),
        free: mib(1024),
        available: mib(2048),
        hugetlb: Some(mib(512)),
        ..MachineMemory::default()
    };
    let page = SelectionExplanation { machine: Some(machine), ..SelectionExplanation::default() };
    let all = joined(&page);
    assert!(all.contains("Machine memory 8.00 GiB, 1.00 GiB of it unused; programs can get 2.00 GiB"), "{all}");
    assert!(all.contains("huge pages 512.00 MiB in the kernel's pool (hugetlb)"), "{all}");
    assert!(!all.contains("Parts of the PSS"), "{all}");
}

#[test]
fn huge_pages_of_the_pool_are_outside_the_pss() {
    let mut page = page();
    assert!(!joined(&page).contains("hugetlb"));
    page.processes.iter_mut().for_each(|process| process.sizes.hugetlb = mib(64));
    let all = joined(&page);
    assert!(all.contains("huge pages 192.00 MiB of the kernel's pool (hugetlb), not in the PSS"), "{all}");
}

#[test]
fn version_1_says_which_kernel_memory_it_does_not_count() {
    let mut page = page();
    let sockets = Some(mib(20));
    page.cgroups[0].memory.counters.kernel = KernelMemory { total: Some(mib(150)), sockets, ..KernelMemory::default() };
    let all = joined(&page);
    assert!(all.contains("kernel memory 170.00 MiB: sockets 20.00 MiB; version 1 does not count"), "{all}");
    let part = "20.00 MiB of it is buffers of sockets (`ss -m`); version 1 of cgroups does not count the other parts.";
    assert!(all.contains(part) && !all.contains("The largest part"), "{all}");
    page.cgroups[0].memory.counters.kernel.sockets = Some(mib(0));
    let all = joined(&page);
    assert!(all.contains("of no process. Version 1 of cgroups does not count its parts."), "{all}");
    assert!(!all.contains("ss -m"), "{all}");
}

#[test]
fn largest_part_of_kernel_memory_is_not_empty() {
    let mut page = page();
    let none = Some(mib(0));
    page.cgroups[0].memory.counters.kernel =
        KernelMemory { total: Some(mib(150)), slab_unreclaimable: none, sockets: none, ..KernelMemory::default() };
    let all = joined(&page);
    assert!(all.contains("of no process. The kernel does not count its parts."), "{all}");
}

#[test]
fn sum_of_the_rss_with_shared_pages_is_explained() {
    let all = joined(&page());
    let text = "The sum of the RSS, 336.00 MiB, counts a shared page once for each process. Together the processes use \
        112.00 MiB (PSS): 14.00 MiB of it is private to one process, and the rest is shared.";
    assert!(all.contains(text), "{all}");
    let mut alone = page();
    alone.processes.truncate(1);
    assert!(!joined(&alone).contains("The sum of the RSS,"), "one process has no sum");
    let mut unshared = page();
    unshared.processes.iter_mut().for_each(|process| process.sizes.resident = process.sizes.pss);
    assert!(!joined(&unshared).contains("The sum of the RSS,"), "no page is shared");
}

#[test]
fn names_do_not_control_the_terminal() {
    let mut page = page();
    page.processes[0].comm = "a\x1b[31m\nb".into();
    page.cgroups[0].memory.path = "/x\ny\x1b".into();
    page.unknown_cgroups.push("z\r\n".into());
    let all = text(&page, 20);
    assert!(all.chars().all(|letter| letter == '\n' || !letter.is_control()), "{all}");
    assert!(all.contains("a\u{fffd}[31m b"), "{all}");
}

#[test]
fn json_is_read_as_it_was_written() {
    let mut bytes = Vec::new();
    crate::write_selection_json(&page(), &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let read: memtrace_json::SelectionExplanation<'static> = crate::json_lines::assert_round_trip(&text);
    assert_eq!((read.total.processes, read.total.sizes.pss_bytes), (3, 112 * MIB));
    let group = &read.cgroups[0];
    assert_eq!((group.unmapped_shmem_estimate_bytes, group.cgroup.events.oom_kill), (Some(200 * MIB), Some(1)));
    assert_eq!(group.cgroup.counters.unmapped_bytes, Some(250 * MIB));
}
