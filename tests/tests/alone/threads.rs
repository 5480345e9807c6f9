//! `memtrace threads`: counters of threads, and monitoring under load.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use memtrace_tests::process::Process;
use memtrace_tests::threads::{Interval, ThreadsOutcome, ThreadsRun, Usage, ended_threads, recording_in};
use memtrace_tests::{Cgroup, MemoryCgroup, Scratch, large_file, perfetto, process, tracer, victim};
use serde_json::Value;

/// Interval of the monitors.
const INTERVAL: Duration = Duration::from_millis(500);
const OPTIONS: [&str; 2] = ["--interval", "500ms"];

/// A thread as `victims/thread_usage.c` prints it: thread ID, then allocated and freed bytes and blocks.
type Counted = [u64; 5];

/// Reads intervals until one starts `after` seconds after the start of the monitor. Returns this
/// interval.
fn read_until(run: &mut ThreadsRun, after: f64) -> Interval {
    loop {
        let interval = run.next_interval();
        if interval.from_s >= after {
            return interval;
        }
    }
}

fn assert_no_losses(monitored: &ThreadsOutcome) {
    for interval in &monitored.intervals {
        assert!(interval.losses.is_empty(), "{interval:?}");
    }
    assert_eq!(monitored.code, Some(0), "{}", monitored.stderr);
}

#[test]
fn counters_equal_those_of_500_threads() {
    let mut victim = victim::start_with("thread_usage", &["500", "300"]);
    let pid = victim.pid();
    let run = ThreadsRun::victim(&victim, &OPTIONS);
    victim.process().write_line("");
    let expected: Vec<Counted> = victim.read_json();
    let monitored = run.stop();
    let (threads, all) = monitored.sums(pid);
    for &[tid, ref counters @ ..] in &expected {
        let tid = u32::try_from(tid).expect("a thread ID has 32 bits");
        assert_eq!(threads[&tid].heap(), *counters, "thread {tid}");
    }
    let sum: [u64; 4] = std::array::from_fn(|index| expected.iter().map(|counted| counted[index + 1]).sum());
    assert_eq!(all.heap(), sum);
    assert_no_losses(&monitored);
    assert!(monitored.processes(pid).all(|process| process.source == "bpf" && !process.stale));
    victim.finish();
}

#[test]
fn counters_of_exited_threads_remain_in_their_process() {
    let mut victim = victim::start_with("thread_usage", &["8", "3000"]);
    let pid = victim.pid();
    let mut run = ThreadsRun::victim(&victim, &OPTIONS);
    victim.process().write_line("");
    let expected: Vec<Counted> = victim.read_json();
    // Wait until all threads have rows.
    read_until(&mut run, 1.0);
    victim.process().write_line("");
    process::wait_for_file(pid, "status", |status| status.contains("Threads:\t1\n"), "end its threads");
    read_until(&mut run, 2.0);
    victim.finish();
    let monitored = run.wait();
    let sum: [u64; 4] = std::array::from_fn(|index| expected.iter().map(|counted| counted[index + 1]).sum());
    let (_, all) = monitored.sums(pid);
    assert_eq!(all.heap(), sum);
    assert_eq!(monitored.processes(pid).map(ended_threads).sum::<u64>(), 9);
    assert!(monitored.processes(pid).last().is_some_and(|process| process.exited));
    assert!(monitored.stderr.contains("all monitored processes have ended"), "{}", monitored.stderr);
}

#[test]
fn threads_between_two_readings_are_counted() {
    const THREADS: u64 = 5000;
    let mut victim = victim::start_with("thread_churn", &[&THREADS.to_string()]);
    let pid = victim.pid();
    let run = ThreadsRun::victim(&victim, &OPTIONS);
    victim.process().write_line("");
    let [_, counters @ ..]: Counted = victim.read_json();
    let monitored = run.stop();
    assert_no_losses(&monitored);
    let started: u64 = monitored.processes(pid).map(|process| process.started).sum();
    let ended: u64 = monitored.processes(pid).map(ended_threads).sum();
    assert_eq!((started, ended), (THREADS, THREADS));
    // The main thread allocates the stacks and the thread-local storage of the others.
    let (threads, all) = monitored.sums(pid);
    let first = threads[&pid].heap();
    assert_eq!(std::array::from_fn(|index| all.heap()[index] - first[index]), counters);
    victim.finish();
}

