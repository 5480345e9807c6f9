//! Names of a target's functions, files and processes as plain text. Nobody vouches for what they contain: they must
//! neither break a format, nor steer a terminal, nor make a line look like another.

use std::borrow::Cow;

use crate::model::{ProcessProfile, StackEnd};

/// `text` with every character replaced that is no plain text: controls, line separators, marks that turn the
/// direction of writing, and what XML 1.0 does not allow at all (section 2.2, production 2).
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

/// A name as plain text that can be seen: every white space is a blank, and an empty name says that it is one.
pub(super) fn shown(text: &str) -> String {
    let spaced = text.replace(char::is_whitespace, " ");
    match spaced.trim() {
        "" => String::from("[empty name]"),
        name => plain(name).into_owned(),
    }
}

/// A name as an entry of a folded stack, in which `;` parts one entry from the next.
pub(super) fn entry(text: &str) -> String {
    shown(text).replace(';', ":")
}

/// A process as titles and trees show it.
pub(super) fn process(process: &ProcessProfile) -> String {
    format!("{} ({})", process.comm, process.pid)
}

/// What stands in the place of the frames of a stack that has none.
pub(super) const fn no_frames(end: StackEnd) -> &'static str {
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
    fn plain_text_keeps_letters_and_replaces_what_steers_a_terminal() {
        assert_eq!(plain("größe<T>"), "größe<T>");
        assert_eq!(plain("\u{1b}[31mred\r\n"), "\u{fffd}[31mred\u{fffd}\u{fffd}");
        assert_eq!(plain("a\u{202e}b\u{2028}c\u{ffff}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
    }

    #[test]
    fn an_entry_holds_neither_separators_nor_line_ends_and_is_never_empty() {
        assert_eq!(entry("sum<[u8; 8]>"), "sum<[u8: 8]>");
        assert_eq!(entry(" two\nlines\t"), "two lines");
        assert_eq!(entry(" \n"), "[empty name]");
    }
}
