//! Width of text on a terminal, in columns. Characters of East Asian scripts take two columns, and combining marks take
//! no column (Unicode Annex 11).

use unicode_width::UnicodeWidthChar as _;

/// Maximum number of characters for each column of a shortened text. Without this limit, a name that consists of combining
/// marks could have any length, because it has no width.
const CHARACTERS: usize = 4;

/// Returns the number of columns that `text` takes. Control characters count as one column, because [`crate::plain`]
/// replaces each of them by a character of this width.
#[must_use]
pub fn columns_of(text: &str) -> usize {
    text.chars().map(width).sum()
}

fn width(character: char) -> usize {
    character.width().unwrap_or(1)
}

/// Returns `text` in at most `most` columns. If the end is cut, the last character is an ellipsis.
#[must_use]
pub fn shortened(text: &str, most: usize) -> String {
    if fits(text, most) {
        return String::from(text);
    }
    start(text.chars(), most).chain(ellipsis(most)).collect()
}

/// Returns the end of `text`, for example of a path, in at most `most` columns. If the start is cut, the first character
/// is an ellipsis.
#[must_use]
pub fn shortened_left(text: &str, most: usize) -> String {
    if fits(text, most) {
        return String::from(text);
    }
    let end: Vec<char> = start(text.chars().rev(), most).collect();
    ellipsis(most).into_iter().chain(end.into_iter().rev()).collect()
}

/// Returns `text` in at most `most` columns. If it is longer, an ellipsis replaces its middle, because a qualified name starts
/// with its namespace and ends with its function.
#[must_use]
pub fn shortened_middle(text: &str, most: usize) -> String {
    if fits(text, most) {
        return String::from(text);
    }
    let kept = most.saturating_sub(1);
    // `start` leaves room for an ellipsis, so each half gets one column more.
    let end: Vec<char> = start(text.chars().rev(), kept / 2 + 1).collect();
    let beginning = start(text.chars(), kept.div_ceil(2) + 1);
    beginning.chain(ellipsis(most)).chain(end.into_iter().rev()).collect()
}

fn fits(text: &str, most: usize) -> bool {
    text.chars().nth(most.saturating_mul(CHARACTERS)).is_none() && columns_of(text) <= most
}

/// Returns the first characters that fit in `most` columns together with an ellipsis.
fn start(characters: impl Iterator<Item = char>, most: usize) -> impl Iterator<Item = char> {
    let mut room = most.saturating_sub(1);
    characters.take(most.saturating_mul(CHARACTERS)).map_while(move |character| {
        room = room.checked_sub(width(character))?;
        Some(character)
    })
}

fn ellipsis(most: usize) -> Option<char> {
    (most > 0).then_some('…')
}

/// Returns `text` with blanks at its end, so that it takes at least `least` columns.
#[must_use]
pub fn padded(text: &str, least: usize) -> String {
    format!("{text}{}", blanks(text, least))
}

/// Returns `text` with blanks at its start, so that it takes at least `least` columns.
#[must_use]
pub fn padded_left(text: &str, least: usize) -> String {
    format!("{}{text}", blanks(text, least))
}

fn blanks(text: &str, least: usize) -> String {
    " ".repeat(least.saturating_sub(columns_of(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns_and_marks_none() {
        assert_eq!([columns_of("größe"), columns_of("gro\u{308}ße"), columns_of("")], [5, 5, 0]);
        assert_eq!([columns_of("数据库"), columns_of("서버"), columns_of("ｗ")], [6, 4, 2]);
        assert_eq!(columns_of("\u{fffd}…█"), 3);
        assert_eq!(columns_of("\u{1b}[2J"), 4);
    }

    #[test]
    fn a_cut_text_says_so() {
        assert_eq!((shortened_left("größe", 5), shortened_left("größe", 4)), ("größe".into(), "…öße".into()));
        assert_eq!(shortened("größer", 6), "größer");
        assert_eq!(shortened("größeres", 6), "größe…");
        assert_eq!((shortened("ab", 1), shortened("ab", 0)), ("…".into(), "".into()));
        assert_eq!((shortened_left("ab", 1), shortened_left("ab", 0)), ("…".into(), "".into()));
        assert_eq!((shortened_middle("größer", 6), shortened_middle("größer", 5)), ("größer".into(), "gr…er".into()));
        assert_eq!((shortened_middle("größer", 4), shortened_middle("größer", 1)), ("gr…r".into(), "…".into()));
        assert_eq!((shortened_middle("数据库数据库", 6), shortened_middle("ab", 0)), ("数…库".into(), "".into()));
    }

    #[test]
    fn wide_characters_are_not_split() {
        assert_eq!((shortened("数据库", 6), shortened("数据库", 5)), ("数据库".into(), "数据…".into()));
        assert_eq!((shortened("数据库", 4), shortened_left("数据库", 4)), ("数…".into(), "…库".into()));
    }

    #[test]
    fn marks_do_not_make_a_text_long() {
        let text = format!("a{}", "\u{301}".repeat(10_000));
        assert_eq!(columns_of(&text), 1);
        for short in [shortened(&text, 10), shortened_left(&text, 10)] {
            assert!(short.chars().count() <= 41, "{}", short.chars().count());
        }
    }

    #[test]
    fn padded_text_has_the_width_on_the_terminal() {
        assert_eq!((padded("数", 4), padded_left("数", 4)), ("数  ".into(), "  数".into()));
        assert_eq!((padded("abc", 2), padded_left("e\u{301}", 2)), ("abc".into(), " e\u{301}".into()));
    }
}
