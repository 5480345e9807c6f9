//! Tables of accounts as text.

use memtrace_model::AccountTable;
use memtrace_report::{AccountTextOptions, Format};

use crate::run_kit::observer::TableSize;
use crate::run_kit::table_rows;

/// Returns a table as text.
pub(super) fn text_of_accounts(table: &AccountTable, options: &AccountTextOptions) -> String {
    let mut text = Vec::new();
    // Writing to a vector does not fail.
    let _ = memtrace_report::write_accounts(Format::Text, table, options, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns a table as text that fits on the display, if possible. It may have fewer rows than `options` permit, but
/// always has the total and the losses.
pub(super) fn fitting_text(table: &AccountTable, options: AccountTextOptions, size: Option<TableSize>) -> String {
    let width = size.map(|size| size.columns);
    let text = |rows| text_of_accounts(table, &AccountTextOptions { rows, width, ..options });
    table_rows::fitting_text(options.rows.min(table.rows.len()), 0, size.map(|size| size.lines), text)
}

#[cfg(test)]
mod tests {
    use memtrace_model::{AccountColumn, AccountRow, AccountTotals, GroupBy, LossReason};

    use super::*;

    #[test]
    fn rows_make_room_for_the_total_and_the_losses() {
        let row = |number| AccountRow { names: vec![format!("user-{number}")], totals: AccountTotals::default() };
        let (keys, rows) = (vec![GroupBy::User].into(), (0..30).map(row).collect());
        let mut table = AccountTable { keys, rows, ..AccountTable::default() };
        table.losses.add(LossReason::LedgerFull, 7);
        let options = AccountTextOptions { sort: AccountColumn::Current, rows: 40, width: None };
        let all = fitting_text(&table, options, None);
        assert!(all.contains("accounts of users: 30\n"), "{all}");
        let lines = all.lines().count();
        let fitting = |lines, columns| fitting_text(&table, options, Some(TableSize { columns, lines }));
        let low = fitting(lines - 10, 200);
        assert_eq!(low.lines().count(), lines - 10);
        assert!(low.contains("accounts of users: 20 of 30\n") && low.contains("  total"), "{low}");
        assert!(low.contains("lost: 7 events"), "{low}");
        assert!(fitting(1, 200).contains("lost: 7 events"));
        // Notes that are broken into lines take the place of rows.
        let narrow = fitting(lines - 10, 40);
        assert_eq!(narrow.lines().count(), lines - 10);
        assert!(narrow.contains("left out: ") && narrow.contains("lost: 7 events"), "{narrow}");
    }
}
