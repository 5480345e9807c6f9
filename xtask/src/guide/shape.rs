//! Shape of an output: its lines without what differs from run to run.
//!
//! - Numbers with their units are `#`, bars of diagrams are left out.
//! - The frames of a site, and the rows of a table that begin with a number, are one line each, however many there are.
//! - Sentences are lines, wherever they were wrapped.

use std::fmt::Write as _;

/// Units after a number. A rate has a suffix, as in `KiB/s`.
const UNITS: [&str; 11] = ["B", "KiB", "MiB", "GiB", "TiB", "ns", "µs", "ms", "s", "min", "h"];

/// Units that follow a number without a space.
const ATTACHED: [&str; 7] = ["%", "B", "K", "M", "G", "T", "k"];

const NUMBER: &str = "#";
const FRAME: &str = "<frame>";
const ROW: &str = "<row>";

/// Indentation of the frames of a site.
pub(super) const FRAME_INDENT: usize = 8;

/// End of a line that was cut to a width.
const CUT: char = '…';

/// Returns the shape of an output, line by line. Lines and sentences that begin with one of `varying` are left out.
pub(super) fn of(text: &str, varying: &[&str]) -> Vec<String> {
    let mut shape = Shape { lines: Vec::new(), sentence: String::new(), varying };
    let mut is_stack = false;
    // A long command continues on the next line.
    for line in text.replace("\\\n", " ").lines() {
        let line = line.trim_end();
        let words = line.trim_start();
        let indent = line.len() - words.len();
        is_stack &= !words.is_empty();
        if words.is_empty() {
            shape.end_sentences();
            shape.push(String::new());
        } else if is_stack && indent >= FRAME_INDENT {
            shape.end_sentences();
            shape.push(FRAME.to_owned());
        } else if is_heading_of_site(words) {
            is_stack = true;
            shape.end_sentences();
            shape.push(of_words(words));
        } else if is_row(words) {
            shape.end_sentences();
            let begins_with_number = words.starts_with(|first: char| first.is_ascii_digit() || "<>±+-".contains(first));
            shape.push(if begins_with_number { ROW.to_owned() } else { of_words(words) });
        } else {
            let item = words.strip_prefix("- ");
            if item.is_some() || words.starts_with("memtrace:") {
                shape.end_sentences();
            }
            let _ = write!(shape.sentence, "{} ", item.unwrap_or(words));
        }
    }
    shape.end_sentences();
    shape.lines
}

/// Shape under construction.
struct Shape<'a> {
    lines: Vec<String>,
    /// Text of sentences that has not ended.
    sentence: String,
    varying: &'a [&'a str],
}

impl Shape<'_> {
    fn push(&mut self, line: String) {
        let varies = self.varying.iter().any(|text| line.starts_with(text));
        // Equal lines in succession are one line.
        if !varies && self.lines.last() != Some(&line) {
            self.lines.push(line);
        }
    }

    fn end_sentences(&mut self) {
        let sentences = of_words(&std::mem::take(&mut self.sentence));
        let mut rest = sentences.as_str();
        while !rest.is_empty() {
            let end = rest.find(". ").map_or(rest.len(), |end| end + 1);
            self.push(rest[..end].to_owned());
            rest = rest[end..].trim_start();
        }
    }
}

/// Returns true for lines such as `1.  52.7%  5.03 MiB` and `2. +1.50 MiB  grown`.
pub(super) fn is_heading_of_site(words: &str) -> bool {
    let number = words.split_whitespace().next().unwrap_or_default();
    number
        .strip_suffix('.')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns true for a line with columns, and for a command after a prompt.
fn is_row(words: &str) -> bool {
    words.contains("  ") || words.starts_with("$ ") || words.contains('\t') || words.ends_with(CUT)
}

fn of_words(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_bar = |sign: char, least: usize| word.len() >= least && word.chars().all(|c| c == sign);
        if is_bar('#', 1) || is_bar('-', 2) || ["<", ">", "±"].contains(&word) {
            continue;
        }
        let after_number = words.last().is_some_and(|last| last == NUMBER);
        let (unit, end) = word.split_at(word.trim_end_matches([',', '.', ';', ':', ')', '"']).len());
        if after_number && UNITS.contains(&unit.strip_suffix("/s").unwrap_or(unit)) {
            if let Some(last) = words.last_mut() {
                last.push_str(end);
            }
            continue;
        }
        let word = if word == "-" { NUMBER.to_owned() } else { of_word(word) };
        // Consecutive numbers become one, because a table can have empty cells instead of numbers.
        if !(after_number && word == NUMBER) {
            words.push(word);
        }
    }
    words.join(" ")
}

