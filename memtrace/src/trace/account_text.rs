//! Tables of accounts as text.

use memtrace_model::AccountTable;

/// Returns the first `top` rows of a table as text.
pub(super) fn text_of_accounts(table: &AccountTable, top: usize) -> String {
    let mut text = Vec::new();
    // Writing to a vector does not fail.
    let _ = memtrace_report::write_accounts(memtrace_report::Format::Text, table, top, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns a table as text of at most `lines` lines, if possible. It may have fewer rows than `top`, but always has the
/// total and the losses.
pub(super) fn fitting_text(table: &AccountTable, top: usize, lines: Option<usize>) -> String {
    let mut rows = top.min(table.rows.len());
    loop {
        let text = text_of_accounts(table, rows);
        let excess = lines.map_or(0, |lines| text.lines().count().saturating_sub(lines));
        if excess == 0 || rows == 0 {
            return text;
        }
        rows = rows.saturating_sub(excess);
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::{AccountRow, AccountTotals, GroupBy, LossReason};

    use super::*;

    #[test]
    fn rows_make_room_for_the_total_and_the_losses() {
        let row = |number| AccountRow { names: vec![format!("user-{number}")], totals: AccountTotals::default() };
        let (keys, rows) = (vec![GroupBy::User].into(), (0..30).map(row).collect());
        let mut table = AccountTable { keys, rows, ..AccountTable::default() };
        table.losses.add(LossReason::LedgerFull, 7);
        let all = fitting_text(&table, 40, None);
        assert!(all.contains("accounts of users: 30\n"), "{all}");
        let lines = all.lines().count();
        let low = fitting_text(&table, 40, Some(lines - 10));
        assert_eq!(low.lines().count(), lines - 10);
        assert!(low.contains("accounts of users: 20 of 30\n") && low.contains("  total"), "{low}");
        assert!(low.contains("lost: 7 events"), "{low}");
        assert!(fitting_text(&table, 40, Some(1)).contains("lost: 7 events"));
    }
}
