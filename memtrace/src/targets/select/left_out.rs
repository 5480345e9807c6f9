//! Processes of other memtraces, which a selection by properties leaves out.

use std::collections::BTreeMap;

use memtrace_host::kernel::Memtraces;
use memtrace_model::{Comm, Pid, format};

use super::config::Target;

/// Maximum number of processes that the note names.
const MAX_NAMED: usize = 16;

/// Processes of memtraces that a run leaves out.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// Memtraces that ran at the start.
    memtraces: Memtraces,
    /// True if the processes are selected by their properties.
    is_used: bool,
    /// Processes of other memtraces that have run.
    others: BTreeMap<Pid, Comm>,
}

impl LeftOut {
    /// Finds the processes of memtraces that run. Processes that are selected by their pids are never left out.
    pub(crate) fn find(target: &Target) -> Self {
        if !matches!(target, Target::Selected { .. }) {
            return Self::default();
        }
        let memtraces = Memtraces::find();
        let others = others(&memtraces, &memtraces).collect();
        Self { memtraces, is_used: true, others }
    }

    /// Finds the processes that have started since.
    pub(crate) fn update(&mut self) {
        if self.is_used {
            self.others.extend(others(&self.memtraces, &Memtraces::find()));
        }
    }

    /// Returns the memtraces that ran at the start, for the filter of a run.
    pub(crate) const fn memtraces(&self) -> &Memtraces {
        &self.memtraces
    }

    /// Returns a sentence that names the processes of other memtraces; `None` if there were none.
    pub(crate) fn note(&self) -> Option<String> {
        if self.memtraces.is_cut() {
            let cut = "other memtraces can be traced, because the search for them took too long";
            return Some(note(&self.others).map_or_else(|| cut.to_owned(), |note| format!("{note}; {cut}")));
        }
        note(&self.others)
    }
}

/// Returns the processes of other memtraces in `now` that a filter by `known` leaves out.
fn others<'a>(known: &'a Memtraces, now: &'a Memtraces) -> impl Iterator<Item = (Pid, Comm)> + 'a {
    let others = now.processes().iter().filter(move |process| !process.is_own && known.leaves_out(process));
    others.map(|process| (process.pid, process.comm.clone()))
}

fn note(others: &BTreeMap<Pid, Comm>) -> Option<String> {
    if others.is_empty() {
        return None;
    }
    let names = format::limited_list(others.iter().map(|(pid, comm)| format!("{pid} ({comm})")), MAX_NAMED);
    let (one, many) = ("process of other memtraces is left out", "processes of other memtraces are left out");
    Some(format!("{}: {names}", format::counted(others.len() as u64, one, many)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_named_up_to_a_limit() {
        let others =
            |count: u32| -> BTreeMap<_, _> { (1..=count).map(|pid| (Pid(pid), Comm::from("memtrace"))).collect() };
        assert_eq!(note(&others(0)), None);
        assert_eq!(note(&others(1)).as_deref(), Some("1 process of other memtraces is left out: 1 (memtrace)"));
        let named = note(&others(2)).unwrap();
        assert_eq!(named, "2 processes of other memtraces are left out: 1 (memtrace), 2 (memtrace)");
        let limited = note(&others(20)).unwrap();
        assert!(limited.starts_with("20 processes ") && limited.ends_with("16 (memtrace), 4 more"), "{limited}");
    }

    #[test]
    fn processes_that_are_selected_by_pid_are_not_left_out() {
        let left_out = LeftOut::find(&Target::Pids { pids: vec![Pid(1)], children: true });
        assert_eq!((left_out.memtraces(), left_out.note()), (&Memtraces::default(), None));
    }
}
