//! Accounts of a run in progress.

use std::time::Instant;

use super::Trace;
use crate::model::{AccountTable, Losses};
use crate::session::marks::MarkRequest;
use crate::session::observer::Observer;
use crate::session::run::reports::text_of_accounts;

impl Trace {
    /// Adds the changes of accounts, asks for new ones, and shows the table if it is due. `losses` are those of the BPF
    /// programs.
    pub(super) fn update_accounts(&mut self, losses: &Losses, observer: &mut dyn Observer) {
        let Some(accounts) = &mut self.accounts else { return };
        accounts.receive(&mut self.tracker);
        accounts.note_resets(observer);
        let members = accounts.take_members();
        if !members.is_empty() {
            self.shards.group_accounts(members);
        }
        self.shards.send_accounts();
        let now = Instant::now();
        if accounts.is_due(now) {
            accounts.name_tags(&self.kernel.tags());
            let mut table = accounts.table(self.start_tick, now.duration_since(self.start), &self.tracker);
            table.losses.merge(losses);
            table.losses.merge(&self.tracker.losses());
            table.sort(self.sort);
            let lines = observer.table_size().map(|size| size.lines);
            observer.table(&fitting_text(&table, self.top, lines));
        }
    }

    /// Starts new water marks.
    pub(super) fn reset_accounts(&mut self, request: MarkRequest, observer: &mut dyn Observer) {
        let Some(accounts) = &mut self.accounts else { return };
        let is_signal = request.reply.is_none();
        match accounts.reset_marks(self.start.elapsed(), request) {
            Ok(number) => self.shards.split_accounts(number, self.now()),
            Err(reason) if is_signal => observer.note(&format!("no new water marks: {reason}")),
            Err(_) => {}
        }
    }
}

/// Returns a table as text of at most `lines` lines, if possible: with fewer rows than `top`, but with the total and the
/// losses.
fn fitting_text(table: &AccountTable, top: usize, lines: Option<usize>) -> String {
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
    use super::*;
    use crate::model::{AccountRow, AccountTotals, GroupBy, LossReason};

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