/// Replaces the numbers in a word.
fn of_word(word: &str) -> String {
    let mut shape = String::new();
    let mut rest = word;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        // A sign belongs to the number if a number can begin at the sign.
        let unsigned = before.trim_end_matches(['+', '-', '±', '<', '>', '~']);
        let is_start = unsigned.is_empty() || unsigned.ends_with(['(', '[', '"', ':', ',']);
        shape.push_str(if is_start { unsigned } else { before });
        shape.push_str(NUMBER);
        rest = &number[length_of_number(number)..];
    }
    shape + rest
}

/// Returns the length of the number at the start of a text, with its unit.
fn length_of_number(text: &str) -> usize {
    if let Some(digits) = text.strip_prefix("0x") {
        return 2 + digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
    }
    let bytes = text.as_bytes();
    let is_digit = |index: usize| bytes.get(index).is_some_and(u8::is_ascii_digit);
    let mut length = 0;
    while is_digit(length) || [Some(&b','), Some(&b'.')].contains(&bytes.get(length)) && is_digit(length + 1) {
        length += 1;
    }
    let rest = &text[length..];
    let unit = ATTACHED.iter().find(|unit| {
        let after = rest.strip_prefix(**unit);
        after.is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    });
    length + unit.map_or(0, |unit| unit.len())
}

