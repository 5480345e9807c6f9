//! Accounts as text.

use std::io;

use memtrace_model::format::{clock, counted, duration, grouped};
use memtrace_model::{
    AccountColumn, AccountKeys, AccountRow, AccountTable, AccountTotals, Amount, AmountBounds, Bytes, GroupBy,
    PartKeys, plain,
};

use crate::account_names::{process, process_of, split_thread};
use crate::format::{shortened, shortened_left};
use crate::table::{self, Column};
use crate::{Format, escape, groups, wrap};

/// Maximum width of a name, in columns of a terminal.
const NAME: usize = 40;

/// Indentation of the continued lines of notes.
const INDENT: usize = 2;

/// Options of the text of accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountTextOptions {
    /// Sort column of the rows. It is never left out.
    pub sort: AccountColumn,
    /// Maximum number of rows.
    pub rows: usize,
    /// Maximum width of lines in columns of a terminal; `None` for no limit. If the table is too wide, its least important
    /// columns are left out, and a line names them.
    pub width: Option<usize>,
}

/// Writes a line with the duration, a table of the first rows and the total, and notes about left-out columns, bounds
/// and losses.
pub(super) fn write(table: &AccountTable, options: &AccountTextOptions, out: &mut dyn io::Write) -> io::Result<()> {
    let width = options.width.unwrap_or(usize::MAX);
    let shown = &table.rows[..options.rows.min(table.rows.len())];
    let names = Names::of(table);
    let number = grouped(table.rows.len() as u64);
    let listed = if shown.len() < table.rows.len() { format!("{} of {number}", shown.len()) } else { number };
    let mut lines = vec![format!("{}  accounts of {}: {listed}", clock(table.elapsed), names.title()), String::new()];
    let fit = table::fit(columns(table, shown, &names, options.sort), width);
    lines.extend(fit.lines(width));
    let totals = || shown.iter().map(|row| &row.totals).chain([&table.total]);
    let has_bounds = totals().any(|totals| totals.marks.is_some_and(|marks| is_wide(marks.high) || is_wide(marks.low)));
    let is_unknown = shown.iter().any(|row| row.totals.marks.is_none());
    let left_out = fit.note_of_left_out(Format::Csv);
    if has_bounds || is_unknown || left_out.is_some() {
        lines.push(String::new());
    }
    lines.extend(left_out);
    if has_bounds {
        let note = "~ the mark is a bound: the order of changes in the accounts of a group is not known";
        lines.push(String::from(note));
    }
    if is_unknown {
        lines.push(format!("- water marks are not kept by {}", table.keys.plural()));
    }
    for (reason, count) in table.losses.iter().filter(|(_, count)| *count > 0) {
        lines.push(format!("lost: {} ({})", counted(count, "event", "events"), reason.explanation()));
    }
    lines.extend(table.tag_functions.iter().map(|function| format!("tags: {function}")));
    lines.extend(table.notes.iter().map(|note| format!("note: {}", plain(note))));
    wrap::write(&lines, INDENT, width, out)
}

/// Columns of names. If all rows belong to one process, the title names the process, and the rows do not repeat it.
struct Names<'a> {
    /// Keys with a column, with their positions in the keys of the table.
    keys: Vec<(usize, GroupBy)>,
    /// Process that all rows belong to; `None` if there is none, or if the process is the only name of its row.
    process: Option<&'a str>,
    table: &'a AccountTable,
}

impl<'a> Names<'a> {
    fn of(table: &'a AccountTable) -> Self {
        let keys = &table.keys;
        let is_repeated = keys.len() > 1 || keys.iter().any(|key| key.parts() == PartKeys::THREAD);
        let process = if is_repeated { common_process(table) } else { None };
        let is_shown = |key: GroupBy| process.is_none() || !key.is_process();
        let keys = keys.iter().copied().enumerate().filter(|(_, key)| is_shown(*key)).collect();
        Self { keys, process, table }
    }

    /// Returns the nouns of the keys, with the common process: `threads of server (4711)`.
    fn title(&self) -> String {
        let keys: Vec<_> = self.keys.iter().map(|(_, key)| *key).collect();
        let keys = AccountKeys::from(keys).plural();
        match self.process {
            Some(process) => format!("{keys} of {}", escape::visible(process)),
            None => keys,
        }
    }

    /// Returns the columns for `rows`, and for the total.
    fn columns(&self, rows: &[AccountRow]) -> impl Iterator<Item = Column> {
        self.keys.iter().enumerate().map(move |(column, &(position, key))| {
            let shorten: fn(&str, usize) -> String = if key.is_path() { shortened_left } else { shortened };
            let total = if column == 0 { "total" } else { "" };
            let names = rows.iter().map(|row| self.name(row, position, key)).chain([String::from(total)]);
            Column::names(groups::head(key), names.map(|name| shorten(&name, NAME)), shorten)
        })
    }

