//! Order of the merges that bound the size of a recording.

use rusqlite::{Error, Result};
use rustc_hash::FxHashSet;

use super::{CountedImages, ROW_BYTES, Store};
use crate::file::compaction::Compaction;
use crate::file::image_merge::{self, ImageMerge};
use crate::file::merge::Merge;
use crate::file::merge_step::is_full;
use crate::file::schema;
use crate::file::span_removal::SpanRemoval;
use crate::file::stack_merge;
use crate::file::total_merge::TotalMergeKind;
use crate::retention::{forced_merge, next_merge};

/// Number of attempts to store an interval before a merge that did not fit is tried again. A retry is expensive,
/// because the choice of images or stacks reads the whole file.
const RETRY_ATTEMPTS: u64 = 60;

/// Approximate size of an image with its values and one stack in the file, in bytes.
const IMAGE_BYTES: u64 = 200;

impl Store {
    /// Does one step of the merge in progress, or starts a merge. Merges start if the file is nearly full; a removal
    /// of short spans starts in a file of any size. Returns false if there is nothing to do. If `is_forced` is true
    /// and nothing else is left, young intervals, stacks and the remaining images are merged too.
    pub(in crate::file) fn compact(&mut self, is_forced: bool) -> Result<bool> {
        self.compact_above(self.max_pages - self.max_pages / 8, is_forced)
    }

