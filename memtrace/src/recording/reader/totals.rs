//! Totals between two boundaries: the sum of the changes.

use std::collections::BTreeMap;

use rusqlite::params;
use rustc_hash::FxHashMap;

use super::Recording;
use super::boundaries::Boundary;
use super::query::Query;
use crate::model::{
    Amount, Bytes, CgroupId, EventClass, ImageId, LiveChanges, LossReason, Losses, PartChange, Pid, StackEnd,
    StackUsage, StallKey, StallStats,
};
use crate::recording::changes::{DetailKind, ImageValue, TotalKey};
use crate::recording::error::Error;
use crate::recording::locations::PathNumber;
use crate::recording::quantities::{self, RareNumbers, StoredAmounts};
use crate::recording::text::{nanoseconds, part_of, reclaim_of};

/// Totals between two boundaries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Totals by stack, without those that did not change, in the order of their keys.
    pub stacks: Vec<StackTotal>,
    /// Numbers of images, by kind and index.
    pub images: ImageValues,
    /// Stalls of images.
    pub stalls: BTreeMap<(ImageId, StallKey), StallStats>,
    /// Losses.
    pub losses: Losses,
}

/// Numbers of images, by kind and index.
pub type ImageValues = BTreeMap<(ImageId, EventClass), BTreeMap<(ImageValue, u32), u64>>;

/// Totals of one stack.
#[derive(Clone, Debug, PartialEq)]
pub struct StackTotal {
    /// The stack.
    pub key: TotalKey,
    /// The totals.
    pub usage: StackUsage,
    /// Number of stacks, if it is the sum of merged ones.
    pub merged: u64,
    /// Numbers that few stacks have, by kind and index.
    pub details: BTreeMap<(DetailKind, u32), u64>,
}

/// Sums of the rows of one total.
#[derive(Clone, Debug, Default)]
struct Sums {
    amounts: StoredAmounts,
    rare: Option<Box<RareNumbers>>,
    details: BTreeMap<(DetailKind, u32), u64>,
}