#[test]
fn calls_after_a_failed_operator_new_are_counted() {
    const THROWS: u64 = 20;
    let mut victim = victim::start_with("operators.tcmalloc", &["500", &THROWS.to_string()]);
    let pid = victim.pid();
    let run = ThreadsRun::victim(&victim, &OPTIONS);
    let expected = victim.work().totals;
    let monitored = run.stop();
    assert_no_losses(&monitored);
    let [alloc_bytes, alloc_count, free_bytes, free_count] = monitored.sums(pid).1.heap();
    // The exception object is a block too.
    assert_eq!((alloc_count, free_count), (expected.alloc_count + THROWS, expected.free_count + THROWS));
    assert_eq!(alloc_bytes - expected.alloc_bytes, free_bytes - expected.free_bytes);
    victim.finish();
}

#[test]
fn threads_beyond_the_limit_are_summed() {
    let mut victim = victim::start_with("thread_usage", &["20", "500"]);
    let pid = victim.pid();
    let run = ThreadsRun::victim(&victim, &[&OPTIONS[..], &["--max-threads", "5"]].concat());
    victim.process().write_line("");
    let expected: Vec<Counted> = victim.read_json();
    let monitored = run.stop();
    let sum: [u64; 4] = std::array::from_fn(|index| expected.iter().map(|counted| counted[index + 1]).sum());
    let (threads, all) = monitored.sums(pid);
    assert_eq!((threads.len(), all.heap()), (5, sum));
    let mut shown = [0; 4];
    for process in monitored.processes(pid) {
        assert_eq!(process.others.count, 16);
        let parts = process.threads.iter().map(|thread| &thread.usage).chain([&process.others.usage]);
        for usage in parts {
            shown = std::array::from_fn(|index| shown[index] + Usage::from(usage).heap()[index]);
        }
    }
    assert_eq!(shown, sum);
    victim.finish();
}

#[test]
fn processor_time_and_faults_equal_those_of_the_kernel() {
    let mut victim = victim::start_with("thread_usage", &["4", "20000"]);
    let pid = victim.pid();
    // Minor faults, and ticks of processor time: fields 10, 14 and 15 of proc_pid_stat(5). The first field after the
    // name, the state, is field 3.
    let stat = || -> [u64; 2] {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the victim runs");
        let fields: Vec<&str> = text.rsplit_once(") ").expect("a name in parentheses").1.split_whitespace().collect();
        let number = |field: usize| fields[field - 3].parse::<u64>().expect("a number");
        [number(10), number(14) + number(15)]
    };
    let before = stat();
    let run = ThreadsRun::victim(&victim, &OPTIONS);
    victim.process().write_line("");
    let _: Vec<Counted> = victim.read_json();
    let monitored = run.stop();
    let after = stat();
    let (_, all) = monitored.sums(pid);
    let [faults, ticks] = std::array::from_fn(|index| after[index] - before[index]);
    assert!(all.get("minor_faults") <= faults && faults - all.get("minor_faults") < 20, "{faults} {all:?}");
    let ticks = ticks as f64;
    let counted = (all.get("user_ns") + all.get("system_ns")) as f64 / 1e7;
    assert!((ticks - counted).abs() < 5.0 + 0.02 * ticks, "{ticks} ticks, {counted} counted");
    victim.finish();
}

