//! Ended images that were merged.

use std::collections::BTreeMap;

use memtrace_model::{EventClass, ImageId};

use super::query::Query;
use super::{Recording, totals};
use crate::boundaries::Boundary;
use crate::file::error::Error;
use crate::file::text::{duration, end_of, tick_of};
use crate::merged_images::MergedImages;

/// Returns the merged images that ended between two boundaries, by their group and event class. The totals of a
/// group include the totals of its merged images.
pub(super) fn merged_images(
    recording: &Recording,
    from: Boundary,
    to: Boundary,
) -> Result<BTreeMap<(ImageId, EventClass), MergedImages>, Error> {
    let mut merged: BTreeMap<_, MergedImages> = BTreeMap::new();
    let groups = totals::image_ids(recording)?;
    let sql = "SELECT image, class, end_kind, images, traced_ns, inherited_frees, first_start_ns, last_end_ns
        FROM merged_image WHERE interval > ? AND interval <= ?";
    recording.connection.each_row(sql, [from.id, to.id], |row| {
        let class = usize::try_from(row.get::<_, i64>(1)?).ok().and_then(|class| EventClass::ALL.get(class).copied());
        let parts = (groups.get(&row.get(0)?).copied(), class, end_of(&row.get::<_, String>(2)?));
        let (Some(group), Some(class), Some(end)) = parts else {
            return Err(Error::Damaged(String::from("merged images have an impossible key")));
        };
        let (images, traced, frees): (i64, i64, i64) = (row.get(3)?, row.get(4)?, row.get(5)?);
        let (Ok(images), Ok(_), Ok(inherited_frees)) =
            (u32::try_from(images), u64::try_from(traced), u64::try_from(frees))
        else {
            return Err(Error::Damaged(String::from("merged images have an impossible number")));
        };
        merged.entry((group, class)).or_default().merge(&MergedImages {
            ends: [(end, u64::from(images))].into(),
            traced: duration(traced),
            inherited_frees,
            first_start: tick_of(row.get(6)?),
            last_end: tick_of(row.get(7)?),
        });
        Ok(())
    })?;
    Ok(merged)
}
