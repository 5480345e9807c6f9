//! Accounts as CSV (RFC 4180), with a line of column names and one line for each group.

use std::io;

use memtrace_model::{AccountTable, AccountTotals};

use super::json::numbers;
use crate::escape::csv_text;

/// Writes the column names and the rows. The columns of numbers have the names and the order of the JSON keys.
pub(super) fn write(table: &AccountTable, out: &mut dyn io::Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    let fields = |totals: &AccountTotals| -> serde_json::Result<serde_json::Map<_, _>> {
        serde_json::from_value(serde_json::to_value(numbers(table, totals))?)
    };
    let keys = table.keys.iter().map(|key| key.name().to_owned());
    writer.write_record(keys.chain(fields(&table.total)?.into_iter().map(|(name, _)| name)))?;
    for row in &table.rows {
        let values = fields(&row.totals)?.into_iter().map(|(_, value)| match value {
            serde_json::Value::Null => String::new(),
            number => number.to_string(),
        });
        writer.write_record(row.names.iter().map(|name| csv_text(name)).chain(values))?;
    }
    writer.flush()
}