#[test]
fn stopped_target_is_monitored() {
    let mut victim = victim::start_with("busy_threads", &["4"]);
    let mut run = ThreadsRun::victim(&victim, &OPTIONS);
    victim.process().write_line("");
    read_until(&mut run, 1.0);
    victim.process().signal(libc::SIGSTOP);
    process::wait_for_file(victim.pid(), "stat", |stat| stat.contains(") T "), "stop");
    let stopped = read_until(&mut run, 3.5);
    assert!(stopped.processes[0].threads.iter().all(|thread| thread.state == 'T'), "{stopped:?}");
    victim.process().signal(libc::SIGCONT);
    let monitored = run.stop();
    monitored.assert_continuous(INTERVAL);
    victim.finish();
}

/// Returns a cgroup that gets one percent of a processor.
fn slow_cgroup() -> Cgroup {
    let version_1 = Path::new("/sys/fs/cgroup/cpu");
    if version_1.join("cpu.cfs_quota_us").exists() || version_1.join("cgroup.procs").exists() {
        let cgroup = Cgroup::create_in(version_1);
        cgroup.write("cpu.cfs_period_us", "100000");
        cgroup.write("cpu.cfs_quota_us", "1000");
        return cgroup;
    }
    let cgroup = Cgroup::new();
    cgroup.write("cpu.max", "1000 100000");
    cgroup
}

#[test]
fn target_without_processor_time_is_monitored() {
    let mut victim = victim::start_with("busy_threads", &["200"]);
    let pid = victim.pid();
    let mut run = ThreadsRun::victim(&victim, &OPTIONS);
    victim.process().write_line("");
    process::wait_for_file(pid, "status", |status| status.contains("Threads:\t201\n"), "start its threads");
    let cgroup = slow_cgroup();
    cgroup.add_process(pid);
    read_until(&mut run, 5.0);
    let monitored = run.stop();
    monitored.assert_continuous(INTERVAL);
    assert_no_losses(&monitored);
    let threads = monitored.processes(pid).map(|process| process.threads.len()).max();
    assert_eq!(threads, Some(201));
    // The threads wait for a processor, and the monitor counts this time.
    let (_, all) = monitored.sums(pid);
    assert!(all.get("run_delay_ns") > 1_000_000_000, "{all:?}");
    victim.process().signal(libc::SIGKILL);
    victim.process().wait();
}

#[test]
fn busy_machine_is_monitored() {
    let mut victim = victim::start_with("busy_threads", &["32"]);
    let mut run = ThreadsRun::start(&[&OPTIONS[..], &["--all", "--protect"]].concat());
    victim.process().write_line("");
    read_until(&mut run, 4.0);
    let monitored = run.stop();
    monitored.assert_continuous(INTERVAL);
    victim.finish();
}

#[test]
fn target_at_its_memory_limit_is_monitored() {
    const LIMIT: u64 = 16 << 20;
    let cgroup = MemoryCgroup::with_memory(LIMIT);
    // The file is longer than the limit, so each pass over the file evicts pages of the file. No other cgroup is charged for
    // pages of the file.
    let scratch = Scratch::new();
    let (file, _) = large_file::create(&scratch, LIMIT, 4 * LIMIT);
    let mut command = Command::new(victim::path("memcg_limit"));
    let mut victim = memtrace_tests::Victim::start(command.arg("read").arg(&file).arg("1000000"));
    let pid = victim.pid();
    cgroup.add_process(pid);
    let mut run = ThreadsRun::victim(&victim, &OPTIONS);
    victim.process().write_line("");
    read_until(&mut run, 5.0);
    let refaults = cgroup.refaults().expect("the kernel counts the refaults of a cgroup");
    assert!(refaults > 1000, "{refaults}");
    let monitored = run.stop();
    monitored.assert_continuous(INTERVAL);
    assert_no_losses(&monitored);
    victim.process().signal(libc::SIGKILL);
    victim.process().wait();
}

