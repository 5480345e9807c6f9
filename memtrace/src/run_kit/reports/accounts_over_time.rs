//! Accounts of a recording over time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use memtrace_history::accounts;
use memtrace_history::{Book, Boundary, IntervalRow, Moments};
use memtrace_model::{AccountInterval, AccountKeys, AccountNumber, AccountRow, AccountTotals, Bytes, Losses, format};
use memtrace_report::AccountTrace;
use rustc_hash::FxHashMap;

use super::accounts::RecordedNames;
use crate::run_kit::config::Output;

/// Maximum number of accounts with tracks.
const MAX_TRACKS: usize = 256;

/// An interval shorter than the configured length divided by this number is merged into the interval before it. The
/// last intervals of a trace take no time.
const SHORTEST_INTERVAL: u32 = 10;

/// Length below which an interval counts as empty.
const NO_TIME: Duration = Duration::from_micros(1);

type Totals = BTreeMap<AccountNumber, AccountTotals>;

/// Accounts of a recording over time. The rows are read twice, the first time to find the largest
/// accounts.
pub(crate) struct AccountsOverTime<'a> {
    book: &'a dyn Book,
    moments: &'a Moments,
    keys: &'a AccountKeys,
    groups: Groups,
    losses: BTreeMap<Boundary, Losses>,
}

/// Accounts with the same names, which count as one.
#[derive(Default)]
struct Groups {
    by_names: FxHashMap<Vec<String>, usize>,
    by_number: FxHashMap<AccountNumber, usize>,
    all: Vec<Group>,
}

#[derive(Default)]
struct Group {
    names: Vec<String>,
    members: Vec<AccountNumber>,
    live: u64,
    /// Highest known number of live bytes.
    peak: u64,
    /// True if the group has tracks.
    is_shown: bool,
}

/// An interval, or the start of the selected period.
struct Step<'a> {
    from: Boundary,
    to: Boundary,
    /// Totals of the accounts before the step.
    known: &'a Totals,
    /// Totals of the accounts that have changed in the step.
    changed: &'a Totals,
}

impl<'a> AccountsOverTime<'a> {
    /// Reads the accounts if one of the outputs shows accounts over time.
    pub(crate) fn for_outputs(
        outputs: &[Output],
        book: &'a dyn Book,
        moments: &'a Moments,
        keys: &'a AccountKeys,
    ) -> Result<Option<Self>, memtrace_history::Error> {
        let is_shown = outputs.iter().any(|output| output.format.shows_accounts_over_time());
        is_shown.then(|| Self::read(book, moments, keys)).transpose()
    }

    /// Finds the largest accounts in the selected period of a recording.
    pub(crate) fn read(
        book: &'a dyn Book,
        moments: &'a Moments,
        keys: &'a AccountKeys,
    ) -> Result<Self, memtrace_history::Error> {
        let names = RecordedNames::read(book, keys.len())?;
        let mut groups = Groups::default();
        let losses = book.losses_of_intervals(moments.from(), moments.to())?;
        let all = Self { book, moments, keys, groups: Groups::default(), losses };
        all.for_each_step(|step| {
            groups.add(&step, &names);
            Ok(())
        })
        .map_err(memtrace_history::Error::from)?;
        groups.select();
        Ok(Self { groups, ..all })
    }

