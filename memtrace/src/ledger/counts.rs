//! What the kernel itself counts of processes, as the books of their pages tell it.

use super::{Ledger, Process};
use crate::model::{Ending, ImageCounts, ImageUsage, KernelCounts, Pid};

/// What is known of a process' counts while it runs a program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// When it began to run the program, where that was heard of.
    begin: Option<KernelCounts>,
    /// When it is about to run another one, or to end.
    end: Option<KernelCounts>,
}

impl Counts {
    /// Its program ends; says what was counted of it, and goes on with the next one.
    pub(super) fn end(&mut self, ending: Ending) -> ImageCounts {
        let Self { begin, end } = std::mem::take(self);
        // Whoever comes to have the pid of a process that has ended begins anew.
        self.begin = end.filter(|_| ending == Ending::Exec);
        ImageCounts { begin, end }
    }
}

impl Ledger {
    /// The kernel has counted so much of `pid`, whose program is about to end.
    pub(super) fn count(&mut self, pid: Pid, counts: Option<KernelCounts>, is_traced: bool) {
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
    let counts = ImageCounts { begin: process.counts.begin, end: None };
    Some(ImageUsage { copy_of: image.and_then(|image| image.copy_of), counts, ..pages.unwrap_or_default() })
}