#[test]
fn end_by_the_oom_killer_is_an_event() {
    let scratch = Scratch::new();
    let cgroup = MemoryCgroup::with_memory(64 << 20);
    let mut command = Command::new(victim::path("memcg_limit"));
    let mut victim = memtrace_tests::Victim::start(command.args(["eat", "100000"]).arg(scratch.join("count")));
    let pid = victim.pid();
    cgroup.add_process(pid);
    let run = ThreadsRun::victim(&victim, &OPTIONS);
    victim.process().write_line("");
    let monitored = run.wait();
    let events: Vec<_> = monitored.intervals.iter().flat_map(|interval| &interval.events).collect();
    assert!(events.iter().any(|event| event.kind == "oom_kill" && event.pid == Some(pid)), "{events:?}");
    assert!(monitored.processes(pid).last().is_some_and(|process| process.exited), "{events:?}");
    let count = std::fs::read(scratch.join("count")).expect("the victim counts its blocks");
    let counted = u64::from_ne_bytes(count[..8].try_into().expect("a word"));
    let (_, all) = monitored.sums(pid);
    assert_eq!(all.get("alloc_count"), counted);
    victim.process().wait();
}

#[test]
fn recording_of_a_killed_monitor_holds_all_but_the_last_interval() {
    let scratch = Scratch::new();
    let recording = recording_in(&scratch);
    let path = recording.to_str().expect("a scratch directory has a plain path");
    let mut victim = victim::start_with("busy_threads", &["4"]);
    let mut run = ThreadsRun::victim(&victim, &[&OPTIONS[..], &["--record", path]].concat());
    victim.process().write_line("");
    let last = read_until(&mut run, 2.0).to_s;
    run.process().signal(libc::SIGKILL);
    run.process().wait();
    let stored = process::run(Command::new("sqlite3").arg(&recording).arg("SELECT max(end_ns) FROM interval"));
    let stored: f64 = stored.trim().parse().expect("a number");
    assert!(stored / 1e9 >= last - INTERVAL.as_secs_f64() * 1.5, "{stored} {last}");
    victim.finish();
}

/// Returns the contents of a trace for Perfetto. The instants are sorted, since they have no order.
fn read_trace(path: &Path) -> Value {
    let mut trace = perfetto::read(path);
    let instants = trace["instants"].as_array_mut().expect("instants");
    instants.sort_by_key(Value::to_string);
    trace
}

#[test]
fn live_trace_for_perfetto_equals_that_of_the_recording() {
    let scratch = Scratch::new();
    let recording = recording_in(&scratch);
    let [live, recorded] = ["live.pftrace", "recorded.pftrace"].map(|name| scratch.join(name));
    let name = |path: &Path| path.to_str().expect("a scratch directory has a plain path").to_owned();
    let mut victim = victim::start_with("thread_usage", &["8", "3000"]);
    let pid = victim.pid();
    let options = ["--record", &name(&recording), "-o", &name(&live)];
    let mut run = ThreadsRun::victim(&victim, &[&OPTIONS[..], &options].concat());
    victim.process().write_line("");
    let _: Vec<Counted> = victim.read_json();
    run.process().signal(libc::SIGUSR2);
    while run.next_interval().events.is_empty() {}
    assert!(!live.exists(), "the trace has its name before it is complete");
    victim.process().write_line("");
    process::wait_for_file(pid, "status", |status| status.contains("Threads:\t1\n"), "end its threads");
    let _ = run.next_interval();
    victim.finish();
    let monitored = run.wait();
    assert_eq!(monitored.code, Some(0), "{}", monitored.stderr);
    let mut report = Command::new(tracer::binary());
    process::run(report.args(["report", "--view", "threads", "-o"]).args([&recorded, &recording]));
    let [live, recorded] = [live, recorded].map(|path| read_trace(&path));
    assert_eq!(live["counters"], recorded["counters"]);
    assert_eq!(live["instants"], recorded["instants"]);
    let instants = live["instants"].as_array().expect("instants");
    let number = |track: &str, text: &str| {
        instants
            .iter()
            .filter(|instant| instant[1].as_str().is_some_and(|name| name.starts_with(track)) && instant[2] == text)
            .count()
    };
    assert_eq!((number("thread ", "end"), number("thread_usage", "exit")), (9, 1), "{instants:?}");
    assert_eq!(instants.iter().filter(|instant| instant[1] == "marks").count(), 1, "{instants:?}");
}

