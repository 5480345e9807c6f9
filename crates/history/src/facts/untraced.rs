//! Processes that are not traced, as facts of a history.

use std::collections::BTreeMap;
use std::path::PathBuf;

use memtrace_model::{Bytes, Comm, EventClass, Pid, ProcessMemory, Untraced, UntracedProcess, UntracedReason};

use crate::interval::{Fact, FactValue};

/// Separator between the name of a process and the path of its executable.
const SEPARATOR: char = '\u{1f}';

/// Returns the topics of an event class: the topic of the sums by reason, and the topic of the processes.
pub(super) const fn topics(class: EventClass) -> [&'static str; 2] {
    match class {
        EventClass::Heap => ["untraced_heap", "untraced_heap_process"],
        EventClass::Map => ["untraced_map", "untraced_map_process"],
        EventClass::Fault => ["untraced_fault", "untraced_fault_process"],
        EventClass::Reclaim => ["untraced_reclaim", "untraced_reclaim_process"],
    }
}

/// Returns the facts of the processes that are not traced in `class`.
pub(super) fn facts(class: EventClass, untraced: &Untraced) -> Vec<Fact> {
    let [sums, processes] = topics(class);
    let mut facts = Vec::new();
    for reason in UntracedReason::ALL {
        let memory = untraced.with_reason(reason);
        if memory.processes > 0 {
            let value = FactValue::Text(format!("{} {}", memory.processes, memory.rss.0));
            facts.push(Fact { topic: sums.into(), item: reason.name().into(), value });
        }
    }
    // Leading zeros keep the order of the processes, because items are sorted as text.
    facts.extend(untraced.listed().iter().enumerate().map(|(index, process)| Fact {
        topic: processes.into(),
        item: format!("{index:04}").into(),
        value: FactValue::Text(text(process)),
    }));
    facts
}

/// Returns the processes that [`facts`] has recorded. Damaged rows are left out.
pub(super) fn read<'a>(
    sums: impl Iterator<Item = (&'a str, &'a str)>,
    processes: impl Iterator<Item = &'a str>,
) -> Untraced {
    let by_reason = sums.filter_map(|(reason, text)| {
        let (processes, rss) = text.split_once(' ')?;
        let memory = ProcessMemory { processes: processes.parse().ok()?, rss: Bytes(rss.parse().ok()?) };
        Some((reason_of(reason)?, memory))
    });
    let by_reason: BTreeMap<_, _> = by_reason.collect();
    Untraced::from_parts(processes.filter_map(process).collect(), by_reason)
}

fn text(process: &UntracedProcess) -> String {
    let UntracedProcess { pid, comm, exe, reason, rss } = process;
    let rss = rss.map_or_else(|| String::from("-"), |rss| rss.0.to_string());
    let exe = exe.as_ref().map_or_else(String::new, |exe| format!("{SEPARATOR}{}", exe.to_string_lossy()));
    // A process chooses its name, so the name can contain the separator.
    let comm = comm.raw().replace(SEPARATOR, "\u{fffd}");
    format!("{pid} {} {rss} {comm}{exe}", reason.name())
}

fn process(text: &str) -> Option<UntracedProcess> {
    let mut parts = text.splitn(4, ' ');
    let (pid, reason, rss, names) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let (comm, exe) = match names.split_once(SEPARATOR) {
        Some((comm, exe)) => (comm, Some(PathBuf::from(exe))),
        None => (names, None),
    };
    Some(UntracedProcess {
        pid: Pid(pid.parse().ok()?),
        comm: Comm::from(comm),
        exe,
        reason: reason_of(reason)?,
        rss: rss.parse().ok().map(Bytes),
    })
}

fn reason_of(name: &str) -> Option<UntracedReason> {
    UntracedReason::ALL.into_iter().find(|reason| reason.name() == name)
}
