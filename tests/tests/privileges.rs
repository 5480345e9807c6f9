//! Capabilities of memtrace in each phase of a run, compared with the table of the guide.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use memtrace_tests::{Report, Scratch, Trace, poll, victim};

const GUIDE: &str = include_str!("../../docs/guide/always-on.md");

/// A user without privileges.
const NOBODY: u32 = 65534;

/// Text in the column `until` of the guide's table, for the capabilities that reports need.
const REPORT: &str = "the report is written";

/// Threads that have only the capabilities for reports.
const REPORTING: [&str; 2] = ["recording", "memtrace-sites"];

/// Size of the pipe for a report, in bytes. A report is larger, so memtrace waits until the test reads.
const PIPE: i32 = 4096;

/// Numbers of capabilities, from include/uapi/linux/capability.h.
const NUMBERS: [(&str, u32); 16] = [
    ("CAP_CHOWN", 0),
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_DAC_READ_SEARCH", 2),
    ("CAP_FOWNER", 3),
    ("CAP_KILL", 5),
    ("CAP_SETGID", 6),
    ("CAP_SETUID", 7),
    ("CAP_SETPCAP", 8),
    ("CAP_IPC_LOCK", 14),
    ("CAP_SYS_PTRACE", 19),
    ("CAP_SYS_ADMIN", 21),
    ("CAP_SYS_NICE", 23),
    ("CAP_SYS_RESOURCE", 24),
    ("CAP_PERFMON", 38),
    ("CAP_BPF", 39),
    ("CAP_CHECKPOINT_RESTORE", 40),
];

fn number(capability: &str) -> u32 {
    NUMBERS.iter().find(|(name, _)| *name == capability).expect("the guide has known capabilities").1
}

/// Returns the capabilities with one of these texts in the column `until` of the guide's table.
fn documented(until: &[&str]) -> u64 {
    let (_, section) = GUIDE.split_once("## Privileges").expect("the guide has the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `CAP_"));
    let kept = rows.filter(|row| until.contains(&row.trim_end_matches('|').rsplit('|').next().expect("a cell").trim()));
    let names = kept.flat_map(|row| row.split('|').nth(1).expect("a cell").split(','));
    let mask = names.fold(0, |mask, name| mask | 1 << number(name.trim().trim_matches('`')));
    assert_ne!(mask, 0, "the table has no row for {until:?}");
    mask
}

/// Returns a field of a `/proc/PID/status`.
fn field<'status>(status: &'status str, name: &str) -> &'status str {
    let value = status.lines().find_map(|line| line.strip_prefix(name)).expect("the field exists");
    value.trim_start_matches(':').trim()
}

fn mask(status: &str, set: &str) -> u64 {
    u64::from_str_radix(field(status, set), 16).expect("a number")
}

/// Returns an error if the capabilities of a thread differ from `expected`, or if a `required` thread does not exist.
/// Capabilities that the test lacks are not expected. A new thread gets its name when it runs for the first time.
fn compare_threads(pid: u32, expected: u64, required: &[&str]) -> Result<(), String> {
    let own = fs::read_to_string("/proc/thread-self/status").expect("this thread runs");
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("memtrace runs");
    let mut names = BTreeSet::new();
    for thread in threads {
        let status = thread.expect("a thread").path().join("status");
        // A thread may have ended.
        let Ok(status) = fs::read_to_string(status) else { continue };
        let name = field(&status, "Name").to_owned();
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            let expected = if REPORTING.contains(&&*name) { documented(&[REPORT]) } else { expected };
            let (actual, expected) = (mask(&status, set), expected & mask(&own, set));
            if actual != expected {
                return Err(format!("{set} of {name} is {actual:x} instead of {expected:x}"));
            }
        }
        assert_eq!(field(&status, "NoNewPrivs"), "1", "{name}");
        names.insert(name);
    }
    if required.iter().all(|name| names.contains(*name)) { Ok(()) } else { Err(format!("only {names:?}")) }
}

fn wait_until_full(pipe: &File) {
    poll::until(|| {
        let mut bytes = 0;
        // SAFETY: the call writes one integer.
        let result = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
        assert_eq!(result, 0, "the pipe is open");
        if bytes == PIPE { Ok(()) } else { Err(bytes) }
    });
}

