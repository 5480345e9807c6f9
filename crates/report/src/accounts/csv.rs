//! Accounts as CSV (RFC 4180), with a line of column names and one line for each group.

use std::collections::BTreeSet;
use std::io;

use memtrace_model::{AccountRow, AccountTable, AccountTotals};

use super::json::numbers;
use crate::account_names::{process, process_of};
use crate::escape::csv_text;

/// Column with the names of samplers. An account without samplers is exact.
const SAMPLERS: &str = "samplers";

/// Writes the column names and the rows. The columns of numbers have the names and the order of the JSON keys. The last column
/// has the samplers.
pub(super) fn write(table: &AccountTable, out: &mut dyn io::Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    let fields = |totals: &AccountTotals| -> serde_json::Result<serde_json::Map<_, _>> {
        serde_json::from_value(serde_json::to_value(numbers(table, totals))?)
    };
    let keys = table.keys.iter().map(|key| key.name().to_owned());
    let names = fields(&table.total)?.into_iter().map(|(name, _)| name);
    writer.write_record(keys.chain(names).chain([SAMPLERS.to_owned()]))?;
    for row in &table.rows {
        let values = fields(&row.totals)?.into_iter().map(|(_, value)| match value {
            serde_json::Value::Null => String::new(),
            number => number.to_string(),
        });
        let values = values.chain([samplers(table, row)]);
        writer.write_record(row.names.iter().map(|name| csv_text(name)).chain(values))?;
    }
    writer.flush()
}

/// Returns the names of the samplers that an account can have blocks from, separated by blanks. An account of a process has the
/// samplers of the process. If there are none, it has the samplers of unknown processes. Any other account has all samplers.
fn samplers(table: &AccountTable, row: &AccountRow) -> String {
    let all = &table.samplers;
    let pid = process_of(&table.keys, &row.names).and_then(process).map(|(_, pid)| pid);
    let found: Vec<_> = match pid {
        Some(pid) if all.of(pid).next().is_some() => all.of(pid).collect(),
        Some(_) => all.of_unknown().collect(),
        None => all.all().collect(),
    };
    let names: BTreeSet<_> = found.iter().map(|sampler| sampler.source.name()).collect();
    names.into_iter().collect::<Vec<_>>().join(" ")
}
