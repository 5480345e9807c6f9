//! The picture: a line a part, with a bar as long as its share of the RSS.

use std::io;

use super::super::phrase;
use super::super::text::table::{self, Column};
use super::Part;
use super::advice::Weight;
use crate::model::{Bytes, Explanation};

/// So long is the bar of all.
const LENGTH: usize = 24;
/// What bars are made of: of parts, and of parts of parts.
const OUTER: char = '#';
const INNER: char = '-';

/// Writes the picture as a table.
pub(super) fn write(page: &Explanation, parts: &[Part], out: &mut dyn io::Write) -> io::Result<()> {
    let rss = page.counted.rss;
    let held = page.held();
    let unexplained = page.unexplained(held);
    let mut rows: Vec<Row> = parts.iter().map(|part| Row::of(part, rss)).collect();
    rows.push(Row::unexplained(unexplained, rss));
    rows.push(Row {
        name: String::from("RSS"),
        resident: rss.to_string(),
        share: String::from("100%"),
        bar: String::new(),
        reserved: page.counted.virtual_size.to_string(),
        swap: page.counted.swap.to_string(),
    });
    let cells = |of: fn(&Row) -> &String| rows.iter().map(of).cloned().collect::<Vec<_>>();
    table::write(
        &[
            Column::text("", cells(|row| &row.name)),
            Column::numbers("RESIDENT", cells(|row| &row.resident)),
            Column::numbers("SHARE", cells(|row| &row.share)),
            Column::text("", cells(|row| &row.bar)),
            Column::numbers("RESERVED", cells(|row| &row.reserved)),
            Column::numbers("SWAPPED OUT", cells(|row| &row.swap)),
        ],
        out,
    )
}

struct Row {
    name: String,
    resident: String,
    share: String,
    bar: String,
    reserved: String,
    swap: String,
}

impl Row {
    fn of(part: &Part, rss: Bytes) -> Self {
        let share = share(part.resident, rss);
        let (indent, ink) = if part.kind.is_inner() { ("  ", INNER) } else { ("", OUTER) };
        let beyond =
            |of: fn(&crate::model::MemorySizes) -> Bytes| part.beyond.as_ref().map(of).map_or_else(String::new, shown);
        Self {
            name: format!("{indent}{}", part.name),
            resident: part.resident.to_string(),
            share: phrase::percent(share),
            bar: bar(share, ink),
            reserved: beyond(|held| held.reserved),
            swap: beyond(|held| held.swap),
        }
    }

    fn unexplained(bytes: i64, rss: Bytes) -> Self {
        let size = Bytes(bytes.unsigned_abs());
        let sign = if bytes < 0 { "-" } else { "" };
        let share = share(size, rss);
        Self {
            name: String::from("unexplained"),
            resident: format!("{sign}{size}"),
            share: format!("{sign}{}", phrase::percent(share)),
            bar: bar(share, OUTER),
            reserved: String::new(),
            swap: String::new(),
        }
    }
}

fn shown(bytes: Bytes) -> String {
    bytes.to_string()
}

/// The part of the RSS that `bytes` is.
pub(super) fn share(bytes: Bytes, rss: Bytes) -> f64 {
    if rss.0 == 0 { 0.0 } else { bytes.0 as f64 / rss.0 as f64 }
}

/// A bar; what is there at all has a mark.
fn bar(share: f64, ink: char) -> String {
    // A mark for each step that is at least half full.
    let marks = (0..LENGTH).filter(|mark| share * LENGTH as f64 >= *mark as f64 + 0.5).count();
    let marks = if share > 0.005 { marks.max(1) } else { marks };
    std::iter::repeat_n(ink, marks).collect()
}

/// Sets text off, as a terminal knows it (ECMA-48, SGR), or leaves it as it is.
pub(super) struct Painter {
    colour: bool,
}

impl Painter {
    pub(super) const fn new(colour: bool) -> Self {
        Self { colour }
    }

    /// Headings and commands.
    pub(super) fn strong(&self, text: &str) -> String {
        self.set_off(text, "1")
    }

    /// A sentence that matters more, or less.
    pub(super) fn by_weight(&self, text: &str, weight: Weight) -> String {
        match weight {
            Weight::Plain => text.to_owned(),
            Weight::Warning => self.set_off(text, "33"),
            Weight::Alarm => self.set_off(text, "1;31"),
        }
    }

    /// The bars in a picture whose other text has none of what they are made of next to each other.
    pub(super) fn bars(&self, picture: &str) -> String {
        if !self.colour {
            return picture.to_owned();
        }
        let mut painted = String::with_capacity(picture.len() * 2);
        for line in picture.split_inclusive('\n') {
            painted += &[(OUTER, "36"), (INNER, "2")].iter().fold(line.to_owned(), |line, (ink, code)| {
                let Some(start) = line.find(&format!("  {ink}")).map(|at| at + 2) else { return line };
                let length = line[start..].chars().take_while(|letter| letter == ink).count();
                let (before, rest) = line.split_at(start);
                let (bar, behind) = rest.split_at(length);
                format!("{before}{}{behind}", self.set_off(bar, code))
            });
        }
        painted
    }

    fn set_off(&self, text: &str, code: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
