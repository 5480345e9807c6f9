//! Conversion of the intervals of the monitor.

use std::time::Duration;

use memtrace_model::{
    Comm, ImageEnd, ImageId, LossReason, Pid, ProcessInterval, TaskState, ThreadsEvent, ThreadsEventKind,
    ThreadsInterval, Tid,
};

use super::thread_model::{SERVER, monitored, recorder};
use crate::*;

const SERVER_IMAGE: ImageId = ImageId { pid: SERVER, ordinal: 0 };

/// Returns the interval of a second. All these intervals have the same threads and values, and no usage.
fn idle(second: u64) -> ThreadsInterval {
    let mut interval = monitored(0, 3);
    interval.span = Duration::from_secs(second)..Duration::from_secs(second + 1);
    interval.events.clear();
    interval.processes.truncate(1);
    for process in &mut interval.processes {
        *process =
            ProcessInterval { usage: Default::default(), ended: Default::default(), started: 0, ..process.clone() };
        process.threads.iter_mut().for_each(|thread| thread.usage = Default::default());
    }
    interval.machine = Default::default();
    interval
}

fn ended(interval: &Interval) -> Vec<(u64, Option<Duration>)> {
    interval.monitored.iter().map(|thread| (thread.number.0, thread.end)).collect()
}

#[test]
fn unchanged_threads_take_no_rows() {
    let mut recorder = recorder();
    let first = recorder.convert(&idle(0));
    assert_eq!((first.monitored.len(), first.threads.len(), first.process_usage.len()), (3, 3, 1));
    let start = first.monitored[0].start_ns;
    assert_eq!(start, 5 - 1000 * 1_000_000_000, "the thread is older than the monitor");
    let second = recorder.convert(&idle(1));
    assert_eq!(second, Interval { span: second.span.clone(), ..Interval::default() });
}

#[test]
fn missing_threads_have_ended_unless_others_can_be_they() {
    let mut recorder = recorder();
    recorder.convert(&idle(0));
    let mut limited = idle(1);
    limited.processes[0].threads.truncate(1);
    limited.processes[0].others.count = 1;
    // Two threads are missing. One of them can be the thread without a row.
    let end = Some(Duration::from_secs(2));
    assert_eq!(ended(&recorder.convert(&limited)), [(2, end)]);
    let mut back = idle(2);
    back.processes[0].threads.remove(1);
    assert_eq!(ended(&recorder.convert(&back)), []);
}

#[test]
fn listed_threads_that_ended_have_their_last_usage() {
    let mut recorder = recorder();
    recorder.convert(&idle(0));
    let end = |second| Some(Duration::from_secs(second));
    let mut some = idle(1);
    let threads = &mut some.processes[0].threads;
    threads[1].state = TaskState::Dead;
    let mut short = threads[1].clone();
    short.thread.tid = Tid(9999);
    threads.push(short.clone());
    let recorded = recorder.convert(&some);
    // The process has the usage of the thread that lived for less than an interval.
    assert_eq!((ended(&recorded), recorded.process_usage[0].ended_threads), (vec![(2, end(2))], 2));
    let rows: Vec<_> = recorded.threads.iter().map(|row| (row.thread.0, row.state)).collect();
    assert_eq!(rows, [(2, TaskState::Dead)]);
    let mut all = idle(2);
    let process = &mut all.processes[0];
    process.has_exited = true;
    process.threads[1] = short;
    process.threads.iter_mut().for_each(|thread| thread.state = TaskState::Dead);
    let recorded = recorder.convert(&all);
    assert_eq!(ended(&recorded), [(4, None), (1, end(3)), (3, end(3)), (4, end(3))]);
    assert_eq!((recorded.threads.len(), recorded.process_usage[0].ended_threads), (3, 3));
}

#[test]
fn reused_ids_are_other_processes_with_other_threads() {
    let mut recorder = recorder();
    recorder.convert(&idle(0));
    let mut reused = idle(1);
    reused.processes[0].start_ns = 1001 * 1_000_000_000;
    reused.processes[0].threads.truncate(1);
    reused.processes[0].threads[0].thread.start_ns = 1001 * 1_000_000_000;
    let interval = recorder.convert(&reused);
    let end = Some(Duration::from_secs(2));
    assert_eq!(ended(&interval), [(1, end), (2, end), (3, end), (4, None)]);
    assert_eq!(interval.finished, [SERVER_IMAGE]);
    let images: Vec<_> = interval.images.iter().map(|image| (image.id.ordinal, image.ended.is_some())).collect();
    assert_eq!(images, [(0, true), (1, false)]);
    let missing = ThreadsInterval { processes: Vec::new(), ..idle(2) };
    assert_eq!(recorder.convert(&missing).finished, [ImageId { ordinal: 1, ..SERVER_IMAGE }]);
}

#[test]
fn killed_process_ends_by_the_oom_killer() {
    let mut recorder = recorder();
    recorder.convert(&idle(0));
    let at = Duration::from_millis(1600);
    let event = |kind| ThreadsEvent { at, kind };
    let mut killed = idle(1);
    killed.events = vec![event(ThreadsEventKind::OomKill(SERVER)), event(ThreadsEventKind::OomKill(Pid(7)))];
    let interval = recorder.convert(&killed);
    let kills: Vec<_> = interval.oom_kills.iter().map(|kill| (kill.victim, kill.comm.as_str())).collect();
    assert_eq!(kills, [(SERVER_IMAGE, "p100"), (ImageId { pid: Pid(7), ordinal: 0 }, "")]);
    let mut exited = idle(2);
    exited.processes[0].has_exited = true;
    exited.events = vec![ThreadsEvent { at: Duration::from_millis(2500), kind: ThreadsEventKind::Exit(SERVER) }];
    let interval = recorder.convert(&exited);
    let (kind, at) = interval.images[0].ended.unwrap();
    assert_eq!((kind, at.since_start().as_millis()), (ImageEnd::OomKill, 2499));
    assert!(interval.monitored.iter().all(|thread| thread.end == Some(Duration::from_millis(2500))));
    assert_eq!(interval.samples, []);
}

#[test]
fn new_names_are_recorded_once() {
    let mut recorder = recorder();
    recorder.convert(&idle(0));
    let mut renamed = idle(1);
    renamed.processes[0].comm = Comm::from("new");
    renamed.processes[0].threads[2].comm = Comm::from("worker");
    let interval = recorder.convert(&renamed);
    assert_eq!(interval.images[0].comm, "new");
    assert_eq!((interval.monitored.len(), &interval.monitored[0].name), (1, &Comm::from("worker")));
    assert_eq!(recorder.convert(&ThreadsInterval { span: idle(2).span, ..renamed }).monitored, []);
}

#[test]
fn marks_beyond_the_limit_are_counted() {
    let mut recorder = recorder();
    let mut interval = idle(0);
    let trigger = |at| ThreadsEvent { at: Duration::from_micros(at), kind: ThreadsEventKind::Trigger(at.to_string()) };
    interval.events = (0..100_003).map(trigger).collect();
    let recorded = recorder.convert(&interval);
    assert_eq!((recorded.marks.len(), recorded.losses.get(LossReason::MarkLost)), (100_000, 3));
    assert_eq!((recorded.marks[0].text.as_str(), recorded.marks[0].epoch), ("trigger: 0", 1));
}
