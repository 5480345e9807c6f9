//! A stack as lines, leaf to root: what is not the user's own is folded, what is too deep is cut.

use std::collections::BTreeSet;
use std::io;

use super::frames::{Frames, Shown, ShownId};
use super::library::Library;
use crate::model::{FrameId, StackEnd, StackProfile};
use crate::report::escape;

/// Of a deeper stack the lines in the middle are left out: the leaf says what, the root says who.
const LEAF_LINES: usize = 16;
const ROOT_LINES: usize = 6;
/// Names longer than this do not push the places of the others to the right.
const NAME_COLUMNS: usize = 48;

/// A line. Stacks of equal lines look the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Line {
    Frame(ShownId),
    /// So many frames, all of these libraries.
    Library(usize, BTreeSet<Library>),
    /// So many frames that were left out.
    Cut(usize),
    /// There are no frames; why.
    Empty(&'static str),
    /// There are callers that were not taken.
    Truncated,
}

/// The lines of `stack`. A run of two or more libraries' frames at the leaf, and another at the root, are one line each,
/// so that the user's own functions are seen first.
pub(super) fn lines(frames: &Frames<'_>, stack: &StackProfile) -> Vec<Line> {
    if stack.frames.is_empty() {
        return vec![Line::Empty(escape::no_frames(stack.end))];
    }
    let all = &stack.frames[..];
    let mut root: Vec<_> =
        all.iter().enumerate().map_while(|(at, id)| frames.library_at_root(*id, all.get(at + 1).copied())).collect();
    let mut leaf: Vec<_> = all.iter().rev().map_while(|id| frames.library(*id)).collect();
    // Nothing in it is the user's own: what is folded would be all there is to see.
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
        let cut = LEAF_LINES..lines.len() - ROOT_LINES;
        lines.splice(cut.clone(), [Line::Cut(cut.len())]);
    }
    if stack.end == StackEnd::Truncated {
        lines.push(Line::Truncated);
    }
    lines
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

/// Writes the lines, places in a column of their own.
pub(super) fn write(lines: &[Line], frames: &Frames<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    let width = |line: &Line| match line {
        Line::Frame(id) => frames.shown(*id).name.chars().count(),
        _ => 0,
    };
    let columns = lines.iter().map(width).filter(|width| *width <= NAME_COLUMNS).max().unwrap_or(0);
    for line in lines {
        let text = match line {
            Line::Frame(id) => {
                let Shown { name, place } = frames.shown(*id);
                format!("{name:<columns$}  {place}")
            }
            Line::Library(count, libraries) => format!("… {count} frames of the {}", named(libraries)),
            Line::Cut(count) => format!("… {count} more …"),
            Line::Empty(why) => String::from(*why),
            Line::Truncated => String::from("… (truncated: the callers beyond were not taken)"),
        };
        writeln!(out, "        {}", text.trim_end())?;
    }
    Ok(())
}

/// `Rust library`, `C and Rust libraries`.
fn named(libraries: &BTreeSet<Library>) -> String {
    let names: Vec<_> = libraries.iter().map(Library::to_string).collect();
    format!("{} {}", names.join(" and "), if names.len() == 1 { "library" } else { "libraries" })
}

#[cfg(test)]
mod tests;
