//! Lines of a stack, the innermost first. Library frames are folded, and deep stacks are cut.

use std::collections::{BTreeSet, HashSet};
use std::io;

use memtrace_model::{FrameId, StackEnd, StackProfile, columns_of, padded};

use super::frames::{Frames, Shown, ShownId};
use super::text_writer::TextWriter;
use crate::library::Library;
use crate::{escape, format};

/// Number of innermost lines of a deep stack that are kept.
const LEAF_LINES: usize = 16;
/// Number of outermost lines of a deep stack that are kept. Lines between these and the innermost lines are cut, but each
/// function of the program keeps at least one line.
const ROOT_LINES: usize = 6;
/// Maximum width of the column of names. Longer names exceed the column.
const NAME_COLUMNS: usize = 48;
/// Minimum space for the location of a frame, in characters.
const PLACE_COLUMNS: usize = 24;
/// Indentation of lines, in characters.
const INDENT: usize = 8;

/// A line of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Line {
    Frame(ShownId),
    /// Number of folded frames, and their libraries.
    Library(usize, BTreeSet<Library>),
    /// Number of lines that are cut.
    Cut(usize),
    /// Reason for a stack without frames.
    Empty(&'static str),
    /// Sum of this number of merged stacks.
    Other(u64),
    /// Outer frames that were not recorded.
    Truncated,
}

/// Returns the lines of `stack`. At either end, a run of two or more library frames is one line, so that user
/// functions stand out.
pub(crate) fn lines(frames: &Frames<'_>, stack: &StackProfile) -> Vec<Line> {
    if stack.merged() > 0 {
        return vec![Line::Other(stack.merged())];
    }
    if stack.frames.is_empty() {
        return vec![Line::Empty(escape::missing_frames(stack.end))];
    }
    let all = &stack.frames[..];
    let mut root: Vec<_> =
        all.iter().enumerate().map_while(|(at, id)| frames.library_at_root(*id, all.get(at + 1).copied())).collect();
    let mut leaf: Vec<_> = all.iter().rev().map_while(|id| frames.library(*id)).collect();
    // If all frames are library frames, no frame is folded.
    if root.len() == all.len() {
        root.clear();
        leaf.clear();
    }
    let (callers, rest) = all.split_at(root.len());
    let (own, callees) = rest.split_at(rest.len() - leaf.len());

    let mut lines = folded(frames, callees, &leaf);
    lines.extend(unfolded(frames, own));
    lines.extend(folded(frames, callers, &root));
    if lines.len() > LEAF_LINES + ROOT_LINES + 1 {
        lines = without_middle(frames, lines);
    }
    if stack.end == StackEnd::Truncated {
        lines.push(Line::Truncated);
    }
    lines
}

/// Cuts lines between the innermost and the outermost ones. Each function of the program keeps at least one line.
fn without_middle(frames: &Frames<'_>, lines: Vec<Line>) -> Vec<Line> {
    let middle = LEAF_LINES..lines.len() - ROOT_LINES;
    let function = |line: &Line| match line {
        Line::Frame(id) => Some(frames.shown(*id)).filter(|shown| shown.is_of_program).map(|shown| shown.name.as_str()),
        _ => None,
    };
    let at_ends = lines[..middle.start].iter().chain(&lines[middle.end..]);
    let mut functions: HashSet<&str> = at_ends.filter_map(function).collect();
    let mut kept = Vec::new();
    let mut cut = Vec::new();
    for (index, line) in lines.into_iter().enumerate() {
        let is_new = function(&line).is_some_and(|name| functions.insert(name));
        if middle.contains(&index) && !is_new {
            cut.push(line);
        } else {
            close_cut(&mut cut, &mut kept);
            kept.push(line);
        }
    }
    kept
}

/// Moves the lines of `cut` to `kept`: a single line as it is, and more lines as their number.
fn close_cut(cut: &mut Vec<Line>, kept: &mut Vec<Line>) {
    match cut.len() {
        0 | 1 => kept.append(cut),
        many => {
            cut.clear();
            kept.push(Line::Cut(many));
        }
    }
}

fn folded(frames: &Frames<'_>, run: &[FrameId], libraries: &[Library]) -> Vec<Line> {
    match run {
        [] | [_] => unfolded(frames, run).collect(),
        many => vec![Line::Library(many.len(), libraries.iter().copied().collect())],
    }
}

fn unfolded(frames: &Frames<'_>, run: &[FrameId]) -> impl Iterator<Item = Line> {
    run.iter().rev().map(|id| Line::Frame(frames.id(*id)))
}

/// Writes the lines, with the locations of frames in a column. If a line is too long, the middle of the name and the start
/// of the location are left out.
pub(crate) fn write(lines: &[Line], frames: &Frames<'_>, out: &mut TextWriter<'_>) -> io::Result<()> {
    let width = |line: &Line| match line {
        Line::Frame(id) => columns_of(&frames.shown(*id).name),
        _ => 0,
    };
    // The width of a line without its indentation, and without the gap before the location.
    let room = out.columns().saturating_sub(INDENT + 2);
    let most = NAME_COLUMNS.min(room.saturating_sub(PLACE_COLUMNS));
    let columns = lines.iter().map(width).filter(|width| *width <= most).max().unwrap_or(0);
    for line in lines {
        let text = match line {
            Line::Frame(id) => {
                let Shown { name, place, .. } = frames.shown(*id);
                let name = format::shortened_name(name, room.saturating_sub(columns_of(place)).max(most));
                let left = room.saturating_sub(columns_of(&name).max(columns));
                let place = format::shortened_left(place, left);
                format!("{}  {place}", padded(&name, columns))
            }
            Line::Library(count, libraries) => format!("… {count} frames of the {}", named(libraries)),
            Line::Cut(count) => format!("… {count} more …"),
            Line::Empty(why) => String::from(*why),
            Line::Other(stacks) => escape::other_stacks(*stacks),
            Line::Truncated => String::from("… (truncated: outer frames were not recorded)"),
        };
        writeln!(out, "{:INDENT$}{}", "", text.trim_end())?;
    }
    Ok(())
}

/// Returns the names of libraries: `Rust library`, `C and Rust libraries`.
fn named(libraries: &BTreeSet<Library>) -> String {
    let names: Vec<_> = libraries.iter().map(Library::to_string).collect();
    format!("{} {}", names.join(" and "), if names.len() == 1 { "library" } else { "libraries" })
}

#[cfg(test)]
mod tests;
