//! Breaking of text into lines.

use std::io;

use memtrace_model::{columns_of, shortened};

/// Breaks `text` into lines of at most `width` columns of a terminal, each indented by `indent` spaces. Words are not cut,
/// so a longer word exceeds its line.
pub(super) fn wrapped(text: &str, indent: usize, width: usize) -> String {
    broken(text, [indent; 2], width)
}

/// Writes texts in lines of at most `width` columns of a terminal. In each text, all lines but the first are indented by
/// `indent` spaces. A word that is longer than a line is cut.
pub(super) fn write(texts: &[String], indent: usize, width: usize, out: &mut dyn io::Write) -> io::Result<()> {
    for text in texts {
        for line in hanging(text, indent.min(width / 2), width).split('\n') {
            writeln!(out, "{}", shortened(line, width))?;
        }
    }
    Ok(())
}

/// Breaks `text` into lines of at most `width` columns of a terminal. All lines but the first are indented by `indent`
/// spaces. Words are not cut, so a longer word exceeds its line.
fn hanging(text: &str, indent: usize, width: usize) -> String {
    broken(text, [0, indent], width)
}

/// Breaks `text` at blanks. `first`, `others`: indentation of the first line and of the other lines.
fn broken(text: &str, [first, others]: [usize; 2], width: usize) -> String {
    let mut lines = " ".repeat(first);
    let mut column = first;
    let mut has_word = false;
    // Number of blanks before the next word.
    let mut gap = 0;
    for (position, word) in text.split(' ').enumerate() {
        gap += usize::from(position > 0);
        if word.is_empty() {
            continue;
        }
        let length = columns_of(word);
        if has_word && column + gap + length > width {
            lines.push('\n');
            lines.push_str(&" ".repeat(others));
            column = others;
        } else {
            lines.push_str(&" ".repeat(gap));
            column += gap;
        }
        lines.push_str(word);
        column += length;
        has_word = true;
        gap = 0;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_at_its_width() {
        let lines = wrapped(&"word ".repeat(40), 4, 100);
        assert_eq!(lines.lines().map(str::len).collect::<Vec<_>>(), [98, 98, 13]);
        assert!(lines.lines().all(|line| line.starts_with("    word")));
        assert_eq!(wrapped("one", 2, 100), "  one");
        assert_eq!(wrapped("one two three", 1, 8), " one two\n three");
        let wide = wrapped(&"数据 ".repeat(40), 0, 100);
        assert_eq!(wide.lines().map(columns_of).collect::<Vec<_>>(), [99, 99]);
    }

    #[test]
    fn later_lines_hang_and_blanks_remain_within_a_line() {
        let text = "  disk  1.00M/s read  2.00M/s written";
        assert_eq!(hanging(text, 4, 23), "  disk  1.00M/s read\n    2.00M/s written");
        assert_eq!(hanging("a long-word-remains b", 2, 5), "a\n  long-word-remains\n  b");
        assert_eq!(hanging("one two", 2, usize::MAX), "one two");
    }

    #[test]
    fn written_lines_have_the_width_and_blank_lines_remain() {
        let texts = [String::from("1,234 events 数据 lost"), String::new(), "x".repeat(20)];
        let mut out = Vec::new();
        write(&texts, 4, 12, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "1,234 events\n    数据\n    lost\n\nxxxxxxxxxxx…\n");
    }
}