#[test]
fn command_is_monitored_from_its_start() {
    let mut monitored = ThreadsRun::start(&[&OPTIONS[..], &["--", "/bin/true"]].concat()).wait();
    let last = monitored.intervals.pop().expect("there is an interval");
    assert!(last.processes.iter().any(|process| process.exited), "{last:?}");
    assert_eq!(monitored.code, Some(0));
}

#[test]
fn trigger_sets_a_mark_and_starts_a_trace() {
    let scratch = Scratch::new();
    let directory = scratch.join("traces");
    let directory_name = directory.to_str().expect("a scratch directory has a plain path");
    let mut victim = victim::start_with("busy_threads", &["2"]);
    let options = ["--when", "threads > 2", "--then", "trace:1s", "--then-dir", directory_name];
    let mut run = ThreadsRun::victim(&victim, &[&OPTIONS[..], &options].concat());
    victim.process().write_line("");
    assert!(run.process().wait_for_stderr(|line| line.contains("wrote ")), "no trace");
    let monitored = run.stop();
    let is_trigger = |event: &&memtrace_json::IntervalEvent<'_>| event.kind == "trigger";
    let triggers: Vec<_> =
        monitored.intervals.iter().flat_map(|interval| interval.events.iter().filter(is_trigger)).collect();
    let [trigger] = triggers[..] else { panic!("one trigger, not {triggers:?}") };
    assert!(trigger.text.as_deref().is_some_and(|text| text.starts_with("threads > 2: process ")), "{trigger:?}");
    let files = std::fs::read_dir(&directory).expect("there is a directory").count();
    assert_eq!(files, 3);
    victim.finish();
}

#[test]
fn quiet_monitor_prints_its_triggers() {
    let mut victim = victim::start_with("busy_threads", &["2"]);
    let mut run = ThreadsRun::victim(&victim, &[&OPTIONS[..], &["-q", "--when", "threads > 2"]].concat());
    victim.process().write_line("");
    let is_trigger = |line: &str| line.contains("trigger at ") && line.contains("threads > 2: process ");
    assert!(run.process().wait_for_stderr(is_trigger), "no line of the trigger");
    let monitored = run.stop();
    let lines: Vec<&str> = monitored.stderr.lines().collect();
    let [attached, trigger] = lines[..] else { panic!("two lines, not {lines:?}") };
    assert!(attached.starts_with("attached to pid ") && is_trigger(trigger), "{lines:?}");
    victim.finish();
}