/// Compares two shapes. Returns the lines that differ: lines of `before` with `-`, lines of `after` with `+`; `None` if
/// the shapes are equal.
pub(super) fn difference(before: &[String], after: &[String]) -> Option<String> {
    if before.len() == after.len() && before.iter().zip(after).all(|(one, other)| is_equal(one, other)) {
        return None;
    }
    // `common[i][j]`: length of the longest common subsequence of `before[i..]` and `after[j..]`.
    let mut common = vec![vec![0_usize; after.len() + 1]; before.len() + 1];
    for (i, one) in before.iter().enumerate().rev() {
        for (j, other) in after.iter().enumerate().rev() {
            common[i][j] =
                if is_equal(one, other) { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let mut text = String::new();
    let (mut i, mut j) = (0, 0);
    while i < before.len() || j < after.len() {
        let (one, other) = (before.get(i), after.get(j));
        match (one, other) {
            (Some(one), Some(other)) if is_equal(one, other) => (i, j) = (i + 1, j + 1),
            (Some(one), _) if j == after.len() || common[i + 1][j] >= common[i][j + 1] => {
                let _ = writeln!(text, "- {one}");
                i += 1;
            }
            (_, Some(other)) => {
                let _ = writeln!(text, "+ {other}");
                j += 1;
            }
            (_, None) => break,
        }
    }
    Some(text)
}

/// Returns true if two lines are equal. If a line was cut, only its start is compared.
fn is_equal(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    let (one_start, other_start) = (start_of_cut(one), start_of_cut(other));
    match (one_start, other_start) {
        (None, None) => false,
        (Some(start), None) => other.starts_with(start),
        (None, Some(start)) => one.starts_with(start),
        (Some(start), Some(other_start)) => start.starts_with(other_start) || other_start.starts_with(start),
    }
}

/// Returns the part of a cut line before its last word, which may be incomplete; `None` for a line that is complete, and for
/// the sign of a gap.
fn start_of_cut(line: &str) -> Option<&str> {
    let start = line.strip_suffix(CUT)?;
    let end = start.rfind([' ', ',', ';', ':', '/']).filter(|end| *end > 0)?;
    Some(&start[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_units_are_placeholders() {
        for (text, expected) in [
            ("3,602,860 events; 0.256 s of processor time", "# events; # of processor time"),
            ("peak memory 80.34 MiB. In the", "peak memory #. In the"),
            ("live 9.54 MiB in 4,374 blocks", "live # in # blocks"),
            ("+94.31 KiB/s in 11 of 12 parts", "# in # of # parts"),
            ("<0.1% of it, >99.9%", "# of it, #"),
            ("futex 0x55f1abdc70a0", "futex #"),
            ("worker-12 (4720)", "worker-# (#)"),
            ("pid 4711 (redis-server)", "pid # (redis-server)"),
            ("\"live_bytes\":40767899,\"live_count\":4", "\"live_bytes\":#,\"live_count\":#"),
            ("22.5M 31.2M 8.78M - 119k", "#"),
            ("< 16.00 µs", "#"),
            ("malloc+156,x86_64", "malloc+#,x#_#"),
        ] {
            assert_eq!(of_words(text), expected, "{text}");
        }
    }

    #[test]
    fn sentences_do_not_depend_on_line_breaks() {
        let one = "Nothing was lost.\nStacks: 100% complete.\nCost: 3,602 events; 0.2 s of processor\ntime.\n";
        let other = "Nothing was lost.\nStacks: 99.9% complete.\nCost: 3,602,860 events; 120.2 s of\nprocessor time.\n";
        assert_eq!(of(one, &[]), ["Nothing was lost.", "Stacks: # complete.", "Cost: # events; # of processor time."]);
        assert_eq!(of(one, &[]), of(other, &[]));
    }

    #[test]
    fn commands_do_not_depend_on_line_breaks() {
        let lines = of("$ sudo memtrace --pid 7 \\\n    -o run.json\n", &[]);
        assert_eq!(lines, of("$ sudo memtrace --pid 4711 -o run.json\n", &[]));
        assert_eq!(lines, ["$ sudo memtrace --pid # -o run.json"]);
    }

    #[test]
    fn frames_and_rows_are_one_line_each() {
        let text = "\
Top 2 of 8 sites by live bytes

  1.  75.4%  45.71 MiB in 234,978 blocks
     steady growth: +1 B/s
        zmalloc_usable          redis-server
        redis-server+0x13c333   (the object has no symbol here)

    PID  COMMAND  LIVE
  19264  redis    22.5M
  19263  nginx    2.00K
         2 others     4
";
        let expected = [
            "Top # of # sites by live bytes",
            "",
            "#. # in # blocks",
            "steady growth: #",
            FRAME,
            "",
            "PID COMMAND LIVE",
            ROW,
        ];
        assert_eq!(of(text, &[]), expected);
    }

    #[test]
    fn labels_of_rows_remain() {
        let text = "  heap of glibc   33.12 MiB  89.2%  #####  33.18 MiB  0 B\n    in use  33.00 MiB  88.9%  -----\n";
        assert_eq!(of(text, &[]), ["heap of glibc #", "in use #"]);
    }

    #[test]
    fn missing_line_is_reported() {
        let page = of("  live  1 B in 1 block\n  freed  2 B in 2 blocks\n", &[]);
        let run = of("  live  3 B in 1 block\n  freed  2 B in 2 blocks\n  temporary  5 B in 9 blocks\n", &[]);
        assert_eq!(difference(&page, &run).as_deref(), Some("+ temporary # in # blocks\n"));
        assert_eq!(difference(&run, &page).as_deref(), Some("- temporary # in # blocks\n"));
        assert_eq!(difference(&run, &run), None);
    }

    #[test]
    fn changed_line_is_shown_twice() {
        let lines = |text: &str| of(text, &[]);
        let found = difference(&lines("One is 1.\n\nTwo is 2."), &lines("One is 1.\n\nThree is 3."));
        assert_eq!(found.as_deref(), Some("- Two is #.\n+ Three is #.\n"));
    }

    #[test]
    fn varying_lines_are_left_out() {
        let text = "ok    release     Linux 6.1\nok    uprobes  supported\nUnmatched: 7 frees of\nunknown blocks.\n";
        assert_eq!(of(text, &["ok release", "Unmatched:"]), ["ok uprobes supported"]);
    }

    #[test]
    fn cut_lines_are_equal_up_to_the_cut() {
        let lines = |text: &str| of(text, &[]);
        let page = lines("info  probe  malloc  libc.so.6+0x98930  +0  push, 0.9 µs per call: the firs…");
        let run = lines("info  probe  malloc  libc.so.6+0x98930  +0  push, 10.9 µs per call: the fi…");
        assert_eq!(difference(&page, &run), None);
        assert!(difference(&page, &lines("info  probe  calloc  libc…")).is_some());
    }
}
