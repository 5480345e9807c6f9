//! Escaping of text that a target supplies: names of processes, threads, files, users and control groups, and symbols.
//! Such text can contain anything. It must not control a terminal, break a format or imitate another line.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;

/// Replaces every character that is not plain text: control characters, line separators, direction marks, and
/// characters that XML 1.0 does not allow (section 2.2, production 2).
pub fn plain(text: &str) -> Cow<'_, str> {
    replace(text, is_not_plain)
}

/// Replaces characters as [`plain`] does, but keeps line ends.
pub fn plain_lines(text: &str) -> Cow<'_, str> {
    replace(text, |character| character != '\n' && is_not_plain(character))
}

/// Returns a path, or another name from the kernel, as plain text.
pub fn printable<N: AsRef<OsStr> + ?Sized>(name: &N) -> Cow<'_, str> {
    match name.as_ref().to_string_lossy() {
        Cow::Borrowed(text) => plain(text),
        Cow::Owned(text) => Cow::Owned(plain(&text).into_owned()),
    }
}

fn replace(text: &str, is_replaced: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.contains(&is_replaced) { Cow::Owned(text.replace(is_replaced, "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// Returns true for control characters (C0, DEL and C1) and for the other characters that [`plain`] replaces.
pub fn is_not_plain(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            // Line separators, and the marks, embeddings, overrides and isolates of text direction (Unicode Annex 9).
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // The byte order mark, and characters that XML forbids.
            | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}

/// Short name of a process or thread (`/proc/PID/comm`). The process chooses it, so `Display` writes it as plain text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Comm(String);

impl Comm {
    /// Returns the name as the process chose it: for comparisons and for JSON, not for a terminal.
    #[must_use]
    pub fn raw(&self) -> &str {
        &self.0
    }
}

impl<S: Into<String>> From<S> for Comm {
    fn from(name: S) -> Self {
        Self(name.into())
    }
}

impl PartialEq<str> for Comm {
    fn eq(&self, raw: &str) -> bool {
        self.0 == raw
    }
}

impl PartialEq<&str> for Comm {
    fn eq(&self, raw: &&str) -> bool {
        self.0 == *raw
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&plain(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn plain_text_has_no_terminal_control_characters() {
        assert_eq!(plain("größe<T>"), "größe<T>");
        assert_eq!(plain("\u{1b}[31mred\r\n"), "\u{fffd}[31mred\u{fffd}\u{fffd}");
        assert_eq!(plain("a\u{202e}b\u{2028}c\u{ffff}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
    }

    #[test]
    fn every_control_character_and_direction_mark_is_replaced() {
        let c0_and_c1 = ('\0'..='\u{1f}').chain('\u{7f}'..='\u{9f}');
        let directions =
            ['\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202d}', '\u{202e}', '\u{2066}', '\u{2069}'];
        for character in c0_and_c1.chain(directions) {
            assert_eq!(plain(&format!("a{character}b")), "a\u{fffd}b", "{character:?}");
        }
    }

    #[test]
    fn line_ends_remain_in_plain_lines() {
        assert_eq!(plain_lines("one\ntwo\u{9b}31m\r\n"), "one\ntwo\u{fffd}31m\u{fffd}\n");
    }

    #[test]
    fn names_from_the_kernel_are_printable() {
        assert_eq!(printable("/bin/cat"), "/bin/cat");
        assert_eq!(
            printable(OsStr::from_bytes(b"/tmp/\x1b]0;x\x07\xff\n")),
            "/tmp/\u{fffd}]0;x\u{fffd}\u{fffd}\u{fffd}"
        );
        assert_eq!(Comm::from("\u{1b}c\n").to_string(), "\u{fffd}c\u{fffd}");
        assert_eq!(format!("{:>4}|", Comm::from("sh")), "  sh|");
    }
}
