//! Accounts of threads, processes, users, cgroups and allocators, with water marks.

mod alone;

use std::path::Path;
use std::process::Command;

use memtrace_tests::accounts::{Account, Accounts, NamedAccount};
use memtrace_tests::{Outcome, Scratch, Trace, Victim, perfetto, recording_report, tracer, victim};
use serde::Deserialize as _;
use serde_json::Value;

/// An account as `victims/accounts.c` prints it: thread ID; bytes and blocks that were allocated, freed, and freed by
/// other threads; bytes and blocks of the low and high water marks.
type Counted = [u64; 11];

/// Asserts that an account has the numbers of the victim, and exact water marks.
fn assert_equals(account: &Account, [_, alloc, allocs, free, frees, other, others, low, lows, high, highs]: Counted) {
    let numbers = [account.alloc_bytes, account.alloc_count, account.free_bytes, account.free_count];
    assert_eq!(numbers, [alloc, allocs, free, frees], "{account:?}");
    let by_others = [account.free_by_others_bytes, account.free_by_others_count];
    assert_eq!(by_others, [Some(other), Some(others)], "{account:?}");
    let marks = [
        [account.low_bytes_at_least, account.low_bytes_at_most],
        [account.low_count_at_least, account.low_count_at_most],
        [account.high_bytes_at_least, account.high_bytes_at_most],
        [account.high_count_at_least, account.high_count_at_most],
    ];
    assert_eq!(marks, [low, lows, high, highs].map(|mark| [Some(mark); 2]), "{account:?}");
    assert_eq!([account.current_bytes, account.current_count], [alloc - free, allocs - frees]);
}

/// Runs both phases of the victim. With `socket`, new water marks start between the phases. Returns the pid, the result
/// of the trace, and the last counters: of each thread, and of all threads.
fn traced(options: &[&str], socket: Option<&Path>) -> (u32, Outcome, Vec<Counted>) {
    let mut victim = victim::start("accounts");
    let mut trace = Trace::victim(&victim).options(options);
    if let Some(socket) = socket {
        trace = trace.option("--socket").option(socket);
    }
    let tracer = trace.accounts().start();
    victim.process().write_line("");
    let first: Vec<Counted> = victim.read_json();
    if let Some(socket) = socket {
        reset(socket);
    }
    victim.process().write_line("");
    let mut last: Vec<Counted> = victim.read_json();
    if socket.is_none() {
        // The victim starts new water marks with each phase, but memtrace does not.
        for (last, first) in last.iter_mut().zip(&first) {
            for (mark, earlier) in last[7..9].iter_mut().zip(&first[7..9]) {
                *mark = (*mark).min(*earlier);
            }
            for (mark, earlier) in last[9..].iter_mut().zip(&first[9..]) {
                *mark = (*mark).max(*earlier);
            }
        }
    }
    let outcome = tracer.stop();
    let pid = victim.pid();
    victim.finish();
    (pid, outcome, last)
}

