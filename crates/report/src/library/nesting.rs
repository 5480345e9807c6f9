//! Bracket nesting in function names.

/// Iterates over the characters of `text` with their offset and bracket depth. A bracket has the depth of the text
/// around it; an unmatched closing bracket has a negative depth.
pub(super) fn nested(text: &str) -> impl Iterator<Item = (usize, char, i32)> {
    let mut depth = 0;
    let mut before = ' ';
    text.char_indices().map(move |(at, c)| {
        // `->` is no bracket.
        let closes = matches!(c, ')' | ']' | '}') || (c == '>' && before != '-');
        before = c;
        if closes {
            depth -= 1;
        }
        let here = depth;
        if matches!(c, '<' | '(' | '[' | '{') {
            depth += 1;
        }
        (at, c, here)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_nest_and_arrows_do_not() {
        let outside = |text| nested(text).filter(|(_, _, depth)| *depth == 0).map(|(_, c, _)| c).collect::<String>();
        assert_eq!(outside("a<b(c)[d]>e{f}"), "a<>e{}");
        assert_eq!(outside("f<fn() -> u8>g"), "f<>g");
        assert_eq!(nested("a>b").map(|(_, _, depth)| depth).collect::<Vec<_>>(), [0, -1, -1]);
    }
}
