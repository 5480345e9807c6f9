//! Totals between two boundaries: the sum of the changes.

use std::collections::BTreeMap;

use memtrace_model::{
    Amount, Bytes, CgroupId, EventClass, ImageId, LiveChanges, LossReason, Losses, Pid, Quantities, Quantity, StallKey,
    StallStats,
};
use rusqlite::params;
use rustc_hash::FxHashMap;

use super::Recording;
use super::query::Query;
use super::total_rows::{ImageIds, TotalRows};
use crate::book::Book as _;
use crate::boundaries::Boundary;
use crate::file::error::Error;
use crate::file::quantities::{self, list_image_values, quantity_from_number};
use crate::file::schema::amounts;
use crate::file::text::reclaim_of;
use crate::interval::{DetailKind, ImageValue, TotalKey};
use crate::totals::{ImageValues, Parts, StackTotal, Sums, Totals};

/// Returns the changes from the first of `bounds` to the last one. If there are more than two bounds, stacks of images
/// that run at the last bound also have their changes between each two successive bounds.
pub(super) fn totals_in_parts(recording: &Recording, bounds: &[Boundary]) -> Result<Totals, Error> {
    let (Some(&from), Some(&to)) = (bounds.first(), bounds.last()) else { return Ok(Totals::default()) };
    let images = image_ids(recording)?;
    Ok(Totals {
        stacks: stack_totals(recording, bounds, from, to)?,
        images: image_values(recording, &images, from, to)?,
        stalls: stalls(recording, &images, from, to)?,
        losses: recording.losses(from, to)?,
    })
}

/// Returns the ID of each process image, by the number of its row.
pub(super) fn image_ids(recording: &Recording) -> Result<ImageIds, Error> {
    let mut images = ImageIds::default();
    recording.connection.each_row("SELECT id, pid, ordinal FROM image", [], |row| {
        images.insert(row.get(0)?, ImageId { pid: Pid(row.get(1)?), ordinal: row.get(2)? });
        Ok(())
    })?;
    Ok(images)
}

fn stack_totals(
    recording: &Recording,
    bounds: &[Boundary],
    from: Boundary,
    to: Boundary,
) -> Result<Vec<StackTotal>, Error> {
    let rows = TotalRows::read(&recording.connection, to)?;
    let mut sums = vec![Sums::default(); rows.all().len()];
    add_changes(recording, &rows, bounds, from, to, &mut sums)?;
    add_details(recording, &rows, from, to, &mut sums)?;
    let mut in_order = Vec::with_capacity(sums.len());
    for (index, (row, sums)) in rows.all().iter().zip(&sums).enumerate() {
        if *sums != Sums::default() {
            in_order.push((row.key()?, index));
        }
    }
    in_order.sort_unstable();
    let mut stacks = Vec::with_capacity(in_order.len());
    // A stack can have several rows.
    for of_stack in in_order.chunk_by(|(key, _), (next, _)| key == next) {
        let (key, first) = of_stack[0];
        let mut sum = std::mem::take(&mut sums[first]);
        of_stack[1..].iter().for_each(|&(_, more)| sum.merge(&sums[more]));
        let stack = sum.into_total(key);
        if !stack.usage.is_zero() || !stack.details.is_empty() {
            stacks.push(stack);
        }
    }
    Ok(stacks)
}

/// Adds the rows of `change` to the `sums` of their totals.
fn add_changes(
    recording: &Recording,
    rows: &TotalRows,
    bounds: &[Boundary],
    from: Boundary,
    to: Boundary,
    sums: &mut [Sums],
) -> Result<(), Error> {
    let mut parts = Parts::new(bounds);
    let sql = format!("SELECT total, interval, {} FROM change WHERE interval > ? AND interval <= ?", amounts());
    let mut next = 0;
    recording.connection.each_row(&sql, [from.id, to.id], |row| {
        let Some(position) = rows.position(row.get(0)?, next) else { return Ok(()) };
        next = position + 1;
        let mut change = Quantities::ZERO;
        for (index, quantity) in (2..).zip(Quantity::columns()) {
            change[quantity] = row.get::<_, i64>(index)?.cast_unsigned();
        }
        let sum = &mut sums[position];
        sum.usage += change;
        if bounds.len() > 2 && rows.all()[position].is_running {
            parts.add(row.get(1)?, change.live().bytes, change.alloc().bytes, &mut sum.live_changes);
        }
        Ok(())
    })
}

/// Adds the rows of `detail` to the `sums` of their totals.
fn add_details(
    recording: &Recording,
    rows: &TotalRows,
    from: Boundary,
    to: Boundary,
    sums: &mut [Sums],
) -> Result<(), Error> {
    let sql = "SELECT total, quantity, idx, value FROM detail WHERE interval > ? AND interval <= ?";
    let mut last = 0;
    recording.connection.each_row(sql, [from.id, to.id], |row| {
        let Some(position) = rows.position(row.get(0)?, last) else { return Ok(()) };
        last = position;
        let sum = &mut sums[position];
        let (quantity, value) = (row.get(1)?, row.get::<_, i64>(3)?.cast_unsigned());
        if let Some(kind) = DetailKind::from_number(quantity) {
            let detail = sum.details.entry((kind, row.get(2)?)).or_default();
            *detail = detail.wrapping_add(value);
        } else {
            let quantity =
                quantity_from_number(quantity).ok_or_else(|| Error::Damaged(format!("unknown quantity {quantity}")))?;
            sum.usage[quantity] = sum.usage[quantity].wrapping_add(value);
        }
        Ok(())
    })
}

