//! Bar chart: a line for each part, with a bar for its share of the RSS.

use std::io;

use memtrace_model::format as number;
use memtrace_model::{Bytes, Explanation};

use super::painter::{INNER, OUTER};
use super::rss_parts::{Part, share};
use crate::table::Column;
use crate::text::text_writer::TextWriter;

/// Length of a full bar, in characters.
const LENGTH: usize = 10;

/// Writes the chart as a table.
pub(super) fn write(page: &Explanation, parts: &[Part], out: &mut TextWriter<'_>) -> io::Result<()> {
    let rss = page.counted.rss;
    let sizes = page.held();
    let unexplained = page.unexplained(sizes);
    let mut rows: Vec<Row> = parts.iter().map(|part| Row::of(part, rss)).collect();
    rows.push(Row::unexplained(unexplained, rss));
    rows.push(Row {
        name: String::from("RSS"),
        resident: rss.to_string(),
        share: String::from("100%"),
        bar: String::new(),
        returnable: sizes.returnable.to_string(),
        reserved: page.counted.virtual_size.to_string(),
        swap: page.counted.swap.to_string(),
    });
    let cells = |of: fn(&Row) -> &String| rows.iter().map(of).cloned().collect::<Vec<_>>();
    out.table(vec![
        Column::text("", cells(|row| &row.name)),
        Column::numbers("RESIDENT", cells(|row| &row.resident)),
        Column::numbers("SHARE", cells(|row| &row.share)),
        Column::text("", cells(|row| &row.bar)),
        Column::numbers("RETURNABLE", cells(|row| &row.returnable)),
        Column::numbers("RESERVED", cells(|row| &row.reserved)).with_importance(2),
        Column::numbers("SWAPPED OUT", cells(|row| &row.swap)).with_importance(1),
    ])
}

struct Row {
    name: String,
    resident: String,
    share: String,
    bar: String,
    returnable: String,
    reserved: String,
    swap: String,
}

impl Row {
    fn of(part: &Part, rss: Bytes) -> Self {
        let share = share(part.resident, rss);
        let (indent, ink) = if part.kind.is_inner() { ("  ", INNER) } else { ("", OUTER) };
        let beyond = |of: fn(&memtrace_model::MemorySizes) -> Bytes| {
            part.beyond.as_ref().map(of).map_or_else(String::new, shown)
        };
        Self {
            name: format!("{indent}{}", part.name),
            resident: part.resident.to_string(),
            share: number::percent(share),
            bar: bar(share, ink),
            returnable: beyond(|sizes| sizes.returnable),
            reserved: beyond(|sizes| sizes.reserved),
            // The kernel counts the swapped-out memory of whole mappings only.
            swap: if part.kind.is_inner() { String::new() } else { beyond(|sizes| sizes.swap) },
        }
    }

    fn unexplained(bytes: i64, rss: Bytes) -> Self {
        let size = Bytes(bytes.unsigned_abs());
        let sign = if bytes < 0 { "-" } else { "" };
        let share = share(size, rss);
        Self {
            name: String::from("unexplained"),
            resident: format!("{sign}{size}"),
            share: format!("{sign}{}", number::percent(share)),
            bar: bar(share, OUTER),
            returnable: String::new(),
            reserved: String::new(),
            swap: String::new(),
        }
    }
}

fn shown(bytes: Bytes) -> String {
    bytes.to_string()
}

/// Returns a bar for a share of the RSS. A share above 0.5 % has at least one mark.
fn bar(share: f64, ink: char) -> String {
    // One mark for each step that is at least half full.
    let marks = (0..LENGTH).filter(|mark| share * LENGTH as f64 >= *mark as f64 + 0.5).count();
    let marks = if share > 0.005 { marks.max(1) } else { marks };
    std::iter::repeat_n(ink, marks).collect()
}
