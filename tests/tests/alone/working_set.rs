//! Compares the working sets of `memtrace wss` with the pages that victims touch.

use std::iter;
use std::process::Command;
use std::time::{Duration, Instant};

use memtrace_tests::cgroup::Cgroup;
use memtrace_tests::process::Process;
use memtrace_tests::working_set::{
    EXACT_CASES, HUGE, Memory, OTHERS, PAGE, PAGES, Reading, assert_bounds_of_huge_pages, assert_pages_count_once,
    measure, select_family, start, start_with, wss,
};
use memtrace_tests::{MemoryCgroup, Scratch, Victim, tracer, victim};

/// Measures the memory of a kind for 300 ms. In this time, the victim touches all its pages many
/// times.
fn measured(victim: &Victim, kind: &str) -> Memory {
    let readings = measure(&["--pid", &victim.pid().to_string(), "300ms"]);
    assert_eq!((readings.len(), &*readings[0].method, readings[0].requested_s), (1, "referenced", 0.3));
    readings[0].processes[0].kinds[kind]
}

#[test]
fn referenced_bytes_equal_the_touched_pages() {
    for (kind, touched, pattern) in EXACT_CASES {
        let victim = start(kind, touched, pattern);
        let memory = measured(&victim, kind);
        assert_eq!(memory.referenced_bytes, touched * PAGE, "{kind} {pattern}");
        assert_eq!((memory.least_referenced_bytes, memory.rss_bytes), (touched * PAGE, PAGES * PAGE), "{kind}");
        victim.finish();
    }
}

#[test]
fn other_kinds_contain_the_touched_pages() {
    let scratch = Scratch::new();
    let file = scratch.path("mapped").to_string_lossy().into_owned();
    for (kind, path) in [("anonymous", ""), ("file", file.as_str())] {
        let victim = start_with(&[kind, &PAGES.to_string(), "2560", "read", path]);
        let memory = measured(&victim, kind);
        let others = (memory.referenced_bytes / PAGE).checked_sub(2560);
        // The file system may have cached the file in large folios, which count as a whole.
        let most = if kind == "file" { 2 * OTHERS + HUGE / PAGE } else { OTHERS };
        assert!(others.is_some_and(|others| others <= most), "{kind}: {memory:?}");
        victim.finish();
    }
}

#[test]
fn huge_pages_have_two_bounds() {
    // The victim touches one small page of each of the first eight huge pages.
    let victim = start("huge", 8, "sparse");
    let memory = measured(&victim, "anonymous");
    assert!(memory.huge_bytes >= 8 * HUGE, "{memory:?}");
    assert_bounds_of_huge_pages(&memory, 8);
    victim.finish();
}

#[test]
fn estimated_duration_is_that_of_the_touches() {
    // The pages suffice for eight seconds.
    const RATE: u64 = 5000;
    let victim = start("shmem", RATE, "rate");
    let readings = measure(&["--pid", &victim.pid().to_string(), "1s"]);
    let process = &readings[0].processes[0];
    // The victim touches pages at a constant rate, so its touches are a clock.
    let by_victim = (process.kinds["shmem"].referenced_bytes / PAGE) as f64 / RATE as f64;
    println!("estimated {} s, {by_victim} s by the victim's clock", process.estimated_s);
    // Another process may run at either end of the measurement.
    assert!((process.estimated_s / by_victim - 1.0).abs() < 0.1, "{} {by_victim}", process.estimated_s);
    assert!(process.clear_s + process.read_s < process.estimated_s, "{process:?}");
    victim.finish();
}

#[test]
fn profile_grows_while_further_pages_are_touched() {
    let victim = start("shmem", 5000, "rate");
    let readings = measure(&["--pid", &victim.pid().to_string(), "--profile", "6", "--start", "20ms"]);
    let requested: Vec<f64> = readings.iter().map(|reading| reading.requested_s).collect();
    assert_eq!(requested, [0.02, 0.04, 0.08, 0.16, 0.32, 0.64]);
    let touched: Vec<u64> = readings.iter().map(|reading| reading.total.referenced_bytes).collect();
    assert!(touched.windows(2).all(|pair| pair[0] < pair[1]), "{touched:?}");
    victim.finish();
}

