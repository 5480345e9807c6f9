//! Describes events of the thread monitor in words.

use memtrace_model::{Comm, Pid, ThreadsEventKind};

use crate::escape;

/// Describes an event in words, without control characters. `name` returns the short name of a process, if known.
pub(super) fn text<'a>(kind: &ThreadsEventKind, name: impl Fn(Pid) -> Option<&'a Comm>) -> String {
    let process = |pid: Pid| match name(pid) {
        Some(comm) => format!("{} ({pid})", escape::visible(comm.raw())),
        None => format!("process {pid}"),
    };
    match kind {
        ThreadsEventKind::OomKill(pid) => format!("OOM kill of {}", process(*pid)),
        ThreadsEventKind::Exit(pid) => format!("exit of {}", process(*pid)),
        ThreadsEventKind::Mark(text) => format!("mark: {}", escape::visible(text)),
        ThreadsEventKind::Trigger(text) => format!("trigger: {}", escape::visible(text)),
    }
}