impl Recording {
    /// Returns the changes from one boundary to another. From [`Boundary::START`], these are the totals at `to`.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn totals(&self, from: Boundary, to: Boundary) -> Result<Totals, Error> {
        let images = self.image_ids()?;
        Ok(Totals {
            stacks: self.stack_totals(&images, from, to)?,
            images: self.image_values(&images, from, to)?,
            stalls: self.stalls(&images, from, to)?,
            losses: self.losses(from, to)?,
        })
    }

    /// Returns the ids of images by the numbers of their rows.
    pub(super) fn image_ids(&self) -> Result<FxHashMap<i64, ImageId>, Error> {
        let mut images = FxHashMap::default();
        self.connection.each_row("SELECT id, pid, ordinal FROM image", [], |row| {
            images.insert(row.get(0)?, ImageId { pid: Pid(row.get(1)?), ordinal: row.get(2)? });
            Ok(())
        })?;
        Ok(images)
    }

    fn stack_totals(
        &self,
        images: &FxHashMap<i64, ImageId>,
        from: Boundary,
        to: Boundary,
    ) -> Result<Vec<StackTotal>, Error> {
        let sums = self.sums(from, to)?;
        let mut by_key: BTreeMap<TotalKey, Sums> = BTreeMap::new();
        self.each_total(images, &sums, |key, sum| by_key.entry(key).or_default().merge(sum))?;
        let stacks = by_key.into_iter().map(|(key, sum)| sum.into_total(key));
        Ok(stacks
            .filter(|stack| stack.usage != StackUsage::default() || stack.merged > 0 || !stack.details.is_empty())
            .collect())
    }

    /// Returns the changes of live and allocated bytes in each part between two successive `bounds`, for the totals of
    /// images that run at the last bound.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn live_changes(&self, bounds: &[Boundary]) -> Result<FxHashMap<TotalKey, LiveChanges>, Error> {
        let (Some(first), Some(last)) = (bounds.first(), bounds.last()) else { return Ok(FxHashMap::default()) };
        let parts = bounds.len() - 1;
        let mut of_totals: FxHashMap<i64, LiveChanges> = FxHashMap::default();
        let sql = "SELECT total.id FROM total JOIN image ON image.id = total.image
            WHERE image.end_ns IS NULL OR image.end_ns > ?";
        self.connection.each_row(sql, [nanoseconds(last.at)], |row| {
            of_totals.insert(row.get(0)?, LiveChanges::default());
            Ok(())
        })?;
        let sql = "SELECT total, interval, live_bytes, alloc_bytes FROM change
            WHERE interval > ? AND interval <= ? AND (live_bytes <> 0 OR alloc_bytes <> 0)";
        self.connection.each_row(sql, [first.id, last.id], |row| {
            if let Some(changes) = of_totals.get_mut(&row.get(0)?) {
                let interval: i64 = row.get(1)?;
                let part = bounds.partition_point(|bound| bound.id < interval).saturating_sub(1);
                let (live, alloc) = (row.get(2)?, row.get::<_, i64>(3)?.cast_unsigned());
                changes.add(part, parts, PartChange { live, alloc });
            }
            Ok(())
        })?;
        of_totals.retain(|_, changes| !changes.as_slice().is_empty());
        let mut by_key: FxHashMap<TotalKey, LiveChanges> = FxHashMap::default();
        self.each_total(&self.image_ids()?, &of_totals, |key, changes| by_key.entry(key).or_default().merge(changes))?;
        Ok(by_key)
    }

    /// Calls `each` with the key and the value of each total that has its number in `values`.
    fn each_total<V>(
        &self,
        images: &FxHashMap<i64, ImageId>,
        values: &FxHashMap<i64, V>,
        mut each: impl FnMut(TotalKey, &V),
    ) -> Result<(), Error> {
        let (classes, ends) = (self.names("event_class")?, self.names("stack_end")?);
        let sql = "SELECT id, image, class, path, \"end\", part_kind, part FROM total ORDER BY id";
        self.connection.each_row(sql, [], |row| {
            let Some(value) = values.get(&row.get::<_, i64>(0)?) else { return Ok(()) };
            let class: Option<&String> = classes.get(&row.get(2)?);
            let end: Option<&String> = ends.get(&row.get(4)?);
            let kind: Option<String> = row.get(5)?;
            let key = || {
                Some(TotalKey {
                    image: *images.get(&row.get(1).ok()?)?,
                    class: EventClass::ALL
                        .iter()
                        .copied()
                        .find(|known| class.is_some_and(|name| known.name() == name))?,
                    path: PathNumber(row.get(3).ok()?),
                    end: StackEnd::ALL.iter().copied().find(|known| end.is_some_and(|name| known.name() == name))?,
                    part: part_of(kind.as_deref(), row.get_ref(6).ok()?)?,
                })
            };
            each(key().ok_or_else(|| Error::Damaged(String::from("a stack has an impossible key")))?, value);
            Ok(())
        })
    }

    /// Returns the sums of the rows of each total.
    fn sums(&self, from: Boundary, to: Boundary) -> Result<FxHashMap<i64, Sums>, Error> {
        let mut sums: FxHashMap<i64, Sums> = FxHashMap::default();
        let sql = "SELECT total, live_bytes, live_count, exit_bytes, exit_count, alloc_bytes, alloc_count FROM change
            WHERE interval > ? AND interval <= ?";
        self.connection.each_row(sql, [from.id, to.id], |row| {
            let sum = sums.entry(row.get(0)?).or_default();
            let amount = |first: usize| {
                let (bytes, count): (i64, i64) = (row.get(first)?, row.get(first + 1)?);
                Ok::<_, Error>(Amount { bytes: Bytes(bytes.cast_unsigned()), count: count.cast_unsigned() })
            };
            sum.amounts.add(StoredAmounts { live: amount(1)?, exit: amount(3)?, alloc: amount(5)? });
            Ok(())
        })?;
        let sql = "SELECT total, quantity, idx, value FROM detail WHERE interval > ? AND interval <= ?";
        self.connection.each_row(sql, [from.id, to.id], |row| {
            let sum = sums.entry(row.get(0)?).or_default();
            let (quantity, value) = (row.get(1)?, row.get::<_, i64>(3)?.cast_unsigned());
            if let Some(kind) = DetailKind::from_number(quantity) {
                let detail = sum.details.entry((kind, row.get(2)?)).or_default();
                *detail = detail.wrapping_add(value);
            } else {
                let rare = sum.rare.get_or_insert_default();
                let number = usize::try_from(quantity).ok().and_then(|index| rare.get_mut(index));
                let number = number.ok_or_else(|| Error::Damaged(format!("unknown quantity {quantity}")))?;
                *number = number.wrapping_add(value);
            }
            Ok(())
        })?;
        Ok(sums)
    }

    fn image_values(
        &self,
        images: &FxHashMap<i64, ImageId>,
        from: Boundary,
        to: Boundary,
    ) -> Result<ImageValues, Error> {
        let mut values: BTreeMap<_, BTreeMap<_, u64>> = BTreeMap::new();
        let sql = "SELECT image, class, quantity, idx, value FROM image_change WHERE interval > ? AND interval <= ?";
        self.connection.each_row(sql, [from.id, to.id], |row| {
            let class: i64 = row.get(1)?;
            let class = usize::try_from(class).ok().and_then(|class| EventClass::ALL.get(class).copied());
            let parts = (images.get(&row.get(0)?).copied(), class, ImageValue::from_number(row.get(2)?));
            let (Some(image), Some(class), Some(kind)) = parts else {
                return Err(Error::Damaged(String::from("a number of a process has an impossible key")));
            };
            let value = values.entry((image, class)).or_default().entry((kind, row.get(3)?)).or_default();
            let change = row.get::<_, i64>(4)?.cast_unsigned();
            *value = if kind == ImageValue::PeakRss { change.max(*value) } else { value.wrapping_add(change) };
            Ok(())
        })?;
        Ok(values)
    }

    fn stalls(
        &self,
        images: &FxHashMap<i64, ImageId>,
        from: Boundary,
        to: Boundary,
    ) -> Result<BTreeMap<(ImageId, StallKey), StallStats>, Error> {
        let mut stalls: BTreeMap<_, StallStats> = BTreeMap::new();
        let sql = "SELECT image, kind, cgroup_id, quantity, idx, value FROM stall_change
            WHERE interval > ? AND interval <= ?";
        self.connection.each_row(sql, [from.id, to.id], |row| {
            let kind: String = row.get(1)?;
            let (Some(&image), Some(work)) = (images.get(&row.get(0)?), reclaim_of(&kind)) else {
                return Err(Error::Damaged(String::from("a stall has an impossible key")));
            };
            let key = StallKey { group: CgroupId::of(row.get::<_, i64>(2)?.cast_unsigned()), work };
            let value = row.get::<_, i64>(5)?.cast_unsigned();
            quantities::add_stall_number(stalls.entry((image, key)).or_default(), row.get(3)?, row.get(4)?, value);
            Ok(())
        })?;
        Ok(stalls)
    }

    fn losses(&self, from: Boundary, to: Boundary) -> Result<Losses, Error> {
        let mut losses = Losses::default();
        let sql = "SELECT reason, count FROM loss WHERE interval > ? AND interval <= ?";
        self.connection.each_row(sql, [from.id, to.id], |row| {
            let name: String = row.get(0)?;
            let reason = LossReason::ALL.iter().find(|reason| reason.name() == name);
            let reason = reason.ok_or_else(|| Error::Damaged(String::from("unknown loss reason")))?;
            losses.add(*reason, row.get::<_, i64>(1)?.cast_unsigned());
            Ok(())
        })?;
        Ok(losses)
    }

    /// Returns the live and the allocated amount of an event class at the end of each interval.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn amounts_over_time(&self, class: EventClass) -> Result<Vec<(Boundary, Amount, Amount)>, Error> {
        let mut sums: BTreeMap<i64, [i64; 4]> = BTreeMap::new();
        let class = quantities::class_number(class);
        let sql = "SELECT change.interval, live_bytes, live_count, alloc_bytes, alloc_count FROM change
            JOIN total ON total.id = change.total WHERE total.class = ? AND change.interval <= ?";
        self.connection.each_row(sql, params![class, self.end().id], |row| {
            let sum = sums.entry(self.boundary_of(row.get(0)?).id).or_default();
            for (index, number) in sum.iter_mut().enumerate() {
                *number = number.wrapping_add(row.get(index + 1)?);
            }
            Ok(())
        })?;
        let mut now = [0_i64; 4];
        let amount =
            |bytes: i64, count: i64| Amount { bytes: Bytes(bytes.cast_unsigned()), count: count.cast_unsigned() };
        let at_end = self.intervals.iter().map(|interval| {
            let change = sums.get(&interval.id).copied().unwrap_or_default();
            now.iter_mut().zip(change).for_each(|(now, change)| *now = now.wrapping_add(change));
            (interval.end(), amount(now[0], now[1]), amount(now[2], now[3]))
        });
        Ok(at_end.collect())
    }

    fn names(&self, table: &str) -> Result<FxHashMap<i64, String>, Error> {
        let mut names = FxHashMap::default();
        self.connection.each_row(&format!("SELECT id, name FROM {table}"), [], |row| {
            names.insert(row.get(0)?, row.get(1)?);
            Ok(())
        })?;
        Ok(names)
    }
}

impl Sums {
    fn merge(&mut self, other: &Self) {
        self.amounts.add(other.amounts);
        if let Some(theirs) = &other.rare {
            let ours = self.rare.get_or_insert_default();
            ours.iter_mut().zip(theirs.iter()).for_each(|(ours, theirs)| *ours = ours.wrapping_add(*theirs));
        }
        for (key, value) in &other.details {
            let ours = self.details.entry(*key).or_default();
            *ours = ours.wrapping_add(*value);
        }
    }

    fn into_total(mut self, key: TotalKey) -> StackTotal {
        let rare = self.rare.as_deref().copied().unwrap_or_default();
        let (usage, merged) = quantities::usage_of(self.amounts, &rare);
        self.details.retain(|_, value| *value != 0);
        StackTotal { key, usage, merged, details: self.details }
    }
}
