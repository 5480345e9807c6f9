//! Number of rows of a table that fits on the display.

/// Returns a text of at most `lines` lines, if possible. `text` returns a text with at most the given number of rows, and with
/// other lines that do not depend on this number. `rows`: number of rows without a limit. At least `fewest` rows are permitted.
pub(crate) fn fitting_text(
    mut rows: usize,
    fewest: usize,
    lines: Option<usize>,
    text: impl Fn(usize) -> String,
) -> String {
    loop {
        let text = text(rows);
        let excess = lines.map_or(0, |lines| text.lines().count().saturating_sub(lines));
        if excess == 0 || rows <= fewest {
            return text;
        }
        rows = rows.saturating_sub(excess).max(fewest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a head, `rows` rows, and a line about ten rows if there are fewer.
    fn table(rows: usize) -> String {
        let more = if rows < 10 { "more\n" } else { "" };
        format!("head\n{}{more}", "row\n".repeat(rows))
    }

    #[test]
    fn rows_make_room_for_the_other_lines() {
        let lines = |fewest, lines| fitting_text(10, fewest, lines, table).lines().count();
        assert_eq!([lines(0, None), lines(0, Some(11)), lines(0, Some(10)), lines(0, Some(5))], [11, 11, 10, 5]);
        assert_eq!([lines(0, Some(0)), lines(3, Some(0)), lines(20, Some(0))], [2, 5, 11]);
    }
}
