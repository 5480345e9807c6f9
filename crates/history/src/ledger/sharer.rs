//! Entry of a process that shares the memory of another process, in reports.

use memtrace_model::{EventClass, ImageEnd, ImageRusage, ImageUsage, Pid};

/// A process that shares the memory of another process. Reports list it without totals, in each class with events of
/// the process.
#[derive(Debug)]
pub(super) struct Sharer {
    /// Process that has the memory.
    main: Pid,
    /// Classes with events of the process. The flag is true if a delta has the entry.
    classes: Vec<(EventClass, bool)>,
}

impl Sharer {
    pub(super) const fn new(main: Pid) -> Self {
        Self { main, classes: Vec::new() }
    }

    /// Adds an event. Returns true if it is the first one of `class`.
    pub(super) fn add_event(&mut self, class: EventClass) -> bool {
        let is_first = self.classes.iter().all(|(known, _)| *known != class);
        if is_first {
            self.classes.push((class, false));
        }
        is_first
    }

    /// Returns the process that has the memory, if this process has events of `class`.
    pub(super) fn main_in(&self, class: EventClass) -> Option<Pid> {
        self.classes.iter().any(|(known, _)| *known == class).then_some(self.main)
    }

    /// Returns the entries that no delta contains yet, and marks them as contained in a delta.
    pub(super) fn take_unsent(&mut self) -> impl Iterator<Item = (EventClass, ImageUsage)> + '_ {
        let main = self.main;
        self.classes.iter_mut().filter(|(_, is_sent)| !*is_sent).map(move |(class, is_sent)| {
            *is_sent = true;
            (*class, ImageUsage { shares_memory_of: Some(main), ..ImageUsage::default() })
        })
    }

    /// Adds the entries to the usage of the process at its end.
    pub(super) fn add_to(&self, usage: &mut Vec<(EventClass, ImageUsage)>, end: ImageEnd, counts: ImageRusage) {
        for &(class, _) in &self.classes {
            let shares_memory_of = Some(self.main);
            match usage.iter_mut().find(|(of, _)| *of == class) {
                Some((_, known)) => known.shares_memory_of = shares_memory_of,
                None => {
                    let counts = if class.counts_pages() { counts } else { ImageRusage::default() };
                    let entry = ImageUsage { ended: Some(end), shares_memory_of, counts, ..ImageUsage::default() };
                    usage.push((class, entry));
                }
            }
        }
    }
}