#[test]
fn threads_have_the_documented_capabilities() {
    let scratch = Scratch::new();
    let path = scratch.pipe("report.json");
    let mut pipe = OpenOptions::new().read(true).write(true).open(&path).expect("the pipe opens");
    // SAFETY: the call takes no pointer.
    assert_eq!(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE) }, PIPE);
    let mut victim = victim::start("exact");
    let recording = scratch.path("run.memtrace");
    let trace = Trace::victim(&victim).option("-o").option(&path).option("--record").option(&recording);
    let mut tracer = trace.options(&["--every", "1h"]).start();
    let pid = tracer.process().pid();
    let tracing = documented(&["the probes are removed", REPORT]);
    let threads = ["memtrace", "memtrace-shard-", "recording", "memtrace-sites"];
    poll::until(|| compare_threads(pid, tracing, &threads));
    let expected = victim.work();
    tracer.process().signal(libc::SIGINT);
    wait_until_full(&pipe);
    // Threads that remove the probes may still run. They end soon.
    let at_end = documented(&[REPORT]);
    poll::until(|| compare_threads(pid, at_end, &["memtrace"]));
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let mut buffer = [0; PIPE as usize];
        while !text.ends_with(b"\n}\n") {
            let length = pipe.read(&mut buffer).expect("the pipe is open");
            text.extend_from_slice(&buffer[..length]);
        }
        String::from_utf8(text).expect("JSON is text")
    });
    tracer.wait().report().assert_equals(&expected);
    let text = reader.join().expect("the reader ends");
    Report::read(&text).expect("it is a report").assert_equals(&expected);
    victim.finish();
}

#[test]
fn report_reaches_the_private_directory_of_another_user() {
    let scratch = Scratch::new();
    let directory = scratch.subdirectory("private");
    let replaced = directory.join("replaced.json");
    fs::write(&replaced, "earlier").expect("the file is written");
    fs::set_permissions(&replaced, Permissions::from_mode(0o640)).expect("the file is ours");
    for path in [&replaced, &directory] {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("the test is root");
    }
    fs::set_permissions(&directory, Permissions::from_mode(0o700)).expect("the test is root");
    let mut victim = victim::start("exact");
    let new = directory.join("new.json");
    let tracer = Trace::victim(&victim).option("-o").option(&new).option("-o").option(&replaced).start();
    let expected = victim.work();
    tracer.stop().assert_code(0);
    victim.finish();
    for path in [&new, &replaced] {
        read(path).assert_equals(&expected);
    }
    let metadata = fs::metadata(&replaced).expect("the report exists");
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (NOBODY, NOBODY, 0o640));
}

fn read(path: &Path) -> Report {
    Report::read(&fs::read_to_string(path).expect("the report exists")).expect("it is a report")
}

#[test]
fn other_processes_of_the_user_cannot_read_memtrace() {
    let scratch = Scratch::new();
    let mut victim = victim::start("exact");
    let nobody = NOBODY.to_string();
    let given = "+sys_admin,+sys_ptrace,+dac_read_search";
    let capabilities = [format!("--inh-caps={given}"), format!("--ambient-caps={given}")];
    let wrapper =
        ["setpriv", "--reuid", &nobody, "--regid", &nobody, "--clear-groups", &capabilities[0], &capabilities[1]];
    let copy = scratch.copy(memtrace_tests::tracer::binary(), "memtrace");
    let mut tracer = Trace::victim(&victim).binary(&copy).wrapped_in(&wrapper).start();
    let pid = tracer.process().pid();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("memtrace runs");
    assert!(status.contains(&format!("Uid:\t{nobody}\t{nobody}")), "{status}");
    // If a process is not dumpable, its files in `/proc` belong to root (proc_pid(5)).
    assert_eq!(fs::metadata(format!("/proc/{pid}/status")).expect("memtrace runs").uid(), 0);
    let expected = victim.work();
    tracer.stop().report().assert_equals(&expected);
    victim.finish();
}

/// Returns the scheduling policy and the real-time priority of memtrace's threads that read events (proc_pid_stat(5)).
fn policies(pid: u32) -> Vec<(u32, u32)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("memtrace runs");
    let stats = threads.map(|thread| thread.expect("a thread").path().join("stat"));
    let texts = stats.map(|stat| fs::read_to_string(stat).expect("the thread runs"));
    texts
        .filter(|text| text.contains("(memtrace-shard"))
        .map(|text| {
            let (_, fields) = text.rsplit_once(") ").expect("the name ends");
            let fields: Vec<&str> = fields.split(' ').collect();
            let field = |number: usize| fields[number - 3].parse().expect("a number");
            (field(41), field(40))
        })
        .collect()
}

#[test]
fn real_time_priority_of_readers_is_an_option() {
    const FIFO: u32 = 1;
    let victim = victim::start("exact");
    for (options, expected) in [(&[][..], (0, 0)), (&["--realtime", "7"][..], (FIFO, 7))] {
        let mut tracer = Trace::victim(&victim).options(options).start();
        let found = policies(tracer.process().pid());
        assert!(!found.is_empty() && found.iter().all(|policy| *policy == expected), "{found:?}");
        let _ = tracer.stop().report();
    }
    let mut refused = Trace::victim(&victim).options(&["--realtime", "7"]);
    refused = refused.wrapped_in(&["setpriv", "--bounding-set", "-sys_nice", "--inh-caps", "-sys_nice"]);
    refused.without_waiting().run().assert_refused(4, &["--realtime", "CAP_SYS_NICE"]);
}
