//! The greatest sites. A site is a stack of a process.

use std::io;

use super::super::{Options, label, phrase, ranked};
use crate::model::{Bytes, Frame, Location, Metric, Profile, StackEnd, StackProfile};

/// Of a deeper stack the frames in the middle are left out: the leaf says what, the root says who.
const LEAF_FRAMES: usize = 16;
const ROOT_FRAMES: usize = 6;
const NAME_CHARACTERS: usize = 100;
/// Names longer than this do not push the places of the others to the right.
const NAME_COLUMNS: usize = 48;

/// Writes as many sites as are asked for, the greatest first.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let metric = options.metric;
    let sites: Vec<_> = ranked(profile, metric).into_iter().filter(|stack| metric.of(stack) > 0).collect();
    let what = phrase::what(profile, metric);
    if sites.is_empty() {
        return writeln!(out, "\nNo sites to list: {}.", phrase::nothing(profile, options));
    }
    if options.top == 0 {
        return Ok(());
    }
    let all = sites.iter().fold(0_u64, |sum, stack| sum.saturating_add(metric.of(stack)));
    match sites.len() {
        1 => writeln!(out, "\nThe one site by {what}")?,
        many if many <= options.top => writeln!(out, "\nAll {} sites by {what}", phrase::grouped(many as u64))?,
        many => writeln!(
            out,
            "\nTop {} of {} sites by {what}",
            phrase::grouped(options.top as u64),
            phrase::grouped(many as u64)
        )?,
    }
    for (index, stack) in sites.iter().take(options.top).enumerate() {
        let share = metric.of(stack) as f64 / all as f64;
        writeln!(out, "\n{}", heading(profile, metric, index + 1, stack, share))?;
        frames(profile, stack, out)?;
    }
    Ok(())
}

fn heading(profile: &Profile, metric: Metric, rank: usize, stack: &StackProfile, share: f64) -> String {
    let usage = &stack.usage;
    let aside = match metric {
        Metric::LiveBytes => format!(" in {}", phrase::blocks(usage.live.count)),
        Metric::AllocBytes => format!(" in {}", phrase::blocks(usage.alloc.count)),
        Metric::LiveCount => format!(" of {}", usage.live.bytes),
        Metric::AllocCount => format!(" of {}", usage.alloc.bytes),
        Metric::PeakBytes if usage.live.bytes == Bytes(0) => String::from(", nothing of it live at the end"),
        Metric::PeakBytes => format!(", {} live at the end", usage.live.bytes),
    };
    let process = if profile.processes.len() > 1 {
        format!(", {}", label::plain(&label::process(&profile.processes[stack.process])))
    } else {
        String::new()
    };
    format!("{rank:>3}. {:>6}  {}{aside}{process}", phrase::percent(share), phrase::value(metric, metric.of(stack)))
}

/// Leaf to root, each by its name and its place.
fn frames(profile: &Profile, stack: &StackProfile, out: &mut dyn io::Write) -> io::Result<()> {
    let frames: Vec<_> = stack.frames.iter().rev().map(|id| &profile.frames[id.0]).collect();
    if frames.is_empty() {
        return writeln!(out, "        {}", label::no_frames(stack.end));
    }
    let (leaf, root) = if frames.len() > LEAF_FRAMES + ROOT_FRAMES + 1 {
        (&frames[..LEAF_FRAMES], &frames[frames.len() - ROOT_FRAMES..])
    } else {
        (&frames[..], &frames[..0])
    };
    let names = || leaf.iter().chain(root).map(|frame| name(frame));
    let columns = names().map(|name| name.chars().count()).filter(|width| *width <= NAME_COLUMNS).max().unwrap_or(0);
    for (index, (name, frame)) in names().zip(leaf.iter().chain(root)).enumerate() {
        if index == leaf.len() {
            writeln!(out, "        … {} more …", frames.len() - leaf.len() - root.len())?;
        }
        let line = format!("        {name:<columns$}  {}", place(frame));
        writeln!(out, "{}", line.trim_end())?;
    }
    match stack.end {
        StackEnd::Truncated => writeln!(out, "        … (truncated: the callers beyond were not taken)"),
        StackEnd::GeneratedCut
        | StackEnd::NoMapping
        | StackEnd::TablePending
        | StackEnd::NoTable
        | StackEnd::NoRow
        | StackEnd::Untabled
        | StackEnd::Unreadable
        | StackEnd::BadFrame
        | StackEnd::RegisterLost => writeln!(out, "        … ({})", phrase::end_in_words(stack.end)),
        StackEnd::Complete
        | StackEnd::Generated
        | StackEnd::FramePointers
        | StackEnd::NotTaken
        | StackEnd::Failed
        | StackEnd::FramesLost => Ok(()),
    }
}

fn name(frame: &Frame) -> String {
    phrase::shortened(&label::shown(&frame.label()), NAME_CHARACTERS)
}

/// The source line where known, or else the object; for a frame without a name, why it has none.
fn place(frame: &Frame) -> String {
    let place = match (&frame.name, &frame.location, &frame.object) {
        (_, Some(location), _) => source(location),
        (Err(reason), None, _) => format!("({})", reason.explanation()),
        (Ok(_), None, Some(object)) => {
            object.path.file_name().unwrap_or(object.path.as_os_str()).to_string_lossy().into_owned()
        }
        (Ok(_), None, None) => String::new(),
    };
    let inlined = if frame.inlined { " (inlined)" } else { "" };
    format!("{}{inlined}", label::plain(&place))
}

/// The last components of a long path are those that tell files apart.
fn source(location: &Location) -> String {
    const CHARACTERS: usize = 48;
    let path = location.file.to_string_lossy();
    let excess = path.chars().count().saturating_sub(CHARACTERS);
    let short = match path.char_indices().nth(excess) {
        Some((start, _)) if excess > 0 => {
            let tail = &path[start..];
            format!("…{}", tail.find('/').map_or(tail, |slash| &tail[slash..]))
        }
        _ => path.into_owned(),
    };
    match location.line {
        Some(line) => format!("{short}:{line}"),
        None => short,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_long_path_keeps_its_last_components() {
        let source = |file: &str| source(&Location { file: PathBuf::from(file), line: Some(7) });
        assert_eq!(source("src/main.c"), "src/main.c:7");
        assert_eq!(
            source("/home/someone/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/hashbrown-0.17.0/src/raw.rs"),
            "…/hashbrown-0.17.0/src/raw.rs:7"
        );
        assert_eq!(source(&"ä".repeat(60)), format!("…{}:7", "ä".repeat(48)));
    }
}
