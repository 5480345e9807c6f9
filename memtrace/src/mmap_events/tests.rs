use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::record::tests::{exec, exit, fork, lost};
use super::*;
use crate::model::{AbsAddr, FileOffset};

fn deliver(queue: &mut Queue, horizon: u64) -> (Vec<(u32, MappingKind)>, u64) {
    let mut notices = Vec::new();
    let lost = queue.deliver(horizon, |notice| notices.push((notice.pid.0, notice.kind)));
    (notices, lost)
}

fn ran(comm: &str) -> MappingKind {
    MappingKind::Exec { comm: String::from(comm) }
}

#[test]
fn records_of_several_rings_come_in_the_order_of_time_and_the_youngest_wait() {
    let mut queue = Queue::default();
    queue.follow(Pid(1));
    for (time, comm) in [(30, "third"), (10, "first"), (40, "fourth"), (20, "second")] {
        queue.push(&exec(1, comm, time));
    }
    let (notices, _) = deliver(&mut queue, 30);
    assert_eq!(notices, [(1, ran("first")), (1, ran("second")), (1, ran("third"))]);
    assert_eq!(deliver(&mut queue, 40).0, [(1, ran("fourth"))]);
    assert_eq!(deliver(&mut queue, 100).0, []);
}

#[test]
fn only_followed_processes_and_those_they_fork_are_kept() {
    let mut queue = Queue::default();
    queue.follow(Pid(1));
    for bytes in [exec(9, "foreign", 1), fork(2, 1, 2), fork(3, 9, 3), exec(2, "child", 4), exec(3, "other", 5)] {
        queue.push(&bytes);
    }
    assert_eq!(deliver(&mut queue, 10).0, [(2, MappingKind::Fork { parent: Pid(1) }), (2, ran("child"))]);
}

#[test]
fn a_pid_is_followed_until_it_names_another_process() {
    let mut queue = Queue::default();
    queue.follow(Pid(2));
    for bytes in [fork(2, 9, 1), exec(2, "ours", 2), exit(2, 3), exec(2, "thread", 4), fork(2, 9, 5), exec(2, "x", 6)] {
        queue.push(&bytes);
    }
    let expected =
        [(2, MappingKind::Fork { parent: Pid(9) }), (2, ran("ours")), (2, MappingKind::Exit), (2, ran("thread"))];
    assert_eq!(deliver(&mut queue, 10).0, expected);
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

fn privileged() -> MappingEvents {
    MappingEvents::open().expect("perf_event_open for all processes needs root or CAP_PERFMON: run this test as root")
}

/// Runs `command` to its end and gives its output and what the kernel told of it.
fn traced(command: &mut Command) -> (u32, String, Vec<MmapEvent>) {
    let mut events = privileged();
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    events.follow(Pid(pid));
    let output = child.wait_with_output().unwrap();
    let mut notices = Vec::new();
    let lost = events.drain(|notice| notices.push(notice)).unwrap();
    assert_eq!(lost, 0);
    (pid, String::from_utf8(output.stdout).unwrap(), notices)
}

#[test]
fn privileged_every_code_mapping_of_a_short_lived_process_is_told_as_its_own_maps_file_shows_it() {
    type Mapped = (AbsAddr, AbsAddr, FileOffset, PathBuf);
    let (_, maps, notices) = traced(Command::new("/bin/cat").arg("/proc/self/maps"));
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
    let after_exec = notices.iter().position(|notice| matches!(notice.kind, MappingKind::Exec { .. })).unwrap();
    let told: BTreeSet<Mapped> = notices[after_exec..]
        .iter()
        .filter_map(|notice| match &notice.kind {
            MappingKind::Mapped { start, end, offset, path, .. } => Some((*start, *end, *offset, path.clone())),
            _ => None,
        })
        // `[vdso]` and `//anon` are the kernel's own names.
        .filter(|mapped| mapped.3.to_string_lossy().starts_with('/') && !mapped.3.to_string_lossy().starts_with("//"))
        .collect();
    assert_eq!(told, expected);
}

#[test]
fn privileged_a_process_is_told_from_fork_to_exit_in_order() {
    let (pid, _, notices) = traced(&mut Command::new("/bin/true"));
    assert!(notices.iter().all(|notice| notice.pid == Pid(pid)));
    assert!(notices.is_sorted_by_key(|notice| notice.time_ns));
    let place = |wanted: &MappingKind| notices.iter().position(|notice| notice.kind == *wanted);
    assert_eq!(place(&MappingKind::Fork { parent: Pid(std::process::id()) }), Some(0));
    let exec = place(&ran("true")).unwrap();
    assert_eq!(place(&MappingKind::Exit), Some(notices.len() - 1));
    let of_program = notices
        .iter()
        .position(|notice| matches!(&notice.kind, MappingKind::Mapped { path, .. } if path.ends_with("bin/true")));
    assert!(of_program.unwrap() > exec);
}

#[test]
fn privileged_a_mapped_file_is_told_by_its_build_id_where_the_kernel_can() {
    let (_, _, notices) = traced(&mut Command::new("/bin/true"));
    let libc = notices.iter().find_map(|notice| match &notice.kind {
        MappingKind::Mapped { path, identity, .. } if path.to_string_lossy().contains("/libc") => {
            Some((path, identity))
        }
        _ => None,
    });
    let (path, identity) = libc.unwrap();
    assert_eq!(matches!(identity, FileIdentity::BuildId(_)), privileged().name_build_ids());
    match identity {
        FileIdentity::BuildId(told) => {
            let notes = Command::new("readelf").arg("-n").arg(path).output().unwrap();
            let notes = String::from_utf8(notes.stdout).unwrap();
            assert!(notes.contains(&format!("Build ID: {told}")), "{told} is not in {notes}");
        }
        FileIdentity::Inode { inode, .. } => assert_eq!(*inode, path.metadata().unwrap().ino()),
    }
}