    /// Writes a trace for Perfetto.
    pub(crate) fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut trace = AccountTrace::start(out, self.keys.clone())?;
        self.for_each_step(|step| trace.add(&self.interval(&step)))?;
        match self.groups.note_of_others() {
            Some(note) => trace.note("losses", self.since_start(self.moments.to()), &note),
            None => Ok(()),
        }
    }

    fn interval(&self, step: &Step<'_>) -> AccountInterval {
        let total = step.totals_of(AccountNumber::TOTAL);
        let most = total.unwrap_or_default().marks.unwrap_or_default().high.at_most;
        let groups: BTreeSet<usize> =
            step.changed.keys().filter_map(|number| self.groups.by_number.get(number)).copied().collect();
        let groups = groups.into_iter().map(|index| &self.groups.all[index]).filter(|group| group.is_shown);
        let rows = groups.filter_map(|group| {
            let members = group.members.iter().filter_map(|number| Some((Vec::new(), step.totals_of(*number)?)));
            let (_, totals) = accounts::add_up(members, self.keys.are_by_process(), most).next()?;
            Some(AccountRow { names: group.names.clone(), totals })
        });
        let is_in = |at| step.from.at() < at && at <= step.to.at();
        let marks = self.book.marks().iter().filter(|row| is_in(row.mark.at));
        AccountInterval {
            span: self.since_start(step.from)..self.since_start(step.to),
            rows: rows.collect(),
            total: total.filter(|_| step.changed.contains_key(&AccountNumber::TOTAL)),
            marks: marks.map(|row| (self.moments.after_start(row.mark.at), row.mark.text.clone())).collect(),
            losses: self.losses_between(step.from, step.to),
        }
    }

    /// Returns the time from the start of tracing to the end of the last interval that took time, up to `boundary`. Intervals
    /// that take no time are skipped, because a run ends with such intervals, and its recording has more of them than the run
    /// knows when it reports.
    fn since_start(&self, boundary: Boundary) -> Duration {
        let rows = self.book.intervals().iter().rev().skip_while(|row| row.end() > boundary);
        let mut with_time = rows.skip_while(|row| row.span.end.saturating_sub(row.span.start) < NO_TIME);
        let boundary = with_time.next().map_or(boundary, IntervalRow::end);
        self.moments.since_start(boundary)
    }

    fn losses_between(&self, from: Boundary, to: Boundary) -> Losses {
        let mut losses = Losses::default();
        let lost = self.losses.iter().filter(|(at, _)| from < **at && **at <= to);
        lost.for_each(|(_, lost)| losses.merge(lost));
        losses
    }

    /// Returns the ends of the selected intervals. A short interval is merged into the interval
    /// before it.
    fn ends(&self) -> Vec<Boundary> {
        let shortest = self.book.header().interval / SHORTEST_INTERVAL;
        let mut ends: Vec<Boundary> = Vec::new();
        // End of the last interval that was not short, as a time.
        let mut end = None;
        let all = self.book.intervals().iter();
        for row in all.filter(|row| self.moments.from() < row.end() && row.end() <= self.moments.to()) {
            let is_short = end.is_some_and(|end| row.span.end.saturating_sub(end) < shortest);
            match ends.last_mut().filter(|_| is_short) {
                Some(last) => *last = row.end(),
                None => {
                    ends.push(row.end());
                    end = Some(row.span.end);
                }
            }
        }
        ends
    }

    /// Calls `each` for the intervals of the selected period. If the period starts later than the recording, calls
    /// `each` for its start first.
    fn for_each_step(&self, mut each: impl FnMut(Step<'_>) -> io::Result<()>) -> io::Result<()> {
        let (from, to) = (self.moments.from(), self.moments.to());
        let ends = self.ends();
        let mut intervals = ends.iter().copied().peekable();
        let (mut known, mut changed) = (Totals::new(), Totals::new());
        let mut last = None;
        let mut outcome = Ok(());
        // Calls `each` for the intervals that end before `until`. `at`: end of the interval of the accounts in
        // `changed`.
        let mut end = |until: Option<Boundary>, at: Boundary, known: &mut Totals, changed: &mut Totals| {
            if last.is_none() && from != Boundary::START && outcome.is_ok() {
                outcome = each(Step { from, to: from, known: &Totals::new(), changed: known });
            }
            let start = last.get_or_insert(from);
            while let Some(to) = intervals.next_if(|end| until.is_none_or(|until| *end < until)) {
                let own = if to == at { std::mem::take(changed) } else { Totals::new() };
                if outcome.is_ok() {
                    outcome = each(Step { from: *start, to, known, changed: &own });
                }
                known.extend(own.into_iter().map(|(number, totals)| (number, totals.unchanged())));
                *start = to;
            }
        };
        let mut at = from;
        let read = self.book.each_account_row(to, &mut |row_at, number, totals| {
            if row_at <= from {
                known.insert(number, totals.unchanged());
                return;
            }
            let row_at = ends.get(ends.partition_point(|end| *end < row_at)).copied().unwrap_or(row_at);
            if row_at != at {
                end(Some(row_at), at, &mut known, &mut changed);
                at = row_at;
            }
            changed.entry(number).and_modify(|earlier| *earlier = earlier.followed_by(totals)).or_insert(totals);
        });
        read.map_err(io::Error::other)?;
        end(None, at, &mut known, &mut changed);
        outcome
    }
}

impl Step<'_> {
    /// Returns the totals of an account at the end of the step, with the water marks since the
    /// start of the step.
    fn totals_of(&self, number: AccountNumber) -> Option<AccountTotals> {
        self.changed.get(&number).or_else(|| self.known.get(&number)).copied()
    }
}

impl Groups {
    /// Adds the accounts that have changed in the step.
    fn add(&mut self, step: &Step<'_>, names: &RecordedNames) {
        let mut changed = BTreeSet::new();
        for (number, totals) in step.changed.iter().filter(|(number, _)| **number != AccountNumber::TOTAL) {
            let index = self.index_of(*number, names);
            let group = &mut self.all[index];
            let before = step.known.get(number).map_or(0, |totals| totals.live.bytes.0);
            group.live = group.live.wrapping_add(totals.live.bytes.0).wrapping_sub(before);
            group.peak = group.peak.max(totals.marks.map_or(0, |marks| marks.high.at_least.bytes.0));
            changed.insert(index);
        }
        for index in changed {
            let group = &mut self.all[index];
            group.peak = group.peak.max(group.live);
        }
    }

    fn index_of(&mut self, number: AccountNumber, names: &RecordedNames) -> usize {
        if let Some(index) = self.by_number.get(&number) {
            return *index;
        }
        let names = names.of(number);
        let next = self.all.len();
        let index = *self.by_names.entry(names).or_insert_with_key(|names| {
            self.all.push(Group { names: names.clone(), ..Group::default() });
            next
        });
        self.by_number.insert(number, index);
        self.all[index].members.push(number);
        index
    }

    /// Selects the largest groups, which get tracks.
    fn select(&mut self) {
        let mut all: Vec<&mut Group> = self.all.iter_mut().filter(|group| group.peak > 0).collect();
        all.sort_unstable_by(|one, other| other.peak.cmp(&one.peak).then_with(|| one.names.cmp(&other.names)));
        all.into_iter().take(MAX_TRACKS).for_each(|group| group.is_shown = true);
    }

    /// Returns a note about the groups without tracks.
    fn note_of_others(&self) -> Option<String> {
        let others = self.all.iter().filter(|group| group.peak > 0 && !group.is_shown);
        let (count, peak) = others.fold((0, 0), |(count, peak), group| (count + 1, group.peak.max(peak)));
        let accounts = format::counted(count, "account", "accounts");
        let peak = Bytes(peak);
        (count > 0).then(|| {
            format!(
                "left out: {accounts} besides the {MAX_TRACKS} largest; each of them had at most {peak} of live memory"
            )
        })
    }
}
