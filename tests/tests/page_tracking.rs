//! Tests of the methods of `memtrace wss` that track single pages, against the pages that victims touch. If the kernel
//! lacks a method, memtrace must refuse the method.

use std::fs;
use std::path::Path;
use std::process::Command;

use memtrace_tests::process::{self, Process};
use memtrace_tests::working_set::{
    EXACT_CASES, FAMILY, HUGE, Memory, OTHERS, PAGE, PAGES, Reading, assert_bounds_of_huge_pages,
    assert_pages_count_once, measure, select_family, start, start_with, wss,
};
use memtrace_tests::{MemoryCgroup, Scratch, Trace, Victim, recording_report, victim};

/// Returns true if the kernel has the idle page bitmap.
fn has_idle_bitmap() -> bool {
    Path::new("/sys/kernel/mm/page_idle/bitmap").exists()
}

/// Returns true if the kernel has soft-dirty bits.
fn has_soft_dirty() -> bool {
    // A kernel with soft-dirty bits shows the flag `sd` of mappings.
    fs::read_to_string("/proc/self/smaps").is_ok_and(|text| {
        let flags = text.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
        flags.into_iter().any(|flags| flags.split_whitespace().any(|flag| flag == "sd"))
    })
}

/// Asserts that a method is refused with exit code 5, and that the error names the kernel option.
fn assert_refused(method: &str, option: &str) {
    let pid = std::process::id().to_string();
    let output = wss(&["--pid", &pid, "--method", method, "10ms"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(text.contains(option) && text.contains("--method referenced"), "{text}");
    assert!(output.stdout.is_empty());
}

fn reading(victim: &Victim, method: &str) -> Reading {
    let mut readings = measure(&["--pid", &victim.pid().to_string(), "--method", method, "1s"]);
    let reading = readings.remove(0);
    assert_eq!(reading.method, method);
    reading
}

fn measured(victim: &Victim, method: &str, kind: &str) -> Memory {
    reading(victim, method).processes[0].kinds[kind]
}

#[test]
fn idle_pages_are_those_that_were_not_touched() {
    if !has_idle_bitmap() {
        return assert_refused("idle", "CONFIG_IDLE_PAGE_TRACKING");
    }
    for (kind, touched, pattern) in EXACT_CASES {
        let victim = start(kind, touched, pattern);
        let memory = measured(&victim, "idle", kind);
        let by_referenced = measured(&victim, "referenced", kind);
        assert_eq!(memory.rss_bytes, PAGES * PAGE, "{kind} {pattern}");
        assert_eq!(memory.referenced_bytes, touched * PAGE, "{kind} {pattern}");
        assert_eq!(memory.least_referenced_bytes, touched * PAGE, "{kind} {pattern}");
        assert_eq!(by_referenced.referenced_bytes, touched * PAGE, "{kind} {pattern}");
        victim.finish();
    }
}

#[test]
fn idle_pages_of_files_are_those_that_no_process_touches() {
    if !has_idle_bitmap() {
        return assert_refused("idle", "CONFIG_IDLE_PAGE_TRACKING");
    }
    let scratch = Scratch::new();
    let path = scratch.path("mapped").to_string_lossy().into_owned();
    let victim = start_with(&["file", &PAGES.to_string(), "2560", "read", &path]);
    let memory = measured(&victim, "idle", if on_tmpfs(&path) { "shmem" } else { "file" });
    let others = (memory.referenced_bytes / PAGE).checked_sub(2560);
    assert!(others.is_some_and(|others| others <= 2 * OTHERS + HUGE / PAGE), "{memory:?}");
    victim.finish();
}

fn on_tmpfs(path: &str) -> bool {
    let output = Command::new("stat").args(["-f", "-c", "%T", path]).output().expect("stat runs");
    output.stdout.starts_with(b"tmpfs")
}

#[test]
fn touched_pages_of_forked_processes_count_once() {
    let methods = [("idle", has_idle_bitmap(), "read"), ("written", has_soft_dirty(), "write")];
    for (method, _, pattern) in methods.into_iter().filter(|(_, is_supported, _)| *is_supported) {
        // Written pages of the parent are copies, so the children keep their own.
        let victim = start("forked", 2560, pattern);
        let family = select_family(&victim);
        let words: Vec<_> = family.iter().map(String::as_str).chain(["--method", method, "1s"]).collect();
        let reading = &measure(&words)[0];
        match pattern {
            "read" => assert_pages_count_once(reading, 2560),
            _ => {
                let distinct = reading.distinct.as_ref().expect("the page frames are known");
                let anonymous = distinct.kinds["anonymous"];
                let within = |bytes: u64, pages: u64| (pages..pages + FAMILY * OTHERS).contains(&(bytes / PAGE));
                assert!(within(anonymous.rss_bytes, PAGES + 2560), "{distinct:?}");
                assert!(within(anonymous.referenced_bytes, 2560), "{distinct:?}");
            }
        }
        victim.finish();
    }
}

#[test]
fn written_pages_do_not_contain_pages_that_were_only_read() {
    if !has_soft_dirty() {
        return assert_refused("written", "CONFIG_MEM_SOFT_DIRTY");
    }
    for (kind, touched, pattern, expected) in [
        ("heap", 2560, "write", 2560),
        ("heap", 25_600, "read", 0),
        ("shmem", 25_600, "write", 25_600),
        ("shmem", 2560, "read", 0),
    ] {
        let victim = start(kind, touched, pattern);
        let memory = measured(&victim, "written", kind);
        assert_eq!(memory.referenced_bytes, expected * PAGE, "{kind} {pattern}");
        assert_eq!(memory.least_referenced_bytes, expected * PAGE, "{kind} {pattern}");
        victim.finish();
    }
}

#[test]
fn huge_pages_have_two_bounds_by_each_method() {
    let methods = [("idle", has_idle_bitmap(), "read"), ("written", has_soft_dirty(), "write")];
    for (method, _, pattern) in methods.into_iter().filter(|(_, is_supported, _)| *is_supported) {
        // The victim touches the first small page of each of eight huge pages.
        let victim = start_with(&["huge", &PAGES.to_string(), "8", "sparse", "", pattern]);
        let memory = measured(&victim, method, "anonymous");
        assert!(memory.huge_bytes >= 8 * HUGE, "{method}: {memory:?}");
        assert_bounds_of_huge_pages(&memory, 8);
        victim.finish();
    }
}

#[test]
fn locked_pages_are_counted_by_the_idle_method() {
    if !has_idle_bitmap() {
        return assert_refused("idle", "CONFIG_IDLE_PAGE_TRACKING");
    }
    let victim = start_with(&["locked", &PAGES.to_string(), "2560", "read"]);
    let process = reading(&victim, "idle").processes.remove(0);
    assert_eq!(process.locked_bytes, Some(PAGES * PAGE));
    let others = (process.kinds["anonymous"].referenced_bytes / PAGE).checked_sub(2560);
    assert!(others.is_some_and(|others| others <= OTHERS), "{process:?}");
    victim.finish();
}

/// Number of blocks of the archive, and of the cache.
const BLOCKS: u64 = 20;
const BLOCK_SIZE: u64 = 1 << 20;

/// Traces a victim with a hot cache and a cold archive. Returns the live, hot and cold bytes of the cache and of the
/// archive. If the kernel has neither method, asserts that the trace is refused, and returns `None`.
///
/// With `folder`, the blocks are mappings of files in this directory.
fn cache_and_archive(events: &str, folder: Option<&str>) -> Option<[[u64; 3]; 2]> {
    let words = [BLOCKS.to_string(), BLOCK_SIZE.to_string()];
    let words: Vec<_> = words.iter().map(String::as_str).chain(folder).collect();
    let mut victim = victim::start_with("cold_archive", &words);
    let scratch = Scratch::new();
    let recording = scratch.path("run.memtrace");
    let trace =
        Trace::victim(&victim).options(&["--events", events, "--cold-after", "1s", "--record"]).option(&recording);
    if !has_idle_bitmap() && !has_soft_dirty() {
        let outcome = trace.run();
        assert_eq!(outcome.code, Some(5), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("CONFIG_IDLE_PAGE_TRACKING"), "{}", outcome.stderr);
        victim.process().write_line("");
        assert!(victim.process().read_line().contains("ready"));
        victim.finish();
        return None;
    }
    let tracer = trace.start();
    victim.process().write_line("");
    assert!(victim.process().read_line().contains("ready"));
    let outcome = tracer.stop();
    victim.finish();
    let report = outcome.report();
    assert_eq!(report.metric, "cold-bytes");
    let recorded = recording_report::read(&recording, &[]);
    assert_eq!(
        (&recorded.metric, &recorded.touches, recorded.totals),
        (&report.metric, &report.touches, report.totals)
    );
    let of = |function| {
        let stacks = report.stacks.iter().filter(|stack| stack.names().contains(&function));
        stacks.fold([0; 3], |[live, hot, cold], stack| {
            let [more_hot, more_cold] = [stack.content.totals.hot_bytes, stack.content.totals.cold_bytes]
                .map(|bytes| bytes.expect("touches are measured"));
            [live + stack.totals.live_bytes, hot + more_hot, cold + more_cold]
        })
    };
    Some([of("cache_block"), of("archive_block")])
}

#[test]
fn cold_bytes_are_those_of_the_archive() {
    let Some([cache, archive]) = cache_and_archive("heap", None) else { return };
    let all = BLOCKS * BLOCK_SIZE;
    // Each block begins on the page of its header, and ends before the page of the next block.
    assert_eq!((cache, archive), ([all, all, 0], [all, 0, all]));
}

#[test]
fn cold_bytes_of_mappings_are_those_of_the_archive() {
    let Some([cache, archive]) = cache_and_archive("map", None) else { return };
    // malloc maps each block, and one more page for its header.
    let all = BLOCKS * (BLOCK_SIZE + PAGE);
    assert_eq!((cache, archive), ([all, all, 0], [all, 0, all]));
}

#[test]
fn cold_bytes_of_mapped_files_are_those_of_the_archive() {
    let scratch = Scratch::new();
    let folder = scratch.path("").to_string_lossy().into_owned();
    let Some([cache, archive]) = cache_and_archive("map", Some(&folder)) else { return };
    let all = BLOCKS * BLOCK_SIZE;
    assert_eq!((cache, archive), ([all, all, 0], [all, 0, all]));
}

/// File with the number of DAMON's monitors, if the kernel has DAMON in sysfs.
const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";

/// Returns true if the kernel has DAMON for virtual addresses.
fn has_damon() -> bool {
    fs::write(KDAMONDS, "1").expect("root can configure DAMON");
    let folder = Path::new(KDAMONDS).with_file_name("0");
    fs::write(folder.join("contexts/nr_contexts"), "1").expect("a monitor has a context");
    let operations = fs::read_to_string(folder.join("contexts/0/avail_operations")).expect("a context has operations");
    fs::write(KDAMONDS, "0").expect("the monitor can be removed");
    operations.lines().any(|line| line == "vaddr")
}

/// Asserts that a measurement does not change DAMON monitors of other programs. If the kernel has no DAMON for virtual
/// addresses, memtrace names this reason instead.
fn assert_damon_is_left_alone(victim: &Victim, monitors: &str) {
    let output = wss(&["--pid", &victim.pid().to_string(), "--method", "damon", "100ms"]);
    let text = String::from_utf8_lossy(&output.stderr);
    let (code, reason) = match output.status.code() {
        Some(5) => (5, "CONFIG_DAMON_VADDR"),
        _ => (8, "another program uses DAMON"),
    };
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(reason), "{text}");
    assert_eq!(fs::read_to_string(KDAMONDS).expect("the kernel has DAMON"), monitors);
}

#[test]
fn damon_estimates_the_touched_pages() {
    let victim = start("anonymous", 10_240, "read");
    match fs::read_to_string(KDAMONDS) {
        // Another program of the machine may use DAMON.
        Ok(monitors) if monitors.trim() != "0" => {
            assert_damon_is_left_alone(&victim, &monitors);
            return victim.finish();
        }
        Ok(_) if has_damon() => {}
        _ => {
            assert_refused("damon", "CONFIG_DAMON");
            return victim.finish();
        }
    }
    let memory = measured(&victim, "damon", "anonymous");
    // DAMON estimates: a region counts as a whole.
    let touched = memory.referenced_bytes / PAGE;
    println!("{touched} pages are estimated, and 10,240 are touched");
    assert!((5_120..20_480).contains(&touched), "{memory:?}");
    assert_eq!(fs::read_to_string(KDAMONDS).expect("the kernel has DAMON").trim(), "0");
    fs::write(KDAMONDS, "1").expect("root can configure DAMON");
    assert_damon_is_left_alone(&victim, "1\n");
    fs::write(KDAMONDS, "0").expect("the monitor can be removed");
    victim.finish();
}

#[test]
fn page_cache_without_a_mapping_is_counted_by_its_control_group() {
    const FILE: u64 = 32 << 20;
    if !has_idle_bitmap() {
        return assert_refused("idle", "CONFIG_IDLE_PAGE_TRACKING");
    }
    let scratch = Scratch::new();
    let group = MemoryCgroup::with_memory(1 << 30);
    let file = scratch.path("cached").to_string_lossy().into_owned();
    let script = format!("head -c {FILE} /dev/zero >{file}; read _; while cat {file} >/dev/null; do :; done");
    let [program, arguments @ ..] = group.enter();
    let mut command = Command::new(program);
    let mut reader = Process::start(command.args(arguments).args(["sh", "-c", &script]));
    process::wait_for_file(
        reader.pid(),
        "wchan",
        |_| fs::metadata(&file).is_ok_and(|file| file.len() == FILE),
        "write",
    );
    let path = group.path().to_string_lossy().into_owned();
    let cache = || measure(&["--cgroup", &path, "--method", "idle", "2s"])[0].unmapped_cache.expect("a memory cgroup");
    // No process reads the file.
    let idle = cache();
    assert!((FILE..FILE + (4 << 20)).contains(&idle.bytes), "{idle:?}");
    assert!(idle.bytes - idle.referenced_bytes >= FILE, "{idle:?}");
    reader.write_line("");
    let read = cache();
    assert!(read.referenced_bytes >= FILE, "{read:?}");
    reader.signal(libc::SIGKILL);
    reader.wait();
}
