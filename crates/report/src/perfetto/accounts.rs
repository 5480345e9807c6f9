//! Accounts over time: counter tracks below the track of their process.

mod names;

use std::io;
use std::time::Duration;

use memtrace_model::{AccountInterval, AccountKeys, AccountTotals, format};
use rustc_hash::FxHashMap;

use self::names::TrackNames;
use super::messages::{ProcessDescriptor, TrackDescriptor, Unit};
use super::track_writer::TrackWriter;
use crate::{account_names, escape};

const TITLES: [&str; 3] = ["live", "allocated per second", "high-water mark"];

/// Writes intervals of accounts one after another. The memory of the writer grows with the accounts, not with the
/// intervals.
pub struct AccountTrace<'a> {
    writer: TrackWriter<'a>,
    keys: AccountKeys,
    /// UUIDs of tracks that are not counters, by name.
    tracks: FxHashMap<String, u64>,
    /// Accounts by their names. The key of the total is empty.
    accounts: FxHashMap<Vec<String>, Account>,
    /// Bytes that all accounts had allocated at the end of the last interval.
    allocated: u64,
    /// Number of intervals that were added.
    intervals: u64,
}

/// Last written state of an account.
struct Account {
    counters: [Counter; 3],
    /// Live bytes at the end of the last interval with a change.
    live: u64,
    /// Bytes that the account had allocated at the end of the last interval with a change.
    allocated: u64,
    /// Number of the last interval with a change, from 1.
    changed: u64,
    has_marks: bool,
}

/// Counter track with its last value.
#[derive(Clone, Copy)]
struct Counter {
    uuid: u64,
    last: Option<f64>,
}

impl<'a> AccountTrace<'a> {
    /// Starts a trace of accounts by `keys`.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn start(out: &'a mut dyn io::Write, keys: AccountKeys) -> io::Result<Self> {
        Ok(Self {
            writer: TrackWriter::start(out)?,
            keys,
            tracks: FxHashMap::default(),
            accounts: FxHashMap::default(),
            allocated: 0,
            intervals: 0,
        })
    }

    /// Writes the next interval: rates and water marks at its start, live bytes at its end.
    ///
    /// # Errors
    ///
    /// Returns the errors of the output.
    pub fn add(&mut self, interval: &AccountInterval) -> io::Result<()> {
        self.intervals += 1;
        let mut allocated = 0;
        if let Some(total) = &interval.total {
            allocated = total.counters.alloc.bytes.0.saturating_sub(self.allocated);
            self.allocated = total.counters.alloc.bytes.0;
            self.add_account(&[], total, allocated, interval)?;
        }
        for row in &interval.rows {
            self.add_account(&row.names, &row.totals, allocated, interval)?;
        }
        self.add_unchanged(interval)?;
        for (at, text) in &interval.marks {
            self.note("marks", *at, &escape::visible(text))?;
        }
        for (reason, count) in interval.losses.iter().filter(|(_, count)| *count > 0) {
            let text = format!("lost: {} ({})", format::counted(count, "event", "events"), reason.explanation());
            self.note("losses", interval.span.end, &text)?;
        }
        Ok(())
    }

    /// Writes an instant on the track with this name.
    ///
    /// # Errors
    ///
    /// Returns the errors of the output.
    pub fn note(&mut self, track: &str, at: Duration, text: &str) -> io::Result<()> {
        let uuid = self.named_track(track)?;
        self.writer.instant(uuid, at, text.to_owned())
    }

    /// Writes an account that has changed. `most`: bytes that all accounts together have allocated in the interval.
    fn add_account(
        &mut self,
        names: &[String],
        totals: &AccountTotals,
        most: u64,
        interval: &AccountInterval,
    ) -> io::Result<()> {
        let mut account = match self.accounts.remove(names) {
            Some(account) => account,
            None => self.new_account(names)?,
        };
        let (start, end) = (interval.span.start, interval.span.end);
        let seconds = end.saturating_sub(start).as_secs_f64();
        // The account can have taken over amounts of another account, such as of an ended thread. They are no
        // allocations of the interval, so the difference is limited to `most`.
        let allocated = totals.counters.alloc.bytes.0.saturating_sub(account.allocated).min(most);
        account.allocated = totals.counters.alloc.bytes.0;
        account.live = totals.live.bytes.0;
        account.changed = self.intervals;
        account.has_marks = totals.marks.is_some();
        let [live, rate, high] = &mut account.counters;
        live.set(end, account.live as f64, &mut self.writer)?;
        if seconds > 0.0 {
            rate.set(start, allocated as f64 / seconds, &mut self.writer)?;
            if let Some(marks) = &totals.marks {
                high.set(start, marks.high.at_most.bytes.0 as f64, &mut self.writer)?;
            }
        }
        self.accounts.insert(names.to_vec(), account);
        Ok(())
    }

    /// Writes values of the accounts that have not changed in the interval: 0 as the allocation rate, and the live
    /// bytes as the high-water mark.
    fn add_unchanged(&mut self, interval: &AccountInterval) -> io::Result<()> {
        let now = self.intervals;
        let mut unchanged: Vec<_> = self.accounts.values_mut().filter(|account| account.changed < now).collect();
        unchanged.sort_unstable_by_key(|account| account.counters[0].uuid);
        for account in unchanged {
            let [_, rate, high] = &mut account.counters;
            rate.set(interval.span.start, 0.0, &mut self.writer)?;
            if account.has_marks {
                high.set(interval.span.start, account.live as f64, &mut self.writer)?;
            }
        }
        Ok(())
    }

    fn new_account(&mut self, names: &[String]) -> io::Result<Account> {
        let TrackNames { process, account } = TrackNames::of(&self.keys, names);
        let parent = match process {
            Some(process) => self.process_track(process)?,
            None => self.named_track("accounts")?,
        };
        let mut counters = [Counter { uuid: 0, last: None }; 3];
        for (counter, title) in counters.iter_mut().zip(TITLES) {
            let name = if account.is_empty() { String::from(title) } else { format!("{account}: {title}") };
            counter.uuid = self.writer.counter_track(parent, escape::visible(&name), Unit::Bytes)?;
        }
        Ok(Account { counters, live: 0, allocated: 0, changed: 0, has_marks: false })
    }

    /// Returns the track of a process, such as `server (4711)`. A sum of several processes has no PID, so its track
    /// has only a name.
    fn process_track(&mut self, process: &str) -> io::Result<u64> {
        let Some((comm, pid)) = account_names::process(process) else { return self.named_track(process) };
        if let Some(uuid) = self.tracks.get(process) {
            return Ok(*uuid);
        }
        let descriptor =
            ProcessDescriptor { pid: Some(pid.0.cast_signed()), process_name: Some(escape::visible(comm)) };
        let uuid = self.writer.track(TrackDescriptor { process: Some(descriptor), ..TrackDescriptor::default() })?;
        self.tracks.insert(process.to_owned(), uuid);
        Ok(uuid)
    }

    fn named_track(&mut self, name: &str) -> io::Result<u64> {
        if let Some(uuid) = self.tracks.get(name) {
            return Ok(*uuid);
        }
        let uuid = self.writer.named_track(escape::visible(name))?;
        self.tracks.insert(name.to_owned(), uuid);
        Ok(uuid)
    }
}

impl Counter {
    /// Writes a value, if it differs from the last one.
    fn set(&mut self, at: Duration, value: f64, writer: &mut TrackWriter<'_>) -> io::Result<()> {
        if self.last.is_some_and(|last| last.to_bits() == value.to_bits()) {
            return Ok(());
        }
        self.last = Some(value);
        writer.value(self.uuid, at, value)
    }
}