#[test]
fn each_measurement_clears_unless_it_is_cumulative() {
    let shmem = |words: &[&str]| -> Vec<u64> {
        let victim = start("shmem", 5000, "rate");
        let pid = victim.pid().to_string();
        let readings = measure(&[&["--pid", &pid, "200ms", "-d", "1500ms"], words].concat());
        victim.finish();
        readings.iter().map(|reading| reading.processes[0].kinds["shmem"].referenced_bytes / PAGE).collect()
    };
    let cumulative = shmem(&["--cumulative"]);
    assert!(cumulative.len() >= 3 && cumulative.windows(2).all(|pair| pair[0] < pair[1]), "{cumulative:?}");
    assert!(cumulative.last().is_some_and(|pages| *pages > 3000), "{cumulative:?}");
    let each = shmem(&["--every", "400ms"]);
    assert!(each.len() >= 2 && each.iter().all(|pages| (500..3000).contains(pages)), "{each:?}");
}

/// Returns the memory of a kind before and after the victim writes to some of its released pages. `words`: options of
/// memtrace.
fn faulted(victim: &mut Victim, kind: &str, words: &[&str]) -> [Memory; 2] {
    let mut command = Command::new(tracer::binary());
    let words = [&["wss", "--method", "faults", "--cumulative", "50ms", "--format", "json"], words].concat();
    let start = Instant::now();
    let mut memtrace = Process::start(command.args(words));
    let pid = victim.pid();
    // Returns the memory, and the start of the reading.
    let mut next = || {
        let reading: Reading = serde_json::from_str(&memtrace.read_line()).expect("a line of JSON");
        assert_eq!((&*reading.method, reading.lost_page_faults), ("faults", Some(0)));
        let process = reading.processes.iter().find(|process| process.pid == pid).expect("it is measured");
        (process.kinds.get(kind).copied().unwrap_or_default(), reading.at_s - process.read_s)
    };
    let (before, _) = next();
    victim.process().write_line("");
    assert_eq!(victim.process().read_line(), "touched");
    // memtrace's clock started after this clock. So a reading with a later time began after the touches.
    let touched = start.elapsed().as_secs_f64();
    let (after, _) =
        iter::repeat_with(&mut next).find(|(_, at)| *at > touched).expect("there are readings until the signal");
    memtrace.signal(libc::SIGINT);
    assert!(memtrace.wait().success());
    let text = memtrace.remaining_stderr();
    assert!(
        text.contains("method faults: traces page faults") && text.contains(" traced; the BPF programs ran"),
        "{text}"
    );
    [before, after]
}

#[test]
fn pages_with_a_fault_are_a_lower_bound() {
    for (kind, touched) in [("heap", 2560), ("heap", 25_600), ("shmem", 2560), ("shmem", 0)] {
        let mut victim = victim::start_with("working_set", &[kind, &PAGES.to_string(), &touched.to_string(), "fault"]);
        let pid = victim.pid().to_string();
        let [before, after] = faulted(&mut victim, kind, &["--pid", &pid]);
        assert_eq!((before.rss_bytes, before.referenced_bytes), (PAGES * PAGE, 0), "{kind}");
        let expected = (touched * PAGE, touched * PAGE);
        assert_eq!((after.referenced_bytes, after.least_referenced_bytes), expected, "{kind} {touched}");
        victim.finish();
    }
    // Touches of mapped pages cause no faults.
    let victim = start("heap", 2560, "write");
    let reading = &measure(&["--pid", &victim.pid().to_string(), "--method", "faults", "300ms"])[0];
    assert_eq!(reading.processes[0].kinds["heap"].referenced_bytes, 0);
    victim.finish();
}

#[test]
fn faults_of_a_cgroup_are_counted() {
    let mut victim = victim::start_with("working_set", &["heap", &PAGES.to_string(), "2560", "fault"]);
    let cgroup = Cgroup::new();
    cgroup.add_process(victim.pid());
    let [_, after] = faulted(&mut victim, "heap", &["--cgroup", &cgroup.path().to_string_lossy()]);
    assert_eq!(after.referenced_bytes, 2560 * PAGE);
    victim.finish();
}

#[test]
fn huge_page_with_a_fault_has_two_bounds() {
    let mut victim = victim::start_with("working_set", &["huge", &PAGES.to_string(), "1", "fault"]);
    let pid = victim.pid().to_string();
    let [_, after] = faulted(&mut victim, "anonymous", &["--pid", &pid]);
    assert_eq!(after.huge_bytes, HUGE, "{after:?}");
    assert_bounds_of_huge_pages(&after, 1);
    victim.finish();
}