    /// Does the same as [`Self::compact`]. The file counts as nearly full if at least `pages` are in use.
    fn compact_above(&mut self, pages: u64, is_forced: bool) -> Result<bool> {
        self.set_max_pages(self.max_pages)?;
        match self.continue_merge() {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) if is_full(&error) => self.give_up(error)?,
            Err(error) => return Err(error),
        }
        if self.start_span_removal() {
            return Ok(true);
        }
        let used = self.number("page_count")? - self.number("freelist_count")?;
        if used < pages {
            return Ok(false);
        }
        // The rows of an ended image take the same space in an interval of any length. If there are many images, a
        // merge of intervals frees little space, but reduces the resolution of everything else.
        if self.images_fill_a_quarter()? && self.start_image_merge()? {
            return Ok(true);
        }
        let old = next_merge(&self.intervals);
        // If stacks take more than a quarter of the size limit, they are merged before young intervals.
        if old.is_none() && is_forced && self.stacks_fill_a_quarter()? && self.start_stack_merge()? {
            return Ok(true);
        }
        let forced = || is_forced.then(|| forced_merge(&self.intervals)).flatten();
        let Some(run) = old.or_else(forced) else {
            return Ok(is_forced && (self.start_stack_merge()? || self.start_image_merge()?));
        };
        let compaction = Compaction::start(&mut self.connection, &self.intervals[run.clone()], self.max_pages)?;
        self.merge = compaction.map(Merge::Intervals);
        let last = run.end - 1;
        self.intervals[last].span.start = self.intervals[run.start].span.start;
        self.intervals[last].merged = self.intervals[run.clone()].iter().map(|interval| interval.merged).sum();
        self.intervals.drain(run.start..last);
        Ok(true)
    }

    /// Continues the merge in progress. Returns false if there is none.
    fn continue_merge(&mut self) -> Result<bool> {
        let connection = &mut self.connection;
        let goes_on = match &mut self.merge {
            None => return Ok(false),
            Some(Merge::Intervals(merge)) => merge.step(connection)?,
            Some(Merge::Totals(merge)) => {
                let moved = merge.step(connection)?;
                if let Some(moved) = moved.as_ref().filter(|moved| !moved.is_empty()) {
                    self.numbers.totals.replace(moved);
                }
                moved.is_some()
            }
            Some(Merge::Spans(removal)) => {
                let goes_on = removal.step(connection)?;
                if !goes_on {
                    self.activity.set_removed_below(removal.shorter_than());
                }
                goes_on
            }
            Some(Merge::Images(merge)) => {
                if merge.step(connection, self.numbers.images.known())? {
                    return Ok(true);
                }
                self.merge = None;
                ImageMerge::end(&self.connection)?;
                self.remove_unused_cgroups()?;
                // A group can have several rows in `total` for the same stack, from several images.
                let totals = image_merge::start_total_merge(&mut self.connection, self.max_pages)?;
                self.merge = totals.map(Merge::Totals);
                return Ok(self.merge.is_some());
            }
        };
        if !goes_on {
            self.merge = None;
        }
        Ok(goes_on)
    }

    /// Gives up the merge in progress, because the file has no room for it. Other merges can make room. A merge of
    /// intervals cannot be given up: its error is returned.
    fn give_up(&mut self, error: Error) -> Result<()> {
        match &self.merge {
            Some(Merge::Images(_)) => {
                self.next_merges.images = self.next_attempt();
                ImageMerge::end(&self.connection)?;
            }
            Some(Merge::Totals(merge)) => {
                if merge.kind() != TotalMergeKind::EqualStacks {
                    self.next_merges.stacks = self.next_attempt();
                }
            }
            Some(Merge::Spans(_)) => self.next_merges.spans = self.next_attempt(),
            // The intervals of the remaining rows are no longer in the table `interval`, so no later merge would find
            // these rows.
            Some(Merge::Intervals(_)) | None => return Err(error),
        }
        self.merge = None;
        Ok(())
    }

    /// Returns the lowest value of [`Store::attempts`] that permits another try of a merge that did not fit.
    const fn next_attempt(&self) -> u64 {
        self.attempts + RETRY_ATTEMPTS
    }

    /// Returns true if images take more than a quarter of the size limit, and a merge of images can start.
    fn images_fill_a_quarter(&mut self) -> Result<bool> {
        if self.attempts < self.next_merges.images {
            return Ok(false);
        }
        let last = self.numbers.images.last();
        let most = self.counted_images.images + last - self.counted_images.last;
        if !self.is_a_quarter(most, IMAGE_BYTES) {
            return Ok(false);
        }
        let images = self.connection.query_one("SELECT count(*) FROM image", [], |row| row.get(0))?;
        self.counted_images = CountedImages { images, last };
        Ok(self.is_a_quarter(images, IMAGE_BYTES))
    }

    /// Returns true if stacks take more than a quarter of the size limit, and a merge of stacks can start.
    fn stacks_fill_a_quarter(&self) -> Result<bool> {
        if self.attempts < self.next_merges.stacks {
            return Ok(false);
        }
        let stacks = self.connection.query_one("SELECT count(*) FROM total WHERE path <> 0", [], |row| row.get(0))?;
        Ok(self.is_a_quarter(stacks, ROW_BYTES))
    }

    /// Returns true if `rows` of `bytes` each take more than a quarter of the size limit.
    fn is_a_quarter(&self, rows: i64, bytes: u64) -> bool {
        rows.cast_unsigned() * bytes > self.max_pages * u64::from(schema::PAGE_SIZE) / 4
    }

    /// Starts to remove short spans. Returns false if the file has none, or if it had no room for a removal at one
    /// of the last [`RETRY_ATTEMPTS`] attempts.
    fn start_span_removal(&mut self) -> bool {
        let shorter_than = self.activity.remove_below().filter(|_| self.attempts >= self.next_merges.spans);
        self.merge = shorter_than.map(|shorter_than| Merge::Spans(SpanRemoval::new(shorter_than, self.max_pages)));
        self.merge.is_some()
    }

    /// Starts to merge ended images. Returns false if there are too few, if the file has no room for their groups, or
    /// if it had no room for a merge at one of the last [`RETRY_ATTEMPTS`] attempts.
    fn start_image_merge(&mut self) -> Result<bool> {
        if self.attempts < self.next_merges.images {
            return Ok(false);
        }
        let (intervals, last) = (self.interval_ids(), self.numbers.images.last());
        let known = self.numbers.images.known();
        let start = ImageMerge::start(&mut self.connection, intervals, known, last, self.max_pages);
        let Some(start) = if_room(start)? else {
            self.next_merges.images = self.next_attempt();
            return Ok(false);
        };
        let Some((merge, groups)) = start else { return Ok(false) };
        self.numbers.images.reserve(groups);
        self.merge = Some(Merge::Images(merge));
        Ok(true)
    }

    /// Removes control groups without images. If a later image is in such a group, the group gets a new row.
    fn remove_unused_cgroups(&mut self) -> Result<()> {
        let unused =
            "DELETE FROM cgroup WHERE id NOT IN (SELECT cgroup FROM image WHERE cgroup IS NOT NULL) RETURNING id";
        let mut statement = self.connection.prepare_cached(unused)?;
        let removed: Result<FxHashSet<i64>> = statement.query_map([], |row| row.get(0))?.collect();
        if let Some(removed) = if_room(removed)? {
            self.numbers.cgroups.forget(&removed);
        }
        Ok(())
    }

    /// Starts to merge stacks. Returns false if there are too few, if the file has no room for the merged stacks, or
    /// if it had no room for a merge at one of the last [`RETRY_ATTEMPTS`] attempts.
    fn start_stack_merge(&mut self) -> Result<bool> {
        if self.attempts < self.next_merges.stacks {
            return Ok(false);
        }
        let Some(first) = self.intervals.first().map(|interval| interval.id) else { return Ok(false) };
        let start = stack_merge::start(&mut self.connection, first, self.numbers.totals.last(), self.max_pages);
        let Some(start) = if_room(start)? else {
            self.next_merges.stacks = self.next_attempt();
            return Ok(false);
        };
        let Some((merge, rows)) = start else { return Ok(false) };
        self.numbers.totals.reserve(rows);
        self.merge = Some(Merge::Totals(merge));
        Ok(true)
    }

    fn interval_ids(&self) -> Vec<i64> {
        self.intervals.iter().map(|interval| interval.id).collect()
    }

    /// Starts to merge ended images in a file of any size.
    #[cfg(test)]
    pub(in crate::file) fn merge_images(&mut self) -> Result<bool> {
        self.start_image_merge()
    }

    /// Merges all intervals that are old enough in a file of any size.
    #[cfg(test)]
    pub(in crate::file) fn compact_always(&mut self) {
        while self.compact_above(0, false).unwrap() {}
    }

    /// Does all merges that a file at its limit would do, in a file of any size.
    #[cfg(test)]
    pub(in crate::file) fn compact_forcibly(&mut self) {
        while self.compact_above(0, true).unwrap() {}
    }
}

/// Returns the value of `started`; `None` if it failed because the file has no room.
fn if_room<T>(started: Result<T>) -> Result<Option<T>> {
    match started {
        Err(error) if is_full(&error) => Ok(None),
        started => started.map(Some),
    }
}
