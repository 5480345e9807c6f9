//! Rows of changed totals.

use memtrace_model::{ImageId, LossReason, PartKey, Quantity};
use rusqlite::types::Value;
use rusqlite::{CachedStatement, Result, Transaction, params, params_from_iter};

use super::processes::image_number;
use crate::file::numbers::Numbers;
use crate::file::quantities::{add_value, class_number, end_number, stall_numbers};
use crate::file::schema::{add_amounts, amounts};
use crate::file::text::part_values;
use crate::file::total_numbers::TotalNumbers;
use crate::interval::{Change, Interval, TotalKey};

/// Stores the changes of stacks and images, the stalls, and the losses.
pub(super) fn write(
    transaction: &Transaction<'_>,
    interval: i64,
    content: &Interval,
    images: &mut Numbers<ImageId>,
    totals: &mut TotalNumbers,
) -> Result<()> {
    let part = ", ?".repeat(PartKey::ALL.len());
    let new_total = transaction.prepare_cached(&format!("INSERT INTO total VALUES (?, ?, ?, ?, ?{part})"))?;
    let mut rows = Rows { transaction, interval, images, totals, new_total };
    rows.write_changes(content)?;
    rows.write_details(content)?;
    rows.write_image_changes(content)?;
    rows.write_stalls(content)?;
    let mut row = transaction.prepare_cached("INSERT INTO loss VALUES (?, ?, ?)")?;
    for (reason, count) in content.losses.iter().filter(|(_, count)| *count > 0) {
        row.execute(params![interval, LossReason::name(reason), count.cast_signed()])?;
    }
    Ok(())
}

fn insert_detail() -> String {
    format!("INSERT INTO detail VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET {}", add_value())
}

struct Rows<'a, 't> {
    transaction: &'a Transaction<'t>,
    interval: i64,
    images: &'a mut Numbers<ImageId>,
    totals: &'a mut TotalNumbers,
    new_total: CachedStatement<'a>,
}

impl Rows<'_, '_> {
    /// Returns the row number of a total. Creates the row on first use.
    fn total(&mut self, key: &TotalKey) -> Result<i64> {
        let (number, is_new) = self.totals.number(key);
        if is_new {
            let image = image_number(self.transaction, self.interval, key.image, self.images)?;
            let (class, end) = (class_number(key.class), end_number(key.end));
            let stack = [number, image, class, key.path.0.into(), end].map(Value::Integer);
            self.new_total.execute(params_from_iter(stack.into_iter().chain(part_values(key.part))))?;
        }
        Ok(number)
    }

    fn write_changes(&mut self, content: &Interval) -> Result<()> {
        let mut changes = Vec::with_capacity(content.changes.len());
        for change in &content.changes {
            changes.push((self.total(&change.key)?, change));
        }
        // In the order of the primary key, so that rows are appended to the table.
        changes.sort_unstable_by_key(|&(total, _)| total);
        // If an interval lists a stack twice, its row has the sum of both changes.
        let values = ", ?".repeat(Quantity::columns().count());
        let mut row = self.transaction.prepare_cached(&format!(
            "INSERT INTO change (interval, total, {}) VALUES (?, ?{values}) ON CONFLICT DO UPDATE SET {}",
            amounts(),
            add_amounts()
        ))?;
        let mut rare = self.transaction.prepare_cached(&insert_detail())?;
        for (total, Change { usage, .. }) in changes {
            let numbers = Quantity::columns().map(|quantity| usage[quantity].cast_signed());
            row.execute(params_from_iter([self.interval, total].into_iter().chain(numbers)))?;
            for (quantity, number) in Quantity::details().filter(|(quantity, _)| usage[*quantity] != 0) {
                rare.execute(params![self.interval, total, number, 0, usage[quantity].cast_signed()])?;
            }
        }
        Ok(())
    }

    fn write_details(&mut self, content: &Interval) -> Result<()> {
        let mut row = self.transaction.prepare_cached(&insert_detail())?;
        for detail in &content.details {
            let total = self.total(&detail.key)?;
            row.execute(params![self.interval, total, detail.kind.number(), detail.index, detail.value.cast_signed()])?;
        }
        Ok(())
    }

    fn write_image_changes(&mut self, content: &Interval) -> Result<()> {
        let mut row = self.transaction.prepare_cached(&format!(
            "INSERT INTO image_change VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET {}",
            add_value()
        ))?;
        for change in &content.image_changes {
            let image = image_number(self.transaction, self.interval, change.image, self.images)?;
            let (class, value) = (class_number(change.class), change.value.cast_signed());
            row.execute(params![self.interval, image, class, change.kind.number(), change.index, value])?;
        }
        Ok(())
    }

    fn write_stalls(&mut self, content: &Interval) -> Result<()> {
        let mut row = self.transaction.prepare_cached(&format!(
            "INSERT INTO stall_change VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET {}",
            add_value()
        ))?;
        for stall in &content.stalls {
            let image = image_number(self.transaction, self.interval, stall.image, self.images)?;
            let cgroup = stall.key.group.map_or(0, |id| id.number().cast_signed());
            for (quantity, index, value) in stall_numbers(&stall.stats) {
                let value = value.cast_signed();
                row.execute(params![self.interval, image, stall.key.work.name(), cgroup, quantity, index, value])?;
            }
        }
        Ok(())
    }
}