#[test]
fn several_processes_are_measured_together() {
    let mut victims = [2560, 5120].map(|touched| (start("shmem", touched, "read"), touched));
    // Pids are not always assigned in ascending order.
    victims.sort_by_key(|(victim, _)| victim.pid());
    let pids = victims.each_ref().map(|(victim, _)| victim.pid().to_string());
    let reading = &measure(&["--pid", &pids[1], "--pid", &pids[0], "300ms"])[0];
    let shmem = |at: usize| reading.processes[at].kinds["shmem"].referenced_bytes / PAGE;
    assert_eq!([shmem(0), shmem(1)], victims.each_ref().map(|(_, touched)| *touched));
    assert_eq!([0, 1].map(|at: usize| reading.processes[at].pid.to_string()), pids);
    let sum: u64 = reading.processes.iter().map(|process| process.total.referenced_bytes).sum();
    assert_eq!(reading.total.referenced_bytes, sum);
    let cgroup = Cgroup::new();
    victims.iter().for_each(|(victim, _)| cgroup.add_process(victim.pid()));
    let reading = &measure(&["--cgroup", &cgroup.path().to_string_lossy(), "300ms"])[0];
    assert_eq!([0, 1].map(|at: usize| reading.processes[at].pid.to_string()), pids);
    assert!(reading.total.pss_bytes > 0);
    for (victim, _) in victims {
        victim.finish();
    }
}