#[test]
fn invalid_conditions_exit_with_2() {
    for condition in ["nett > 1GiB/min", "net >", "rss > 20%", "rss > 1GiB/min"] {
        let mut command = Command::new(tracer::binary());
        let output = command.args(["threads", "--pid", "1", "--when", condition]).output().expect("memtrace runs");
        assert_eq!(output.status.code(), Some(2), "{condition}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn counters_of_jemalloc_are_read_without_probes() {
    let mut command = Command::new(victim::path("jemalloc_threads"));
    // `cargo xtask setup` installs this library.
    let mut victim = memtrace_tests::Victim::start(command.arg("8").env("LD_PRELOAD", "libjemalloc.so.2"));
    let pid = victim.pid();
    let run = ThreadsRun::victim(&victim, &OPTIONS);
    victim.process().write_line("");
    let expected: Vec<[u64; 3]> = victim.read_json();
    let monitored = run.stop();
    let (threads, _) = monitored.sums(pid);
    for [tid, allocated, freed] in expected {
        let tid = u32::try_from(tid).expect("a thread ID has 32 bits");
        assert_eq!(threads[&tid].heap(), [allocated, 0, freed, 0], "thread {tid}");
    }
    assert!(monitored.processes(pid).all(|process| process.source == "jemalloc" && !process.stale));
    assert!(monitored.stderr.contains(", 0 probes"), "{}", monitored.stderr);
    victim.finish();
}

/// A process with threads that start after the first reading and end before the second one.
struct Dying {
    victim: memtrace_tests::Victim,
    directory: Scratch,
}

impl Dying {
    const THREADS: usize = 8;

    /// Starts `victims/thread_ends.c`. `library`: allocator that replaces the C library's, or an empty string.
    fn start(mode: &str, library: &str) -> Self {
        let directory = Scratch::new();
        let mut command = Command::new(victim::path("thread_ends"));
        command.arg(Self::THREADS.to_string()).arg(mode).arg(directory.join("counts"));
        if !library.is_empty() {
            command.env("LD_PRELOAD", library);
        }
        Self { victim: memtrace_tests::Victim::start(&mut command), directory }
    }

    /// Compares the rows of the threads with their own counts: ID, and allocated bytes and blocks.
    fn compare(mut self, monitored: &ThreadsOutcome, has_blocks: bool) {
        // A loss explains a missing row.
        assert_no_losses(monitored);
        let pid = self.victim.pid();
        let counts = std::fs::read(self.directory.join("counts")).expect("the victim counts its blocks");
        let words = counts.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("a word")));
        let words: Vec<u64> = words.collect();
        let (threads, _) = monitored.sums(pid);
        for counted in words.chunks_exact(3).take(Self::THREADS) {
            let tid = u32::try_from(counted[0]).expect("a thread ID has 32 bits");
            assert!(threads.contains_key(&tid), "no row of thread {tid}: {:?}", monitored.intervals);
            let [bytes, blocks, ..] = threads[&tid].heap();
            assert_eq!([bytes, blocks], [counted[1], if has_blocks { counted[2] } else { 0 }], "thread {tid}");
        }
        let last = monitored.processes(pid).last().expect("the process has ended");
        assert!(last.exited && last.threads.iter().all(|thread| thread.ended), "{last:?}");
        assert_eq!((last.threads.len(), last.ended.count), (Self::THREADS + 1, 0), "{last:?}");
        assert_eq!(Usage::from(&last.ended.usage).heap(), [0; 4], "{last:?}");
        self.victim.process().wait();
    }
}

/// Options of a monitor that reads the counters at its start and at its end only.
const ONE_INTERVAL: [&str; 2] = ["--interval", "1h"];

const JEMALLOC: &str = "libjemalloc.so.2";

#[test]
fn threads_of_an_oom_killed_process_have_rows() {
    for library in ["", JEMALLOC] {
        let cgroup = MemoryCgroup::with_memory(512 << 20);
        let mut dying = Dying::start("oom", library);
        cgroup.add_process(dying.victim.pid());
        let run = ThreadsRun::victim(&dying.victim, &ONE_INTERVAL);
        dying.victim.process().write_line("");
        let monitored = run.wait();
        dying.compare(&monitored, library.is_empty());
    }
}

#[test]
fn threads_that_exit_group_ends_have_rows() {
    for library in ["", JEMALLOC] {
        let mut dying = Dying::start("exit", library);
        let run = ThreadsRun::victim(&dying.victim, &ONE_INTERVAL);
        dying.victim.process().write_line("");
        let monitored = run.wait();
        dying.compare(&monitored, library.is_empty());
    }
}

#[test]
fn threads_of_a_killed_process_have_rows() {
    for library in ["", JEMALLOC] {
        let mut dying = Dying::start("wait", library);
        let run = ThreadsRun::victim(&dying.victim, &ONE_INTERVAL);
        dying.victim.process().write_line("");
        let _: Vec<u64> = dying.victim.read_json();
        dying.victim.process().signal(libc::SIGKILL);
        let monitored = run.wait();
        dying.compare(&monitored, library.is_empty());
    }
}