/// Returns the changes of live and allocated bytes between each two successive `bounds`, for the totals of images that
/// run at the last bound.
pub(super) fn live_changes(
    recording: &Recording,
    bounds: &[Boundary],
) -> Result<FxHashMap<TotalKey, LiveChanges>, Error> {
    let mut by_key: FxHashMap<TotalKey, LiveChanges> = FxHashMap::default();
    let (Some(first), Some(last)) = (bounds.first(), bounds.last()) else { return Ok(by_key) };
    let rows = TotalRows::read(&recording.connection, *last)?;
    let mut of_rows = vec![LiveChanges::default(); rows.all().len()];
    let (mut parts, mut next) = (Parts::new(bounds), 0);
    let sql = "SELECT total, interval, live_bytes, alloc_bytes FROM change WHERE interval > ? AND interval <= ?";
    recording.connection.each_row(sql, [first.id, last.id], |row| {
        let Some(position) = rows.position(row.get(0)?, next) else { return Ok(()) };
        next = position + 1;
        if rows.all()[position].is_running {
            let bytes = |column| row.get::<_, i64>(column).map(|bytes| Bytes(bytes.cast_unsigned()));
            parts.add(row.get(1)?, bytes(2)?, bytes(3)?, &mut of_rows[position]);
        }
        Ok(())
    })?;
    for (row, changes) in rows.all().iter().zip(of_rows).filter(|(_, changes)| !changes.as_slice().is_empty()) {
        by_key.entry(row.key()?).or_default().merge(&changes);
    }
    Ok(by_key)
}

fn image_values(recording: &Recording, images: &ImageIds, from: Boundary, to: Boundary) -> Result<ImageValues, Error> {
    let mut values: BTreeMap<_, BTreeMap<_, u64>> = BTreeMap::new();
    // A state lasts until it changes, so the row of an earlier interval still holds.
    let sql = format!(
        "SELECT image, class, quantity, idx, value FROM image_change
            WHERE interval <= ?2 AND (interval > ?1 OR quantity IN ({}))",
        list_image_values(ImageValue::is_state)
    );
    recording.connection.each_row(&sql, [from.id, to.id], |row| {
        let class: i64 = row.get(1)?;
        let class = usize::try_from(class).ok().and_then(|class| EventClass::ALL.get(class).copied());
        let parts = (images.get(&row.get(0)?).copied(), class, ImageValue::from_number(row.get(2)?));
        let (Some(image), Some(class), Some(kind)) = parts else {
            return Err(Error::Damaged(String::from("a number of a process has an impossible key")));
        };
        let value = values.entry((image, class)).or_default().entry((kind, row.get(3)?)).or_default();
        let change = row.get::<_, i64>(4)?.cast_unsigned();
        *value = kind.add(*value, change);
        Ok(())
    })?;
    Ok(values)
}

fn stalls(
    recording: &Recording,
    images: &ImageIds,
    from: Boundary,
    to: Boundary,
) -> Result<BTreeMap<(ImageId, StallKey), StallStats>, Error> {
    let mut stalls: BTreeMap<_, StallStats> = BTreeMap::new();
    let sql = "SELECT image, kind, cgroup_id, quantity, idx, value FROM stall_change
        WHERE interval > ? AND interval <= ?";
    recording.connection.each_row(sql, [from.id, to.id], |row| {
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

/// Returns the losses of the intervals between two boundaries, by the end of the interval. Intervals without losses
/// are left out.
pub(super) fn losses_of_intervals(
    recording: &Recording,
    from: Boundary,
    to: Boundary,
) -> Result<BTreeMap<Boundary, Losses>, Error> {
    let mut losses: BTreeMap<Boundary, Losses> = BTreeMap::new();
    let sql = "SELECT interval, reason, count FROM loss WHERE interval > ? AND interval <= ?";
    recording.connection.each_row(sql, [from.id, to.id], |row| {
        let name: String = row.get(1)?;
        let reason = LossReason::ALL.iter().find(|reason| reason.name() == name);
        let reason = reason.ok_or_else(|| Error::Damaged(String::from("unknown loss reason")))?;
        let lost = losses.entry(recording.boundary_of(row.get(0)?)).or_default();
        lost.add(*reason, row.get::<_, i64>(2)?.cast_unsigned());
        Ok(())
    })?;
    Ok(losses)
}

/// Returns the live and the allocated amount of an event class at the end of each interval.
pub(super) fn amounts_over_time(
    recording: &Recording,
    class: EventClass,
) -> Result<Vec<(Boundary, Amount, Amount)>, Error> {
    let mut sums: BTreeMap<i64, [i64; 4]> = BTreeMap::new();
    let class = quantities::class_number(class);
    let sql = "SELECT change.interval, live_bytes, live_count, alloc_bytes, alloc_count FROM change
        JOIN total ON total.id = change.total WHERE total.class = ? AND change.interval <= ?";
    recording.connection.each_row(sql, params![class, recording.end().id], |row| {
        let sum = sums.entry(recording.boundary_of(row.get(0)?).id).or_default();
        for (index, number) in sum.iter_mut().enumerate() {
            *number = number.wrapping_add(row.get(index + 1)?);
        }
        Ok(())
    })?;
    let mut now = [0_i64; 4];
    let amount = |bytes: i64, count: i64| Amount { bytes: Bytes(bytes.cast_unsigned()), count: count.cast_unsigned() };
    let at_end = recording.intervals.iter().map(|interval| {
        let change = sums.get(&interval.id).copied().unwrap_or_default();
        now.iter_mut().zip(change).for_each(|(now, change)| *now = now.wrapping_add(change));
        (interval.end(), amount(now[0], now[1]), amount(now[2], now[3]))
    });
    Ok(at_end.collect())
}
