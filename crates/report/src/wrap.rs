//! Breaking of text into lines.

use super::table::COLUMNS;

/// Breaks `text` into lines of at most a hundred characters, each indented by `indent` spaces. Words are not cut, so
/// a longer word exceeds its line.
pub(super) fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = String::new();
    let mut column = COLUMNS;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column + 1 + width > COLUMNS {
            if !lines.is_empty() {
                lines.push('\n');
            }
            lines.push_str(&" ".repeat(indent));
            column = indent;
        } else {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += width;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_at_a_hundred_columns() {
        let lines = wrapped(&"word ".repeat(40), 4);
        assert_eq!(lines.lines().map(|line| line.trim_end().len()).collect::<Vec<_>>(), [98, 98, 13]);
        assert!(lines.lines().all(|line| line.starts_with("    word")));
        assert_eq!(wrapped("one", 2), "  one");
    }
}
