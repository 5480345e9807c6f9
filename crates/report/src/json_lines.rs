//! Writes JSON with a line for each key of the report and for each element of its lists, so that `grep` and `diff`
//! work on it.

use std::io;

use memtrace_model::is_not_plain;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// Writes a report with line breaks, and a newline at its end.
pub(super) fn write(report: &impl Serialize, mut out: &mut dyn io::Write) -> io::Result<()> {
    report.serialize(&mut Serializer::with_formatter(&mut out, Lines::default()))?;
    out.write_all(b"\n")
}

/// Writes a JSON object in a line of its own.
pub(super) fn write_line(object: &impl Serialize, mut out: &mut dyn io::Write) -> io::Result<()> {
    object.serialize(&mut Serializer::with_formatter(&mut out, SingleLine))?;
    out.write_all(b"\n")
}

/// Formatter without line breaks.
struct SingleLine;

/// Formatter that breaks lines only between the keys of the outermost object, and between the elements of lists that
/// are values of these keys.
#[derive(Default)]
struct Lines {
    depth: usize,
}

impl Lines {
    fn open<W: ?Sized + io::Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        out.write_all(bracket)
    }

    fn next<W: ?Sized + io::Write>(&self, out: &mut W, first: bool, broken_at: usize) -> io::Result<()> {
        if !first {
            out.write_all(b",")?;
        }
        if self.depth == broken_at { out.write_all(b"\n") } else { Ok(()) }
    }

    fn close<W: ?Sized + io::Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        if self.depth == 1 {
            out.write_all(b"\n")?;
        }
        self.depth -= 1;
        out.write_all(bracket)
    }
}

/// Escapes characters that JSON allows unescaped but a terminal interprets, such as C1 controls. Readers of the JSON
/// get the same text.
fn write_plain<W: ?Sized + io::Write>(out: &mut W, fragment: &str) -> io::Result<()> {
    let mut rest = fragment;
    while let Some(at) = rest.find(is_not_plain) {
        let (before, from) = rest.split_at(at);
        out.write_all(before.as_bytes())?;
        let mut characters = from.chars();
        if let Some(character) = characters.next() {
            // None of these characters is beyond the basic multilingual plane.
            write!(out, "\\u{:04x}", u32::from(character))?;
        }
        rest = characters.as_str();
    }
    out.write_all(rest.as_bytes())
}

impl Formatter for SingleLine {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        write_plain(out, fragment)
    }
}

impl Formatter for Lines {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        write_plain(out, fragment)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first, 1)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first, 2)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }
}

/// Asserts that a JSON object is read and written without a change, and that an unknown key is ignored. Returns the
/// object.
#[cfg(test)]
pub(super) fn assert_round_trip<T: Serialize + serde::de::DeserializeOwned>(text: &str) -> T {
    let read: T = serde_json::from_str(text).unwrap();
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), value.to_string());
    let newer = text.replacen('{', "{\"new_key\":[{}],", 1);
    let read: T = serde_json::from_str(&newer).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), value.to_string());
    read
}