#[test]
fn process_that_ends_is_reported() {
    let victim = start("shmem", 100, "read");
    let pid = victim.pid().to_string();
    let mut command = Command::new(tracer::binary());
    let mut memtrace = Process::start(command.args(["wss", "--pid", &pid, "--cumulative", "100ms"]));
    // The headers of the columns, and the first reading.
    assert!(memtrace.read_line().contains("REF%"));
    assert!(memtrace.read_line().ends_with("working_set"));
    victim.finish();
    // If it missed the end of the process, memtrace would measure forever.
    assert!(memtrace.wait().success());
    let text = memtrace.remaining_stderr();
    assert!(text.contains("all measured processes have ended"), "{text}");
    let output = wss(&["--pid", &pid]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let output = wss(&["--comm", "no-such-program"]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn reclaim_at_the_limit_of_a_cgroup_is_not_that_of_the_machine() {
    const LIMIT: u64 = 32 << 20;
    let scratch = Scratch::new();
    let group = MemoryCgroup::with_memory(LIMIT);
    let pages = (2 * LIMIT / PAGE).to_string();
    let [shell, words @ ..] = group.enter();
    let mut command = Command::new(shell);
    command.args(words).arg(victim::path("working_set")).args(["file", &pages, &pages, "read"]);
    let mut victim = Victim::start(command.arg(scratch.path("mapped")));
    victim.process().write_line("");
    let readings = measure(&["--pid", &victim.pid().to_string(), "--every", "1s", "-d", "6s", "500ms"]);
    victim.finish();
    let last = readings.last().expect("there are readings");
    let [limited] = &last.limits[..] else { panic!("not one limit: {:?}", last.limits) };
    assert!(group.path().ends_with(limited.cgroup.trim_start_matches('/')), "{limited:?}");
    assert_eq!(limited.limit_bytes, LIMIT);
    assert!(limited.seconds_at_limit > 0 && limited.paging_seconds > 0, "{limited:?}");
    assert_eq!(last.machine.paging_seconds, 0, "{:?}", last.machine);
}

#[test]
fn readings_before_the_end_of_the_process_are_written() {
    let scratch = Scratch::new();
    let file = scratch.path("wss.csv");
    let victim = start("shmem", 100, "read");
    let (pid, path) = (victim.pid().to_string(), file.to_string_lossy().into_owned());
    let mut command = Command::new(tracer::binary());
    // The process ends between two measurements.
    let words = ["wss", "--pid", &pid, "100ms", "--every", "2s", "-o", "-", "-o", &path];
    let mut memtrace = Process::start(command.args(words));
    assert!(memtrace.read_line().contains("REF%"));
    assert!(memtrace.read_line().ends_with("working_set"));
    victim.finish();
    assert!(memtrace.wait().success(), "{}", memtrace.remaining_stderr());
    let text = std::fs::read_to_string(&file).expect("the file is written");
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn full_output_is_an_error() {
    let victim = start("shmem", 100, "read");
    let full = std::fs::File::options().write(true).open("/dev/full").expect("the device exists");
    let mut command = Command::new(tracer::binary());
    let output = command.args(["wss", "--pid", &victim.pid().to_string(), "50ms"]).stdout(full).output();
    let output = output.expect("memtrace wss starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot write"), "{text}");
    victim.finish();
}

#[test]
fn paused_process_is_frozen_by_its_own_cgroup() {
    const RATE: u64 = 20_000;
    let victim = start("shmem", RATE, "rate");
    let pid = victim.pid().to_string();
    let pause = || measure(&["--pid", &pid, "--pause", "500ms"]);
    let cgroup = Cgroup::new();
    cgroup.add_process(victim.pid());
    let reading = &pause()[0];
    let process = &reading.processes[0];
    // The victim's clock continues while the victim is frozen, and the victim then catches up.
    let by_victim = (process.kinds["shmem"].referenced_bytes / PAGE) as f64 / RATE as f64;
    let frozen = process.clear_s + process.read_s;
    assert!(process.estimated_s >= 0.5, "{process:?}");
    assert!((process.estimated_s..process.estimated_s + frozen + 0.1).contains(&by_victim), "{by_victim} {process:?}");
    let state = std::fs::read_to_string(cgroup.path().join("cgroup.freeze")).expect("the cgroup can be frozen");
    assert_eq!(state.trim(), "0");
    // `--pause` must not stop another process of the cgroup.
    let other = start("shmem", 100, "read");
    cgroup.add_process(other.pid());
    let output = wss(&["--pid", &pid, "--pause", "500ms"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{text}");
    assert!(text.contains(&format!("also contains process {}", other.pid())), "{text}");
    other.finish();
    victim.finish();
}

#[test]
fn process_pages_below_the_estimated_limit() {
    const TOUCHED: u64 = 10_240;
    /// Margin for memory of the kernel, and for pages that are charged per processor.
    const MARGIN: u64 = 8 << 20;
    let scratch = Scratch::new();
    let file = scratch.path("mapped").to_string_lossy().into_owned();
    let group = MemoryCgroup::with_memory(1 << 30);
    // The victim touches its pages in the cgroup, so that they are charged to the cgroup.
    let words = ["file", &PAGES.to_string(), &TOUCHED.to_string(), "read", &file];
    let mut command = Command::new(group.enter().first().expect("a program"));
    let program = victim::path("working_set");
    let mut victim = Victim::start(command.args(&group.enter()[1..]).arg(program).args(words));
    let pid = victim.pid();
    victim.process().write_line("");
    let reading = &measure(&["--pid", &pid.to_string(), "--fit", "500ms"])[0];
    let needed = reading.fit.expect("it was requested").needed_bytes;
    // Pages of libraries count too.
    assert!((TOUCHED * PAGE * 95 / 100..TOUCHED * PAGE * 3 / 2).contains(&needed), "{needed}");
    let counter = || group.refaults().expect("the kernel counts the refaults of a cgroup");
    let refaults = |limit| {
        group.set_memory(limit);
        let before = counter();
        // In this time, the victim reads its pages back.
        std::thread::sleep(Duration::from_secs(1));
        counter() - before
    };
    let _first: u64 = refaults(needed + MARGIN);
    let (above, below) = (refaults(needed + MARGIN), refaults(needed / 2));
    println!("{needed} bytes are needed; {above} refaults above, {below} below");
    assert!(above < 100, "{above}");
    assert!(below > 1000, "{below}");
    victim.finish();
}

#[test]
fn pages_of_idle_children_count_once() {
    const TOUCHED: u64 = 25_600;
    let victim = start("forked", TOUCHED, "read");
    let family = select_family(&victim);
    let words: Vec<_> = family.iter().map(String::as_str).chain(["--fit", "300ms"]).collect();
    let reading = &measure(&words)[0];
    assert_pages_count_once(reading, TOUCHED);
    let fit = reading.fit.expect("it was requested");
    let expected = PAGE * if fit.has_swap { TOUCHED } else { PAGES };
    assert!((expected..expected + (8 << 20)).contains(&fit.needed_bytes), "{fit:?}");
    victim.finish();
}

#[test]
fn shared_pages_need_the_permission_to_see_page_frames() {
    let victim = start("forked", 2560, "read");
    let family = select_family(&victim);
    let run = |options: &[String], words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]).arg(tracer::binary());
        command.arg("wss").args(options).args(words).arg("100ms").output().expect("setpriv is installed")
    };
    let output = run(&family, &["--fit"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{text}");
    assert!(text.contains("% of the pages are shared") && text.contains("CAP_SYS_ADMIN"), "{text}");
    assert!(output.stdout.is_empty());
    let output = run(&family, &["--format", "json"]);
    let reading: Reading = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    assert_eq!((reading.distinct, reading.unknown_frames.as_deref()), (None, Some("not_permitted")));
    assert!(reading.total.shared_bytes > reading.total.rss_bytes * 9 / 10, "{:?}", reading.total);
    let output = run(&family, &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\n  counted once in each process: ") && text.contains("CAP_SYS_ADMIN\n"), "{text}");
    // The pages of a single process count once in any case.
    let output = run(&family[..2], &["--fit", "--format", "json"]);
    let reading: Reading = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    assert!(reading.fit.is_some_and(|fit| fit.needed_bytes >= 2560 * PAGE), "{reading:?}");
    victim.finish();
}
