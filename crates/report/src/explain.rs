//! Reports of `memtrace explain`: text and JSON.

mod advice;
mod bars;
mod cgroup_facts;
mod facts;
mod json;
mod outside_rss;
mod painter;
mod rss_parts;
mod selection;
mod selection_advice;
mod selection_json;

pub use self::json::write as write_json;
pub use self::selection::write as write_selection_text;
pub use self::selection_json::write as write_selection_json;

use std::io;

use memtrace_model::format as number;
use memtrace_model::{Bytes, Explanation, FileMemory, MemorySizes, NamedMemory};

use self::painter::Painter;
use crate::table::Column;
use crate::text::text_writer::TextWriter;
use crate::{escape, format};

/// Options of the text of `memtrace explain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOptions {
    /// Maximum number of entries in each list.
    pub top: usize,
    /// True to mark important text with terminal colours.
    pub colour: bool,
    /// Maximum width of a line, in characters.
    pub columns: usize,
}

/// Writes an explanation as text. Without colour, the line feed is the only control character in the text.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write_text(page: &Explanation, options: PageOptions, out: &mut dyn io::Write) -> io::Result<()> {
    let painter = Painter::new(options.colour);
    let out = &mut TextWriter::new(out, options.columns);
    let threads = number::counted(page.threads.into(), "thread", "threads");
    let exe = page.exe.to_string_lossy();
    writeln!(
        out,
        "memtrace: pid {} ({}), {}, {threads}\n",
        page.pid,
        escape::visible(page.comm.raw()),
        escape::visible(&exe)
    )?;
    writeln!(out, "{}\n", painter.strong(&headline(page)))?;
    let mut drawn = Vec::new();
    bars::write(page, &rss_parts::list(page), &mut TextWriter::new(&mut drawn, options.columns))?;
    out.write_all(painter.bars(&String::from_utf8_lossy(&drawn)).as_bytes())?;
    advice::write(&advice::conclusions(page), &painter, out)?;
    lists(page, options, &painter, out)?;
    outside_rss::write(page, &painter, out)
}

fn headline(page: &Explanation) -> String {
    let mut text = format!("  RSS {}, of which {} is explained", page.counted.rss, number::percent(page.explained()));
    if page.counted.peak > page.counted.rss {
        text += &format!("; at most it was {}", page.counted.peak);
    }
    text
}

/// A line of a list: resident bytes, the texts of the second and third column, and the name.
type Line = (Bytes, String, String, String);

/// Writes the lists of other anonymous memory, files and shared memory, with the largest entries of each.
fn lists(page: &Explanation, options: PageOptions, painter: &Painter, out: &mut TextWriter<'_>) -> io::Result<()> {
    let named = |named: &NamedMemory| {
        let MemorySizes { resident, reserved, .. } = named.held;
        (resident, reserved.to_string(), number::grouped(named.mappings.into()), escape::visible(&named.name))
    };
    let file = |file: &FileMemory| {
        (file.held.resident, file.copied.to_string(), file.held.reserved.to_string(), escape::visible(&file.path))
    };
    let lists: [(&str, [&'static str; 2], Vec<Line>); 3] = [
        ("Other anonymous memory", ["RESERVED", "MAPPINGS"], page.anonymous.iter().map(named).collect()),
        ("Files", ["OWN COPIES", "RESERVED"], page.files.iter().map(file).collect()),
        ("Shared memory", ["RESERVED", "MAPPINGS"], page.shmem.iter().map(named).collect()),
    ];
    for (title, heads, lines) in lists {
        list(title, heads, &lines, options.top, painter, out)?;
    }
    Ok(())
}

fn list(
    title: &str,
    [second, third]: [&'static str; 2],
    lines: &[Line],
    top: usize,
    painter: &Painter,
    out: &mut TextWriter<'_>,
) -> io::Result<()> {
    let shown: Vec<_> = lines.iter().filter(|(resident, ..)| resident.0 > 0).take(top).collect();
    if shown.is_empty() {
        return Ok(());
    }
    let more = match lines.len() - shown.len() {
        0 => String::new(),
        _ => format!(", the largest {} of {}", shown.len(), lines.len()),
    };
    writeln!(out, "\n{}", painter.strong(&format!("{title}{more}")))?;
    out.table(vec![
        Column::numbers("RESIDENT", shown.iter().map(|(resident, ..)| resident.to_string())),
        Column::numbers(second, shown.iter().map(|(_, second, ..)| second.clone())),
        Column::numbers(third, shown.iter().map(|(_, _, third, _)| third.clone())),
        Column::names("NAME", shown.iter().map(|(.., name)| name.clone()), format::shortened_left),
    ])
}

#[cfg(test)]
mod tests;
