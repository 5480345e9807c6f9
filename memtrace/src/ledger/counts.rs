//! What the kernel itself counts of processes, as the books of their pages tell it.

use super::{Ledger, Process};
use crate::model::{ImageEnd, ImageRusage, ImageUsage, Pid, Rusage};

/// What is known of a process' counts while it runs a program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// When it began to run the program, where that was heard of.
    begin: Option<Rusage>,
    /// When it is about to run another one, or to end.
    end: Option<Rusage>,
}

impl Counts {
    /// Its program ends; says what was counted of it, and goes on with the next one.
    pub(super) fn end(&mut self, ending: ImageEnd) -> ImageRusage {
        let Self { begin, end } = std::mem::take(self);
        // Whoever comes to have the pid of a process that has ended begins anew.
        self.begin = end.filter(|_| ending == ImageEnd::Exec);
        ImageRusage { begin, end }
    }
}

impl Ledger {
    /// The kernel has counted so much of `pid`, whose program is about to end.
    pub(super) fn count(&mut self, pid: Pid, counts: Option<Rusage>, is_traced: bool) {
        let Some(process) = self.find_or_add(pid).and_then(|index| self.processes.get_mut(index)) else { return };
        process.counts.end = counts;
        // There are books of it even where none of its pages were in the sample.
        if is_traced && let Some((image, _)) = self.image_of(pid) {
            image.pages.get_or_insert_default();
        }
    }
}

/// The books of the pages of what `process` runs; `None` where nothing is known of them.
pub(super) fn of_pages(process: &Process) -> Option<ImageUsage> {
    let image = process.image.as_ref();
    let pages = image.and_then(|image| image.pages.as_ref()).map(|pages| pages.usage(None));
    if pages.is_none() && process.counts.begin.is_none() {
        return None;
    }
    let counts = ImageRusage { begin: process.counts.begin, end: None };
    Some(ImageUsage { copy_of: image.and_then(|image| image.copy_of), counts, ..pages.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Settings;
    use crate::model::{Bytes, Event, EventClass, EventKind, ImageId, PageFaults, PartitionBy, Tick, Tid};

    const PID: Pid = Pid(7);

    fn counts(minor: u64) -> Option<Rusage> {
        Some(Rusage { faults: PageFaults { minor, major: 0 }, peak_rss: Bytes(0) })
    }

    fn counted(minor: u64, is_traced: bool) -> EventKind {
        EventKind::Rusage { counts: counts(minor), is_traced }
    }

    /// Of each image that has books of its pages, what was counted at its beginning and at its end.
    fn books(events: impl IntoIterator<Item = EventKind>) -> Vec<(u32, Option<ImageEnd>, ImageRusage)> {
        let mut ledger = Ledger::new(Settings {
            blocks: 10,
            stacks: 10,
            processes: 10,
            track_peak: false,
            older: None,
            parts: PartitionBy::Whole,
        });
        for kind in events {
            ledger.apply(Event { pid: PID, tid: Tid(7), tick: Tick(0), kind });
        }
        let images = ledger.finish(EventClass::Fault, Tick(0)).images.into_iter();
        images.map(|(ImageId { ordinal, .. }, usage)| (ordinal, usage.ended, usage.counts)).collect()
    }

    #[test]
    fn a_program_begins_with_what_the_one_before_it_ended_with() {
        let events = [counted(20, true), EventKind::Exec, counted(50, true), EventKind::Exit];
        let first = ImageRusage { begin: None, end: counts(20) };
        let second = ImageRusage { begin: counts(20), end: counts(50) };
        assert_eq!(books(events), [(0, Some(ImageEnd::Exec), first), (1, Some(ImageEnd::Exit), second)]);
    }

    #[test]
    fn of_whom_is_not_traced_only_the_next_program_s_beginning_is_told() {
        let begun = ImageRusage { begin: counts(20), end: None };
        assert_eq!(books([counted(20, false), EventKind::Exec]), [(1, None, begun)]);
        assert_eq!(books([counted(20, false), EventKind::Exit]), []);
    }

    #[test]
    fn who_has_the_pid_of_one_that_has_ended_begins_anew() {
        let events = [counted(20, false), EventKind::Exit, counted(5, true), EventKind::Exit];
        let anew = ImageRusage { begin: None, end: counts(5) };
        assert_eq!(books(events), [(1, Some(ImageEnd::Exit), anew)]);
    }

    #[test]
    fn what_could_not_be_read_is_not_known_of_the_next_program_either() {
        let unknown = EventKind::Rusage { counts: None, is_traced: true };
        let events = [unknown, EventKind::Exec, counted(50, true), EventKind::Exit];
        let ends: Vec<_> = books(events).into_iter().map(|(_, _, counts)| counts.faults()).collect();
        assert_eq!(ends, [None, None]);
    }
}
