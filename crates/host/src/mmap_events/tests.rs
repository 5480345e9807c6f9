use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use memtrace_model::{AbsAddr, FileOffset};

use super::record::tests::{comm, exec, exit, fork, lost};
use super::*;

fn deliver(queue: &mut Queue, horizon: u64) -> (Vec<(u32, MmapEventKind)>, u64) {
    let mut events = Vec::new();
    let lost = queue.deliver(horizon, |event| events.push((event.pid.0, event.kind)));
    (events, lost)
}

fn exec_of(comm: &str) -> MmapEventKind {
    MmapEventKind::Exec { comm: String::from(comm) }
}

#[test]
fn events_are_sorted_by_time_up_to_the_horizon() {
    let mut queue = Queue::default();
    queue.follow(Pid(1));
    for (time, comm) in [(30, "third"), (10, "first"), (40, "fourth"), (20, "second")] {
        queue.push(&exec(1, comm, time));
    }
    let (events, _) = deliver(&mut queue, 30);
    assert_eq!(events, [(1, exec_of("first")), (1, exec_of("second")), (1, exec_of("third"))]);
    assert_eq!(deliver(&mut queue, 40).0, [(1, exec_of("fourth"))]);
    assert_eq!(deliver(&mut queue, 100).0, []);
}

#[test]
fn followed_processes_and_their_children_are_delivered() {
    let mut queue = Queue::default();
    queue.follow(Pid(1));
    for bytes in [exec(9, "foreign", 1), fork(2, 1, 2), fork(3, 9, 3), exec(2, "child", 4), exec(3, "other", 5)] {
        queue.push(&bytes);
    }
    assert_eq!(deliver(&mut queue, 10).0, [(2, MmapEventKind::Fork { parent: Pid(1) }), (2, exec_of("child"))]);
}

#[test]
fn a_pid_is_followed_until_it_is_reused() {
    let mut queue = Queue::default();
    queue.follow(Pid(2));
    for bytes in [fork(2, 9, 1), exec(2, "ours", 2), exit(2, 3), exec(2, "thread", 4), fork(2, 9, 5), exec(2, "x", 6)] {
        queue.push(&bytes);
    }
    let expected = [
        (2, MmapEventKind::Fork { parent: Pid(9) }),
        (2, exec_of("ours")),
        (2, MmapEventKind::Exit),
        (2, exec_of("thread")),
    ];
    assert_eq!(deliver(&mut queue, 10).0, expected);
}

#[test]
fn names_of_threads_are_delivered_on_request() {
    let name = |comm: &str| MmapEventKind::Comm { comm: String::from(comm) };
    for (follows, expected) in [(false, vec![(1, name("main"))]), (true, vec![(1, name("main")), (1, name("worker"))])]
    {
        let mut queue = Queue { follows_threads: follows, ..Queue::default() };
        queue.follow(Pid(1));
        queue.push(&comm(1, 1, "main", 1));
        queue.push(&comm(1, 7, "worker", 2));
        assert_eq!(deliver(&mut queue, 10).0, expected);
    }
}

#[test]
fn lost_records_are_counted_once() {
    let mut queue = Queue::default();
    queue.push(&lost(7));
    queue.push(&lost(5));
    queue.push(&[1, 2, 3]);
    assert_eq!(deliver(&mut queue, 0), (Vec::new(), 13));
    assert_eq!(deliver(&mut queue, 0), (Vec::new(), 0));
}

fn open() -> MmapEvents {
    // SAFETY: the call has no conditions.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let cpus: Vec<u32> = (0..u32::try_from(count).unwrap()).collect();
    MmapEvents::open(&cpus, LARGEST_RING)
        .expect("perf_event_open for all processes requires root or CAP_PERFMON: run this test as root")
}

/// Runs `command` until it exits. Returns its pid, output and events.
fn traced(command: &mut Command) -> (u32, String, Vec<MmapEvent>) {
    let mut reader = open();
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    reader.follow(Pid(pid));
    let output = child.wait_with_output().unwrap();
    let mut events = Vec::new();
    let lost = reader.drain(|event| events.push(event)).unwrap();
    assert_eq!(lost, 0);
    (pid, String::from_utf8(output.stdout).unwrap(), events)
}

#[test]
fn privileged_code_mappings_of_a_short_command_equal_its_maps() {
    type Mapped = (AbsAddr, AbsAddr, FileOffset, PathBuf);
    let (_, maps, events) = traced(Command::new("/bin/cat").arg("/proc/self/maps"));
    let expected: BTreeSet<Mapped> = maps
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields[1].contains('x') && fields.get(5).is_some_and(|path| path.starts_with('/')))
        .map(|fields| {
            let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
            let (start, end) = fields[0].split_once('-').unwrap();
            (AbsAddr(number(start)), AbsAddr(number(end)), FileOffset(number(fields[2])), PathBuf::from(fields[5]))
        })
        .collect();
    assert!(expected.iter().any(|mapped| mapped.3.to_string_lossy().contains("/libc")), "{maps}");
    let after_exec = events.iter().position(|event| matches!(event.kind, MmapEventKind::Exec { .. })).unwrap();
    let recorded: BTreeSet<Mapped> = events[after_exec..]
        .iter()
        .filter_map(|event| match &event.kind {
            MmapEventKind::Mapped { start, end, offset, path, .. } => Some((*start, *end, *offset, path.clone())),
            _ => None,
        })
        // Exclude special names such as `[vdso]` and `//anon`.
        .filter(|mapped| mapped.3.to_string_lossy().starts_with('/') && !mapped.3.to_string_lossy().starts_with("//"))
        .collect();
    assert_eq!(recorded, expected);
}

#[test]
fn privileged_events_of_a_process_are_in_order() {
    let (pid, _, events) = traced(&mut Command::new("/bin/true"));
    assert!(events.iter().all(|event| event.pid == Pid(pid)));
    assert!(events.is_sorted_by_key(|event| event.time_ns));
    let position = |kind: &MmapEventKind| events.iter().position(|event| event.kind == *kind);
    assert_eq!(position(&MmapEventKind::Fork { parent: Pid(std::process::id()) }), Some(0));
    let exec = position(&exec_of("true")).unwrap();
    assert_eq!(position(&MmapEventKind::Exit), Some(events.len() - 1));
    let program = events
        .iter()
        .position(|event| matches!(&event.kind, MmapEventKind::Mapped { path, .. } if path.ends_with("bin/true")));
    assert!(program.unwrap() > exec);
}

#[test]
fn privileged_files_are_identified_by_build_id() {
    let (_, _, events) = traced(&mut Command::new("/bin/true"));
    let libc = events.iter().find_map(|event| match &event.kind {
        MmapEventKind::Mapped { path, identity, .. } if path.to_string_lossy().contains("/libc") => {
            Some((path, identity))
        }
        _ => None,
    });
    let (path, identity) = libc.unwrap();
    let FileIdentity::BuildId(build_id) = identity else { panic!("{identity:?}") };
    let notes = Command::new("readelf").arg("-n").arg(path).output().unwrap();
    let notes = String::from_utf8(notes.stdout).unwrap();
    assert!(notes.contains(&format!("Build ID: {build_id}")), "{build_id} is not in {notes}");
}
