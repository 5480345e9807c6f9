//! Escaping of names from the target, which can contain anything: they must not break a format, control a terminal or
//! imitate another line.

use std::borrow::Cow;

use crate::model::{ProcessProfile, StackEnd};

/// Replaces every character that is not plain text: control characters, line separators, direction marks, and
/// characters that XML 1.0 does not allow (section 2.2, production 2).
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if text.contains(is_not_plain) { Cow::Owned(text.replace(is_not_plain, "\u{fffd}")) } else { Cow::Borrowed(text) }
}

fn is_not_plain(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}

/// Returns a visible name: white space becomes blanks, and an empty name is marked.
pub(super) fn visible(text: &str) -> String {
    let spaced = text.replace(char::is_whitespace, " ");
    match spaced.trim() {
        "" => String::from("[empty name]"),
        name => plain(name).into_owned(),
    }
}

/// Returns a name as an entry of a folded stack, in which `;` separates entries.
pub(super) fn folded_entry(text: &str) -> String {
    visible(text).replace(';', ":")
}

/// Returns a process as titles and flame graphs show it.
pub(super) fn process_title(process: &ProcessProfile) -> String {
    format!("{} ({})", process.comm, process.pid)
}

/// Returns the text for a stack without frames.
pub(super) const fn missing_frames(end: StackEnd) -> &'static str {
    match end {
        StackEnd::NotTaken => "[stack not taken]",
        StackEnd::Failed => "[stack could not be taken]",
        StackEnd::FramesLost => "[stack frames lost]",
        StackEnd::Complete
        | StackEnd::Generated
        | StackEnd::FramePointers
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
    fn plain_text_has_no_terminal_control_characters() {
        assert_eq!(plain("größe<T>"), "größe<T>");
        assert_eq!(plain("\u{1b}[31mred\r\n"), "\u{fffd}[31mred\u{fffd}\u{fffd}");
        assert_eq!(plain("a\u{202e}b\u{2028}c\u{ffff}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
    }

    #[test]
    fn folded_entries_have_no_separators_and_are_not_empty() {
        assert_eq!(folded_entry("sum<[u8; 8]>"), "sum<[u8: 8]>");
        assert_eq!(folded_entry(" two\nlines\t"), "two lines");
        assert_eq!(folded_entry(" \n"), "[empty name]");
    }
}
