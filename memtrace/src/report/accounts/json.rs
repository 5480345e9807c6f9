//! Accounts as JSON. `docs/json.md` documents the fields.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::model::{AccountTable, AccountTotals, Amount, MarkBounds};
use crate::report::json_lines::Lines;
use crate::report::tool::Tool;

/// Version of the fields.
const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Page<'a> {
    tool: Tool,
    kind: &'static str,
    schema_version: u32,
    keys: Vec<&'static str>,
    elapsed_seconds: f64,
    total: Numbers,
    losses: BTreeMap<&'static str, u64>,
    notes: &'a [String],
    accounts: Vec<Account<'a>>,
}

#[derive(Serialize)]
struct Account<'a> {
    names: &'a [String],
    #[serde(flatten)]
    numbers: Numbers,
}

/// Numbers of a group.
pub(super) struct Numbers {
    totals: AccountTotals,
    peak_time: Option<Duration>,
}

impl Numbers {
    pub(super) fn of(table: &AccountTable, totals: &AccountTotals) -> Self {
        Self { totals: *totals, peak_time: table.peak_time(totals) }
    }

    /// Returns the names of the numbers and their values; `None` for those that are not known.
    pub(super) fn fields(&self) -> Vec<(&'static str, Option<u64>)> {
        let AccountTotals { counters, live, exit, discarded, marks, .. } = &self.totals;
        let mut fields = Vec::with_capacity(24);
        let mut add = |[bytes, count]: [&'static str; 2], amount: Option<Amount>| {
            fields.push((bytes, amount.map(|amount| amount.bytes.0)));
            fields.push((count, amount.map(|amount| amount.count)));
        };
        add(["current_bytes", "current_count"], Some(*live));
        let mark = |bound: fn(&MarkBounds) -> Amount| marks.as_ref().map(bound);
        add(["high_bytes_at_least", "high_count_at_least"], mark(|marks| marks.high.at_least));
        add(["high_bytes_at_most", "high_count_at_most"], mark(|marks| marks.high.at_most));
        add(["low_bytes_at_least", "low_count_at_least"], mark(|marks| marks.low.at_least));
        add(["low_bytes_at_most", "low_count_at_most"], mark(|marks| marks.low.at_most));
        add(["alloc_bytes", "alloc_count"], Some(counters.alloc));
        add(["free_bytes", "free_count"], Some(counters.free));
        add(["free_by_others_bytes", "free_by_others_count"], marks.map(|_| counters.free_by_others));
        add(["exit_bytes", "exit_count"], Some(*exit));
        add(["discarded_bytes", "discarded_count"], Some(*discarded));
        fields.push(("unmatched_frees", marks.map(|_| counters.unmatched_frees)));
        fields.push(("peak_at_ms", self.peak_time.map(|time| time.as_millis() as u64)));
        fields
    }
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.fields())
    }
}

/// Writes the table.
pub(super) fn write(table: &AccountTable, mut out: &mut dyn io::Write) -> io::Result<()> {
    let page = Page {
        tool: Tool::THIS,
        kind: "accounts",
        schema_version: SCHEMA_VERSION,
        keys: table.keys.iter().map(|key| key.name()).collect(),
        elapsed_seconds: table.elapsed.as_secs_f64(),
        total: Numbers::of(table, &table.total),
        losses: table
            .losses
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| (reason.name(), count))
            .collect(),
        notes: &table.notes,
        accounts: table
            .rows
            .iter()
            .map(|row| Account { names: &row.names, numbers: Numbers::of(table, &row.totals) })
            .collect(),
    };
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Lines::default());
    page.serialize(&mut serializer)?;
    out.write_all(b"\n")
}
