//! Converts names from the target for tables, CSV, XML and folded stacks, so that they cannot break the format.

use memtrace_model::format as number;
use memtrace_model::{ProcessProfile, StackEnd, StackProfile, plain};

/// Returns a name as visible text. Control characters are replaced, white space becomes blanks, and an empty name
/// becomes `[empty name]`.
pub(super) fn visible(text: &str) -> String {
    let spaced = text.replace(char::is_whitespace, " ");
    match spaced.trim() {
        "" => String::from("[empty name]"),
        name => plain(name).into_owned(),
    }
}

/// Returns a name as an entry of a folded stack. `;` separates entries, so it is replaced by `:`.
pub(super) fn folded_entry(text: &str) -> String {
    visible(text).replace(';', ":")
}

/// Returns a name for CSV. If a spreadsheet would take the name for a formula, an apostrophe precedes it.
pub(super) fn csv_text(name: &str) -> String {
    let apostrophe = if name.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    format!("{apostrophe}{}", plain(name))
}

/// Escapes text without control characters for the content of an XML element.
pub(super) fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns the title of a process, `g++ (4711)`, or of a group of processes, `g++ ×412`.
pub(super) fn process_title(process: &ProcessProfile) -> String {
    let comm = process.comm.raw();
    match &process.group {
        Some(group) => format!("{comm} {}", times(group.runs)),
        None => format!("{comm} ({})", process.pid),
    }
}

/// Returns a number of process images: `×412`.
pub(super) fn times(runs: u64) -> String {
    format!("×{}", number::grouped(runs))
}

/// Returns the text for a sum of merged stacks: `[other: 12,345 stacks]`.
pub(super) fn other_stacks(stacks: u64) -> String {
    format!("[other: {}]", number::counted(stacks, "stack", "stacks"))
}

/// Returns a text that stands for the innermost frame, if the stack is a sum of merged stacks or has no frames.
pub(super) fn instead_of_frames(stack: &StackProfile) -> Option<String> {
    match stack.merged() {
        0 if stack.frames.is_empty() => Some(String::from(missing_frames(stack.end))),
        0 => None,
        merged => Some(other_stacks(merged)),
    }
}

/// Returns the text for a stack without frames.
pub(super) const fn missing_frames(end: StackEnd) -> &'static str {
    match end {
        StackEnd::NotTaken => "[stack not taken]",
        StackEnd::Failed => "[stack could not be taken]",
        StackEnd::FramesLost => "[stack frames lost]",
        StackEnd::Merged => "[other stacks]",
        StackEnd::Complete
        | StackEnd::Generated
        | StackEnd::Truncated
        | StackEnd::GeneratedCut
        | StackEnd::NoMapping
        | StackEnd::TablePending
        | StackEnd::NoTable
        | StackEnd::NoRow
        | StackEnd::Untabled
        | StackEnd::Unreadable
        | StackEnd::BadFrame
        | StackEnd::RegisterLost
        | StackEnd::MappingsBusy => "[stack empty]",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_entries_have_no_separators_and_are_not_empty() {
        assert_eq!(folded_entry("sum<[u8; 8]>"), "sum<[u8: 8]>");
        assert_eq!(folded_entry(" two\nlines\t"), "two lines");
        assert_eq!(folded_entry(" \n"), "[empty name]");
    }
}
