//! Selection of the columns that fit in a line.

use crate::table::{self, Column};

/// Importance of columns that are never removed.
pub(super) const ALWAYS: u8 = u8::MAX;

/// Removes the least important columns until the others fit in `width`.
pub(super) fn fitting(mut columns: Vec<(u8, Column)>, width: usize) -> Vec<Column> {
    let mut taken: usize = columns.iter().map(|(_, column)| table::total_width(std::slice::from_ref(column))).sum();
    while taken > width {
        let removable = columns.iter().enumerate().filter(|(_, (importance, _))| *importance < ALWAYS);
        let Some((least, _)) = removable.min_by_key(|(_, (importance, _))| *importance) else { break };
        let (_, column) = columns.remove(least);
        taken -= table::total_width(&[column]);
    }
    columns.into_iter().map(|(_, column)| column).collect()
}