#[test]
fn short_processes_are_selected_by_their_name() {
    const PROCESSES: usize = 20;
    let directory = Scratch::new();
    // No other process has this name.
    let program = directory.join("short-lived-one");
    std::fs::copy("/bin/true", &program).expect("the program can be copied");
    let run = ThreadsRun::start(&[&OPTIONS[..], &["--comm", "short-lived-one", "--wait"]].concat());
    for _ in 0..PROCESSES {
        assert!(Command::new(&program).status().expect("the program starts").success());
    }
    let monitored = run.stop();
    let ended = |process: &&memtrace_tests::threads::MonitoredProcess| process.exited;
    let ended: Vec<_> =
        monitored.intervals.iter().flat_map(|interval| interval.processes.iter().filter(ended)).collect();
    assert_eq!(ended.len(), PROCESSES, "{ended:?}");
    assert!(ended.iter().all(|process| process.name == "short-lived-one"), "{ended:?}");
    assert!(
        ended.iter().all(|process| ended_threads(process) == 1 && Usage::from(&process.usage).get("minor_faults") > 0),
        "{ended:?}"
    );
}

#[test]
fn many_exits_have_one_line_in_the_table() {
    const PROCESSES: usize = 20;
    let directory = Scratch::new();
    // No other process has this name.
    let program = directory.copy("/bin/true", "short-lived-two");
    let mut command = Command::new(tracer::binary());
    let words = ["threads", "--format", "text", "--comm", "short-lived-two", "--wait"];
    let mut memtrace = Process::start(command.args(words).args(ONE_INTERVAL).env_remove("DEBUGINFOD_URLS"));
    assert!(memtrace.wait_for_stderr_line("attached "), "memtrace exited: {}", memtrace.remaining_stderr());
    for _ in 0..PROCESSES {
        assert!(Command::new(&program).status().expect("the program starts").success());
    }
    memtrace.signal(libc::SIGINT);
    memtrace.wait_with_open_stdin();
    let table = memtrace.remaining_stdout();
    let events: Vec<&str> = table.lines().filter(|line| line.starts_with("event ")).collect();
    let [exits] = events[..] else { panic!("one line, not {events:?}: {table}") };
    assert!(exits.ends_with("  exits of 20 processes: short-lived-two ×20"), "{exits}");
}

#[test]
fn frees_of_blocks_from_before_the_start_are_no_loss() {
    const BLOCKS: u64 = 200;
    let mut command = Command::new(victim::path("old_blocks"));
    // jemalloc stores no sizes in front of blocks.
    let mut victim = memtrace_tests::Victim::start(command.arg(BLOCKS.to_string()).env("LD_PRELOAD", JEMALLOC));
    let pid = victim.pid();
    let run = ThreadsRun::victim(&victim, &[&OPTIONS[..], &["--source", "bpf"]].concat());
    let expected = victim.work();
    let monitored = run.stop();
    assert_eq!(expected.unmatched_frees, BLOCKS);
    let all = |interval: &Interval| interval.losses.values().sum::<u64>();
    let unknown = |interval: &Interval| interval.losses.get("size_unknown").copied().unwrap_or(0);
    let sum = |of: &dyn Fn(&Interval) -> u64| monitored.intervals.iter().map(of).sum::<u64>();
    assert_eq!((sum(&all), sum(&unknown)), (BLOCKS, BLOCKS));
    let totals = expected.totals;
    let counted = [totals.alloc_bytes, totals.alloc_count, totals.free_bytes, totals.free_count + BLOCKS];
    assert_eq!(monitored.sums(pid).1.heap(), counted);
    assert_eq!(monitored.code, Some(0), "{}", monitored.stderr);
    victim.finish();
}

#[test]
fn monitor_that_waits_for_a_process_in_vain_says_so() {
    const NO_PROCESS: i32 = 3;
    let monitored = ThreadsRun::start(&[&OPTIONS[..], &["--comm", "mt-no-such", "--wait"]].concat()).stop();
    assert_eq!(monitored.code, Some(NO_PROCESS), "{}", monitored.stderr);
    assert!(monitored.stderr.contains("mt-no-such did not run"), "{}", monitored.stderr);
}