/// Starts new water marks.
fn reset(socket: &Path) {
    let output =
        Command::new(tracer::binary()).args(["reset", "--socket"]).arg(socket).output().expect("memtrace runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.starts_with(b"new water marks at "), "{output:?}");
}

#[test]
fn threads_have_the_counters_and_marks_of_the_victim() {
    let (pid, outcome, counted) = traced(&["--by", "thread"], None);
    let accounts = outcome.accounts();
    accounts.assert_consistent();
    let (all, threads) = counted.split_last().expect("the victim prints the sum");
    assert_eq!(accounts.accounts.len(), threads.len(), "{:#?}", accounts.accounts);
    for (number, thread) in threads.iter().enumerate() {
        assert!(thread[6] > 0, "other threads free some blocks");
        let name = format!("worker-{number} ({}) of accounts ({pid})", thread[0]);
        assert_equals(&accounts.of(&[&name]), *thread);
    }
    assert_equals(&accounts.total, *all);
    let peak_at = accounts.total.peak_at_ms.expect("there is a peak");
    assert!(peak_at as f64 <= accounts.elapsed_seconds * 1000.0, "{peak_at} ms of {} s", accounts.elapsed_seconds);
    // The table is shown, since the only output is a file.
    let title = format!("accounts of threads of accounts ({pid}): 8\n");
    assert!(outcome.stderr.contains(&title), "{}", outcome.stderr);
}

/// Asserts that a CSV has the names and the numbers of a report as JSON, in the same order, and nothing else.
fn assert_csv(csv: &str, accounts: &Accounts) {
    let mut lines = csv.lines();
    let head: Vec<&str> = lines.next().expect("the names of the columns").split(',').collect();
    let (keys, columns) = head.split_at(accounts.keys.len());
    let (samplers, columns) = columns.split_last().expect("the last column has the samplers");
    assert_eq!(*samplers, "samplers");
    assert_eq!(keys.join(","), accounts.keys.join(","));
    let row = |account: &NamedAccount| {
        let numbers = serde_json::to_value(account.numbers).expect("the numbers are JSON");
        let names = numbers.as_object().expect("the numbers have names").keys().map(String::as_str);
        assert!(names.eq(columns.iter().copied()), "{columns:?}");
        let cells = columns.iter().map(|&column| match &numbers[column] {
            Value::Null => String::new(),
            number => number.to_string(),
        });
        // All accounts are exact.
        account.names.iter().map(ToString::to_string).chain(cells).chain([String::new()]).collect::<Vec<_>>().join(",")
    };
    assert_eq!(lines.collect::<Vec<_>>(), accounts.accounts.iter().map(row).collect::<Vec<_>>());
}

#[test]
fn csv_on_standard_output_equals_json() {
    let (pid, outcome, counted) = traced(&["--by", "user,thread", "-o", "-", "--format", "csv"], None);
    let accounts = outcome.accounts();
    accounts.assert_consistent();
    assert_csv(&outcome.stdout, &accounts);
    for (number, thread) in counted[..counted.len() - 1].iter().enumerate() {
        let name = format!("worker-{number} ({}) of accounts ({pid})", thread[0]);
        assert_equals(&accounts.of(&["root", &name]), *thread);
        assert!(outcome.stdout.contains(&format!("\nroot,{name},{},", thread[1] - thread[3])), "{}", outcome.stdout);
    }
    // The table is on standard error, because standard output has another format.
    let title = format!("accounts of users and threads of accounts ({pid}): 8\n");
    assert!(outcome.stderr.contains(&title), "{}", outcome.stderr);
}

#[test]
fn marks_start_again_at_a_reset() {
    let scratch = Scratch::new();
    let socket = scratch.path("socket");
    let (pid, outcome, counted) = traced(&["--by", "process,thread"], Some(&socket));
    let accounts = outcome.accounts();
    accounts.assert_consistent();
    let (all, threads) = counted.split_last().expect("the victim prints the sum");
    assert!(all[7] > 0, "the low-water mark of the second phase is not 0");
    let process = format!("accounts ({pid})");
    for (number, thread) in threads.iter().enumerate() {
        let name = format!("worker-{number} ({}) of {process}", thread[0]);
        assert_equals(&accounts.of(&[&process, &name]), *thread);
    }
    assert_equals(&accounts.total, *all);
}

#[test]
fn recordings_have_the_accounts_of_the_run() {
    for key in ["thread", "user,comm", "allocator"] {
        let scratch = Scratch::new();
        let recording = scratch.path("run.memtrace");
        let text = recording.to_str().expect("the path is text");
        let (_, outcome, counted) = traced(&["--by", key, "--interval", "100ms", "--record", text], None);
        let accounts = outcome.accounts();
        accounts.assert_consistent();
        assert_eq!(accounts.total.alloc_bytes, counted.last().expect("the victim prints the sum")[1]);
        let recorded = Accounts::of_recording(&recording, &[]);
        recorded.assert_same(&accounts);
        let csv = recording_report::run(&recording, &["--view", "accounts", "--format", "csv"]);
        assert!(csv.status.success(), "{csv:?}");
        assert_csv(&String::from_utf8_lossy(&csv.stdout), &recorded);
    }
}

#[test]
fn trace_for_perfetto_of_a_run_equals_its_table() {
    let scratch = Scratch::new();
    let trace = scratch.path("accounts.pftrace");
    let text = trace.to_str().expect("the path is text");
    let (pid, outcome, _) = traced(&["--by", "thread", "--interval", "100ms", "-o", text], None);
    assert_last_values(&trace, pid, &outcome.accounts());
    assert!(!outcome.stderr.contains("recorded "), "{}", outcome.stderr);
}

#[test]
fn trace_for_perfetto_of_a_recording_equals_that_of_its_run() {
    let scratch = Scratch::new();
    let [recording, live, trace] = ["run.memtrace", "live.pftrace", "accounts.pftrace"].map(|name| scratch.path(name));
    let [record, output] = [&recording, &live].map(|path| path.to_str().expect("the path is text"));
    let (pid, ..) = traced(&["--by", "thread", "--interval", "100ms", "--record", record, "-o", output], None);
    let options = ["--view", "accounts", "-o", trace.to_str().expect("the path is text")];
    assert!(recording_report::run(&recording, &options).status.success());
    assert_last_values(&trace, pid, &Accounts::of_recording(&recording, &[]));
    assert!(perfetto::read(&live) == perfetto::read(&trace), "the two files differ");
}

/// Asserts that the last values of the counters equal the table.
fn assert_last_values(trace: &Path, pid: u32, accounts: &Accounts) {
    let counters = &perfetto::read(trace)["counters"];
    let check = |track: &str, label: &str, account: &Account| {
        let counter = |name: &str| &counters[track][format!("{label}: {name}")];
        // These counters are numbers of bytes, which JSON writes without a fraction.
        let bytes = |name: &str| Vec::<[u64; 2]>::deserialize(counter(name)).expect("a counter of bytes");
        let live = bytes("live");
        assert_eq!(live.last().map(|[_, bytes]| *bytes), Some(account.current_bytes), "{label}");
        // Each rate holds until the next rate, and the last one until the end.
        let rates = Vec::<[f64; 2]>::deserialize(counter("allocated per second")).expect("a counter of rates");
        let ends = rates.iter().skip(1).map(|[at, _]| *at).chain([accounts.elapsed_seconds * 1e9]);
        let allocated: f64 = rates.iter().zip(ends).map(|([start, rate], end)| (end - start) / 1e9 * rate).sum();
        let expected = account.alloc_bytes as f64;
        assert!((allocated - expected).abs() <= expected / 50.0, "{label}: {allocated} bytes, not {expected}");
        let high = bytes("high-water mark");
        let high = high.iter().map(|[_, bytes]| *bytes).max();
        assert_eq!(high, account.high_bytes_at_most, "{label}");
    };
    check("accounts", "total", &accounts.total);
    for NamedAccount { names, numbers: account } in &accounts.accounts {
        let label = names[0].strip_suffix(&format!(" of accounts ({pid})")).unwrap_or(&names[0]);
        check("accounts", label, account);
    }
}

#[test]
fn recordings_have_the_marks_of_each_interval() {
    let scratch = Scratch::new();
    let [socket, recording] = ["socket", "run.memtrace"].map(|name| scratch.path(name));
    let mut victim = victim::start("accounts");
    let trace = Trace::victim(&victim).options(&["--by", "thread", "--interval", "100ms", "--record"]);
    let tracer = trace.option(&recording).option("--socket").option(&socket).accounts().start();
    victim.process().write_line("");
    let _: Vec<Counted> = victim.read_json();
    reset(&socket);
    victim.process().write_line("");
    let counted: Vec<Counted> = victim.read_json();
    reset(&socket);
    tracer.stop().assert_code(0);
    let pid = victim.pid();
    victim.finish();

    let accounts = Accounts::of_recording(&recording, &["--between", "reset", "reset#2"]);
    accounts.assert_consistent();
    assert!(accounts.notes.iter().any(|note| note.starts_with("water marks are those from ")), "{:?}", accounts.notes);
    let (all, threads) = counted.split_last().expect("the victim prints the sum");
    assert!(all[7] > 0, "the low-water mark of the second phase is not 0");
    for (number, thread) in threads.iter().enumerate() {
        let name = format!("worker-{number} ({}) of accounts ({pid})", thread[0]);
        assert_equals(&accounts.of(&[&name]), *thread);
    }
    assert_equals(&accounts.total, *all);
    let stacks_only = scratch.path("stacks.memtrace");
    Trace::command(["/bin/true"]).option("--record").option(&stacks_only).run().assert_code(0);
    let refused = recording_report::run(&stacks_only, &["--view", "accounts"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("the recording has no accounts"), "{refused:?}");
}

#[test]
fn keys_of_whole_processes_have_exact_marks() {
    for key in ["process", "user", "comm", "cgroup", "allocator", "process,allocator"] {
        let (_, outcome, counted) = traced(&["--by", key], None);
        let accounts = outcome.accounts();
        accounts.assert_consistent();
        assert_eq!(accounts.keys.join(","), key);
        let [account] = accounts.accounts.as_slice() else { panic!("{key}: {accounts:#?}") };
        assert_equals(&account.numbers, *counted.last().expect("the victim prints the sum"));
        let last = account.names.last().expect("a name for each key");
        match key {
            "user" => assert_eq!(last, "root"),
            "comm" => assert_eq!(last, "accounts"),
            "allocator" | "process,allocator" => assert_eq!(last, "glibc (libc.so.6)"),
            "cgroup" => assert!(last.starts_with('/'), "{last}"),
            _ => {}
        }
    }
}

#[test]
fn threads_by_allocator_have_their_own_accounts() {
    let (pid, outcome, counted) = traced(&["--by", "allocator,thread"], None);
    let accounts = outcome.accounts();
    accounts.assert_consistent();
    for (number, thread) in counted[..counted.len() - 1].iter().enumerate() {
        let name = format!("worker-{number} ({}) of accounts ({pid})", thread[0]);
        assert_equals(&accounts.of(&["glibc (libc.so.6)", &name]), *thread);
    }
}

#[test]
fn objects_have_sums_without_marks() {
    let (_, outcome, counted) = traced(&["--by", "object"], None);
    let accounts = outcome.accounts();
    accounts.assert_consistent();
    let path = victim::path("accounts").display().to_string();
    let account = accounts.of(&[&path]);
    let [_, alloc, allocs, free, frees, ..] = *counted.last().expect("the victim prints the sum");
    let numbers = [account.alloc_bytes, account.alloc_count, account.free_bytes, account.free_count];
    assert_eq!(numbers, [alloc, allocs, free, frees]);
    assert_eq!((account.high_bytes_at_most, account.free_by_others_bytes), (None, None));
}

/// `victims/thread_burst.c` starts 200 threads, and has the same totals in each run.
#[test]
fn transient_threads_add_up_to_their_process() {
    let path = victim::path("thread_burst");
    let report = Trace::command([&path]).run().report();
    let accounts = Trace::command([&path]).options(&["--by", "thread"]).accounts().run().accounts();
    accounts.assert_consistent();
    // The main thread and the last 100 threads have accounts of their own. Earlier threads can share one account.
    assert!((102..=201).contains(&accounts.accounts.len()), "{}", accounts.accounts.len());
    let (total, expected) = (accounts.total, report.totals);
    assert_eq!([total.alloc_bytes, total.alloc_count], [expected.alloc_bytes, expected.alloc_count]);
    assert_eq!([total.free_bytes, total.free_count], [expected.free_bytes, expected.free_count]);
    assert_eq!([total.exit_bytes, total.exit_count], [expected.exit_bytes, expected.exit_count]);
}

/// `victims/transient.c` has 2,000 short-lived threads. The last 100 of them have accounts of their own.
#[test]
fn ended_threads_are_merged() {
    for keys in ["thread", "allocator,thread"] {
        let mut victim = victim::start("transient");
        let tracer = Trace::victim(&victim).options(&["--by", keys]).accounts().start();
        victim.process().write_line("");
        let _: Vec<u64> = victim.read_json();
        victim.process().write_line("");
        let counted: [u64; 6] = victim.read_json();
        let pid = victim.pid();
        let accounts = tracer.stop().accounts();
        victim.finish();
        accounts.assert_consistent();
        let ended = format!("[ended threads] of transient ({pid})");
        let first = format!("transient ({pid})");
        let thread = |account: &NamedAccount| account.names.last().expect("each account has names").clone();
        let threads: Vec<&NamedAccount> = accounts.accounts.iter().filter(|account| thread(account) != first).collect();
        assert_eq!(threads.len(), 101, "{keys}: {threads:#?}");
        let mut sum = [0; 6];
        for NamedAccount { numbers: account, .. } in &threads {
            let others =
                [account.free_by_others_bytes, account.free_by_others_count].map(|number| number.expect("by thread"));
            let numbers = [account.alloc_bytes, account.alloc_count, account.free_bytes, account.free_count];
            sum.iter_mut().zip(numbers.into_iter().chain(others)).for_each(|(sum, number)| *sum += number);
        }
        assert_eq!(sum, counted, "{keys}");
        let [ended] = threads.iter().filter(|account| thread(account) == ended).collect::<Vec<_>>()[..] else {
            panic!("{threads:#?}")
        };
        assert_eq!(ended.numbers.alloc_count, 2 * (2000 - 100), "{ended:#?}");
        let high = ended.numbers.high_bytes_at_most;
        assert_eq!(high, ended.numbers.high_bytes_at_least);
        assert!(high >= Some(ended.numbers.current_bytes), "{ended:#?}");
    }
}

#[test]
fn threads_of_a_process_that_exits_keep_their_accounts() {
    let path = victim::path("exit_together");
    let accounts = Trace::command([&path]).options(&["--by", "thread"]).accounts().run().accounts();
    accounts.assert_consistent();
    let of_worker = |NamedAccount { names, numbers: account }: &NamedAccount| {
        let (number, _) = names[0].strip_prefix("w-")?.split_once(' ')?;
        Some((number.parse().ok()?, account.alloc_bytes))
    };
    let mut workers: Vec<(u64, u64)> = accounts.accounts.iter().filter_map(of_worker).collect();
    workers.sort_unstable();
    assert_eq!(workers, (0..150).map(|number| (number, 1000 + number)).collect::<Vec<_>>());
    assert_eq!(accounts.accounts.len(), 151);
}

#[test]
fn ended_processes_hold_their_blocks_at_exit() {
    let mut victim = victim::start("exact");
    let tracer = Trace::victim(&victim).options(&["--by", "user,process"]).accounts().start();
    let expected = victim.work();
    let pid = victim.pid();
    victim.finish();
    let accounts = tracer.wait().accounts();
    accounts.assert_consistent();
    let account = accounts.of(&["root", &format!("exact ({pid})")]);
    let live = expected.totals.alloc_bytes - expected.totals.free_bytes;
    assert_eq!((account.current_bytes, account.alloc_bytes), (0, expected.totals.alloc_bytes));
    assert!(account.exit_bytes >= live && live > 0, "{account:?}");
    assert_eq!(account.unmatched_frees, Some(expected.unmatched_frees));
}

#[test]
fn resets_without_marks_are_refused() {
    let scratch = Scratch::new();
    let socket = scratch.path("socket");
    let mut victim = victim::start("exact");
    let tracer = Trace::victim(&victim).options(&["--by", "object", "--socket"]).option(&socket).accounts().start();
    let output =
        Command::new(tracer::binary()).args(["reset", "--socket"]).arg(&socket).output().expect("memtrace runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{message}");
    assert!(message.contains("the request is refused: accounts by object or tag have no water marks"), "{message}");
    victim.work();
    victim.finish();
    tracer.wait().accounts().assert_consistent();
}

#[test]
fn accounts_without_a_trace_are_refused() {
    let output = Command::new(tracer::binary()).args(["reset", "--socket", "/nonexistent"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no trace listens at /nonexistent"), "{output:?}");
}
