//! Totals by call path of all processes, for the top sites that are shown during a run.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use memtrace_history::LiveCall;
use memtrace_history::{Interval, PathNumber, TotalKey};
use memtrace_model::{EventClass, StackEnd};
use rustc_hash::FxHashMap;

/// Size and count of live blocks, mappings or pages, or duration and count of stalls. The numbers wrap around
/// below zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::trace) struct SiteTotals {
    pub(in crate::trace) size: u64,
    pub(in crate::trace) count: u64,
}

impl SiteTotals {
    const fn add(&mut self, change: Self) {
        self.size = self.size.wrapping_add(change.size);
        self.count = self.count.wrapping_add(change.count);
    }
}

/// The top sites of an event class.
#[derive(Debug)]
pub(in crate::trace) struct ClassSites {
    pub(in crate::trace) class: EventClass,
    pub(in crate::trace) all: SiteTotals,
    /// Number of all sites of the class, before the limit.
    pub(in crate::trace) number: usize,
    pub(in crate::trace) sites: Vec<Site>,
}

#[derive(Debug)]
pub(in crate::trace) struct Site {
    pub(in crate::trace) totals: SiteTotals,
    /// Calls of the stack, the innermost first.
    pub(in crate::trace) calls: Vec<LiveCall>,
    pub(in crate::trace) end: StackEnd,
}

/// Totals by call path.
#[derive(Debug, Default)]
pub(super) struct LiveSites {
    by_path: FxHashMap<(EventClass, PathNumber, StackEnd), SiteTotals>,
    all: BTreeMap<EventClass, SiteTotals>,
}

impl LiveSites {
    /// Adds the changes of an interval.
    pub(super) fn add(&mut self, interval: &Interval) {
        for change in &interval.changes {
            let TotalKey { class, path, end, .. } = change.key;
            let usage = &change.usage;
            let change = match class.counts_stalls() {
                true => SiteTotals { size: usage.stalls().time.0, count: usage.stalls().count },
                false => SiteTotals { size: usage.live().bytes.0, count: usage.live().count },
            };
            self.all.entry(class).or_default().add(change);
            let key = (class, path, end);
            let totals = self.by_path.entry(key).or_default();
            totals.add(change);
            if *totals == SiteTotals::default() {
                self.by_path.remove(&key);
            }
        }
    }

    /// Returns the `top` largest sites of each event class. `calls`: returns the calls of a path.
    pub(super) fn largest(&self, top: usize, calls: impl Fn(PathNumber) -> Vec<LiveCall>) -> Vec<ClassSites> {
        let largest = |(&class, &all): (&EventClass, &SiteTotals)| {
            // A total is negative until the frames of a stack have arrived and its total has moved to its path.
            let of_class =
                self.by_path.iter().filter(|((of, ..), totals)| *of == class && totals.size.cast_signed() > 0);
            let mut sites: Vec<_> = of_class.map(|(&(_, path, end), &totals)| (path, end, totals)).collect();
            sites.sort_unstable_by_key(|&(path, end, totals)| (Reverse(totals.size), path, end));
            let number = sites.len();
            sites.truncate(top);
            let site = |(path, end, totals)| Site { totals, calls: calls(path), end };
            ClassSites { class, all, number, sites: sites.into_iter().map(site).collect() }
        };
        self.all.iter().map(largest).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use memtrace_history::{Book, Boundary, Change, MemoryBook};
    use memtrace_model::{Amount, Bytes, Frame, ImageId, Name, Part, Pid, Quantities, Quantity};
    use proptest::prelude::*;

    use super::*;
    use crate::run_kit::recording_file;

    fn change(pid: u32, path: u32, bytes: i64) -> Change {
        let key = TotalKey {
            image: ImageId { pid: Pid(pid), ordinal: 0 },
            class: EventClass::Heap,
            path: PathNumber(path),
            end: StackEnd::Complete,
            part: Part::WHOLE,
        };
        let live = Amount { bytes: Bytes(bytes.cast_unsigned()), count: bytes.signum().cast_unsigned() };
        let usage = Quantities::ZERO.with_amount(Quantity::LiveBytes, live);
        Change { key, usage }
    }

    #[test]
    fn sites_are_sums_of_all_processes() {
        let mut sites = LiveSites::default();
        let add = |sites: &mut LiveSites, changes: &[Change]| {
            sites.add(&Interval { changes: changes.to_vec(), ..Interval::default() });
        };
        add(&mut sites, &[change(1, 1, 10), change(2, 1, 20), change(1, 2, 25), change(1, 3, 5)]);
        add(&mut sites, &[change(1, 3, -5), change(1, 4, 1)]);
        let call = |path: PathNumber| vec![LiveCall::Named(Frame::new(Ok(Name(path.0.to_string()))))];
        let largest = sites.largest(2, call);
        assert_eq!(largest.len(), 1);
        assert_eq!((largest[0].all, largest[0].number), (SiteTotals { size: 56, count: 4 }, 3));
        let name = |site: &Site| match &site.calls[..] {
            [LiveCall::Named(frame)] => frame.label(),
            other => panic!("{other:?}"),
        };
        let named: Vec<_> = largest[0].sites.iter().map(|site| (name(site), site.totals.size)).collect();
        assert_eq!(named, [(String::from("1"), 30), (String::from("2"), 25)]);
    }

    proptest! {
        #[test]
        fn sites_are_the_totals_of_the_history(
            intervals in prop::collection::vec(prop::collection::vec((1..3_u32, 1..6_u32, -3..4_i64), 0..8), 1..8),
        ) {
            let header = recording_file::header(SystemTime::UNIX_EPOCH, Duration::from_secs(1));
            let (mut book, mut sites) = (MemoryBook::new(header, Bytes(u64::MAX)), LiveSites::default());
            for (second, changes) in (0..).map(Duration::from_secs).zip(intervals) {
                let changes = changes.into_iter().map(|(pid, path, bytes)| change(pid, path, bytes)).collect();
                let span = second..second + Duration::from_secs(1);
                let interval = Interval { span, changes, ..Interval::default() };
                sites.add(&interval);
                book.append(interval);
            }
            let mut totals: BTreeMap<PathNumber, SiteTotals> = BTreeMap::new();
            for stack in book.totals(Boundary::START, book.end()).unwrap().stacks {
                let Amount { bytes, count } = stack.usage.live();
                totals.entry(stack.key.path).or_default().add(SiteTotals { size: bytes.0, count });
            }
            totals.retain(|_, totals| *totals != SiteTotals::default());
            let found = sites.by_path.iter().map(|(&(_, path, _), &totals)| (path, totals));
            prop_assert_eq!(found.collect::<BTreeMap<_, _>>(), totals);
        }
    }
}