    /// Returns a name of a row. The name of a thread omits its process if the title or another column names the process.
    fn name(&self, row: &AccountRow, position: usize, key: GroupBy) -> String {
        let Some(name) = row.names.get(position) else { return String::new() };
        let keys = &self.table.keys;
        let has_process = self.process.is_some() || keys.iter().any(|key| key.is_process());
        let (thread, of) = split_thread(name);
        let is_thread = key.parts() == PartKeys::THREAD && has_process && process_of(keys, &row.names) == Some(of);
        escape::visible(if is_thread { thread } else { name.as_str() })
    }
}

/// Returns the process that all rows of a table belong to.
fn common_process(table: &AccountTable) -> Option<&str> {
    let mut processes = table.rows.iter().map(|row| process_of(&table.keys, &row.names));
    let first = processes.next()??;
    // Sums of several processes, such as `sh [ended]`, have no PID, so they are not a common process.
    (process(first).is_some() && processes.all(|other| other == Some(first))).then_some(first)
}

/// Returns the columns of names and numbers for `rows`, and for the total.
fn columns(table: &AccountTable, rows: &[AccountRow], names: &Names<'_>, sort: AccountColumn) -> Vec<Column> {
    let all = || rows.iter().map(|row| &row.totals).chain([&table.total]);
    let column = |by: AccountColumn, head: &'static str, cells: Vec<String>| {
        let column = Column::numbers(head, cells);
        match importance(by) {
            Some(importance) if by != sort => column.with_importance(importance),
            _ => column,
        }
    };
    let always = |by: AccountColumn, head: &'static str, cell: &dyn Fn(&AccountTotals) -> String| {
        column(by, head, all().map(cell).collect())
    };
    let optional = |by: AccountColumn, head: &'static str, value: &dyn Fn(&AccountTotals) -> Option<String>| {
        let cells: Vec<_> = all().map(value).collect();
        let has_value = cells.iter().any(Option::is_some);
        let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| String::from("-")));
        has_value.then(|| column(by, head, cells.collect()))
    };
    let mut columns: Vec<Column> = names.columns(rows).collect();
    columns.extend([
        always(AccountColumn::Current, "CURRENT", &|totals| totals.live.bytes.to_string()),
        always(AccountColumn::Blocks, "BLOCKS", &|totals| grouped(totals.live.count)),
        always(AccountColumn::High, "HIGH", &high),
        always(AccountColumn::Low, "LOW", &low),
        always(AccountColumn::Allocated, "ALLOCATED", &|totals| totals.counters.alloc.bytes.to_string()),
        always(AccountColumn::Freed, "FREED", &|totals| totals.counters.free.bytes.to_string()),
    ]);
    let frees = |totals: &AccountTotals| {
        let frees = totals.counters.unmatched_frees;
        (frees > 0).then(|| grouped(frees))
    };
    let optional = [
        optional(AccountColumn::FreedByOthers, "BY OTHERS", &|totals| some(totals.counters.free_by_others)),
        optional(AccountColumn::Exit, "EXIT", &|totals| some(totals.exit)),
        optional(AccountColumn::Discarded, "DISCARDED", &|totals| some(totals.discarded)),
        optional(AccountColumn::Unmatched, "UNMATCHED", &frees),
        optional(AccountColumn::PeakTime, "PEAK AT", &|totals| table.peak_time(totals).map(duration)),
    ];
    columns.extend(optional.into_iter().flatten());
    columns
}

/// Returns the importance of a column: a table that is too wide leaves out the least important columns first. Returns
/// `None` for names, live bytes and live blocks, which are never left out.
const fn importance(column: AccountColumn) -> Option<u8> {
    match column {
        AccountColumn::Name | AccountColumn::Current | AccountColumn::Blocks => None,
        AccountColumn::High => Some(9),
        // Processes that have ended have no live bytes, but bytes held at exit.
        AccountColumn::Exit => Some(8),
        AccountColumn::Allocated => Some(7),
        AccountColumn::Freed => Some(6),
        AccountColumn::PeakTime => Some(5),
        AccountColumn::FreedByOthers => Some(4),
        AccountColumn::Low => Some(3),
        AccountColumn::Unmatched => Some(2),
        AccountColumn::Discarded => Some(1),
    }
}

fn some(value: Amount) -> Option<String> {
    (value != Amount::default()).then(|| value.bytes.to_string())
}

fn is_wide(bounds: AmountBounds) -> bool {
    bounds.at_least.bytes != bounds.at_most.bytes
}

/// Returns the high-water mark of the bytes, or its upper bound with a tilde; `-` if it was not kept.
fn high(totals: &AccountTotals) -> String {
    totals.marks.map_or_else(|| String::from("-"), |marks| bound(marks.high, marks.high.at_most.bytes))
}

/// Returns the low-water mark of the bytes, or its lower bound with a tilde; `-` if it was not kept.
fn low(totals: &AccountTotals) -> String {
    totals.marks.map_or_else(|| String::from("-"), |marks| bound(marks.low, marks.low.at_least.bytes))
}

fn bound(bounds: AmountBounds, shown: Bytes) -> String {
    let sign = if is_wide(bounds) { "~" } else { "" };
    format!("{sign}{shown}")
}
