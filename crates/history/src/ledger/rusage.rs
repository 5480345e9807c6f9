//! Rusage of images. The kernel counts it for each process, which can run several images.

use memtrace_model::{ImageEnd, ImageRusage, Rusage};

/// Rusage at the start and the end of the current image of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RusageBounds {
    /// Rusage at the exec that started the image, if recorded.
    pub(super) begin: Option<Rusage>,
    /// Rusage just before the exec or exit that ends the image, if recorded.
    pub(super) end: Option<Rusage>,
}

impl RusageBounds {
    /// Ends the image and starts the next one. Returns the rusage of the ended image.
    pub(super) fn end_image(&mut self, ending: ImageEnd) -> ImageRusage {
        let Self { begin, end } = std::mem::take(self);
        // After an exit, the pid belongs to another process.
        self.begin = end.filter(|_| ending == ImageEnd::Exec);
        ImageRusage { begin, end }
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{Bytes, Event, EventClass, EventKind, ImageId, PageFaults, PartKeys, Pid, Tick, Tid};

    use super::*;
    use crate::ledger::{Ledger, Settings};

    const PID: Pid = Pid(7);

    fn rusage(minor: u64) -> Option<Rusage> {
        Some(Rusage { faults: PageFaults { minor, major: 0 }, peak_rss: Bytes(0) })
    }

    fn recorded(minor: u64, is_traced: bool) -> EventKind {
        EventKind::Rusage { counts: rusage(minor), is_traced }
    }

    /// Ordinal, end and rusage of each image.
    fn images(events: impl IntoIterator<Item = EventKind>) -> Vec<(u32, Option<ImageEnd>, ImageRusage)> {
        let mut ledger = Ledger::new(Settings {
            blocks: 10,
            stacks: 10,
            processes: 10,
            track_peak: false,
            older: None,
            lifetimes: false,
            page_sample: 1,
            parts: PartKeys::NONE,
            accounts: None,
        });
        for kind in events {
            ledger.apply(&Event { pid: PID, tid: Tid(7), tick: Tick(0), kind });
        }
        let images = ledger.finish(EventClass::Fault, Tick(0)).images.into_iter();
        images.map(|(ImageId { ordinal, .. }, usage)| (ordinal, usage.ended, usage.counts)).collect()
    }

    #[test]
    fn an_image_after_exec_starts_with_the_rusage_at_exec() {
        let events = [recorded(20, true), EventKind::Exec, recorded(50, true), EventKind::Exit];
        let first = ImageRusage { begin: None, end: rusage(20) };
        let second = ImageRusage { begin: rusage(20), end: rusage(50) };
        assert_eq!(images(events), [(0, Some(ImageEnd::Exec), first), (1, Some(ImageEnd::Exit), second)]);
    }

    #[test]
    fn an_untraced_image_only_sets_the_start_of_the_next() {
        let started = ImageRusage { begin: rusage(20), end: None };
        assert_eq!(images([recorded(20, false), EventKind::Exec]), [(1, None, started)]);
        assert_eq!(images([recorded(20, false), EventKind::Exit]), []);
    }

    #[test]
    fn a_reused_pid_starts_without_rusage() {
        let events = [recorded(20, false), EventKind::Exit, recorded(5, true), EventKind::Exit];
        let second = ImageRusage { begin: None, end: rusage(5) };
        assert_eq!(images(events), [(1, Some(ImageEnd::Exit), second)]);
    }

    #[test]
    fn an_unreadable_rusage_is_unknown_for_the_next_image() {
        let unknown = EventKind::Rusage { counts: None, is_traced: true };
        let events = [unknown, EventKind::Exec, recorded(50, true), EventKind::Exit];
        let ends: Vec<_> = images(events).into_iter().map(|(_, _, counts)| counts.faults()).collect();
        assert_eq!(ends, [None, None]);
    }
}
