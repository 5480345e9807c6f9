//! Accounts as CSV (RFC 4180), with a line of column names and one line for each group.

use std::io;

use super::json::Numbers;
use crate::model::AccountTable;
use crate::report::escape::csv_text;

/// Writes the rows.
pub(super) fn write(table: &AccountTable, out: &mut dyn io::Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    let keys = table.keys.iter().map(|key| key.name());
    let names = Numbers::of(table, &table.total).fields();
    writer.write_record(keys.chain(names.iter().map(|(name, _)| *name)))?;
    for row in &table.rows {
        let values = Numbers::of(table, &row.totals).fields();
        let values = values.iter().map(|(_, value)| value.map_or_else(String::new, |value| value.to_string()));
        writer.write_record(row.names.iter().map(|name| csv_text(name)).chain(values))?;
    }
    writer.flush()
}
