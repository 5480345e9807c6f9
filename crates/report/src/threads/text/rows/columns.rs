//! Columns with numbers.

use memtrace_model::format::{compact_bytes, compact_rate};
use memtrace_model::{CounterSource, ThreadColumn, ThreadUsage, UsageCounter};

/// Number in a column.
enum Value {
    /// Value of a sort column.
    Sort(ThreadColumn),
    /// Counter per second.
    Rate(UsageCounter),
}

/// A column with numbers.
pub(super) struct NumberColumn {
    pub(super) head: &'static str,
    /// If the table is too wide, the columns with the lowest importance are left out first.
    pub(super) importance: u8,
    value: Value,
    cell: fn(f64) -> String,
}

impl NumberColumn {
    const fn new(head: &'static str, importance: u8, value: Value, cell: fn(f64) -> String) -> Self {
        Self { head, importance, value, cell }
    }

    /// Returns the cell for the usage in an interval of `seconds`, or `-` if `source` does not count the number.
    pub(super) fn cell(&self, source: CounterSource, usage: &ThreadUsage, seconds: f64) -> String {
        let (counters, value) = match &self.value {
            Value::Sort(column) => (column.counters(), column.value(usage, seconds)),
            Value::Rate(counter) => (std::slice::from_ref(counter), usage.get(*counter) as f64 / seconds),
        };
        let is_known = counters.iter().all(|counter| source.counts(*counter));
        if is_known { (self.cell)(value) } else { String::from("-") }
    }

    /// Returns true if the column shows the value of the sort column, or one of the counters in this value.
    pub(super) fn shows(&self, sort: ThreadColumn) -> bool {
        match self.value {
            Value::Sort(column) => column == sort,
            Value::Rate(counter) => sort.counters().contains(&counter),
        }
    }
}

/// Columns in the order of the table.
pub(super) const COLUMNS: [NumberColumn; 11] = [
    NumberColumn::new("ALLOC/s", 15, Value::Sort(ThreadColumn::Alloc), compact_bytes),
    NumberColumn::new("FREE/s", 9, Value::Sort(ThreadColumn::Free), compact_bytes),
    NumberColumn::new("NET", 11, Value::Sort(ThreadColumn::Net), signed_bytes),
    NumberColumn::new("BLOCKS/s", 6, Value::Sort(ThreadColumn::Blocks), compact_rate),
    NumberColumn::new("CPU%", 12, Value::Sort(ThreadColumn::Cpu), percent),
    NumberColumn::new("DELAY%", 7, Value::Sort(ThreadColumn::Delay), percent),
    NumberColumn::new("CSW/s", 3, Value::Sort(ThreadColumn::Switches), compact_rate),
    NumberColumn::new("READ/s", 4, Value::Sort(ThreadColumn::Read), compact_bytes),
    NumberColumn::new("WRITE/s", 5, Value::Sort(ThreadColumn::Write), compact_bytes),
    NumberColumn::new("MINFLT/s", 1, Value::Rate(UsageCounter::MinorFaults), compact_rate),
    NumberColumn::new("MAJFLT/s", 2, Value::Rate(UsageCounter::MajorFaults), compact_rate),
];

/// Returns bytes with their sign: `+1.50K`, `-17B`, `0B`. The minimum width keeps the column from moving between
/// intervals.
fn signed_bytes(bytes: f64) -> String {
    let sign = match bytes {
        _ if bytes > 0.0 => "+",
        _ if bytes < 0.0 => "-",
        _ => "",
    };
    format!("{:>6}", format!("{sign}{}", compact_bytes(bytes.abs())))
}

/// Returns a share of a processor in percent, without the sign. The minimum width has room for ten processors.
fn percent(share: f64) -> String {
    format!("{:>6.1}", share * 100.0)
}
