//! Suggestion for a misspelled name.

/// Maximum number of edits between a text and the suggested name.
const MAX_EDITS: usize = 2;

/// Returns the name that is closest to `text`; `None` if all of them are very different.
#[must_use]
pub fn closest<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let text: Vec<char> = text.to_lowercase().chars().collect();
    // The parser does not limit the length of `text`, so names of other lengths are skipped early.
    let candidates = names.filter(|name| text.len().abs_diff(name.len()) <= MAX_EDITS);
    let edits = candidates.map(|name| (edits(&text, name), name));
    let (edits, name) = edits.min_by_key(|(edits, _)| *edits)?;
    (edits <= MAX_EDITS && 2 * edits < name.len().min(text.len())).then_some(name)
}

/// Returns the number of edits: characters to insert, remove or replace, and neighbours to swap. No part of the text is
/// edited twice (optimal string alignment distance).
fn edits(text: &[char], name: &str) -> usize {
    let name: Vec<char> = name.chars().collect();
    // Rows of the table of distances: the last one, and the one before it.
    let mut previous: Vec<usize> = (0..=text.len()).collect();
    let mut earlier: Vec<usize> = Vec::new();
    for (row, wanted) in name.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, character) in text.iter().enumerate() {
            let replaced = previous[column] + usize::from(character != wanted);
            let one_side = previous[column + 1].min(current[column]) + 1;
            let is_swapped = row > 0 && column > 0 && text[column - 1] == *wanted && name[row - 1] == *character;
            let swapped = if is_swapped { earlier[column - 1] + 1 } else { usize::MAX };
            current.push(replaced.min(one_side).min(swapped));
        }
        earlier = std::mem::replace(&mut previous, current);
    }
    previous[text.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_name_has_a_suggestion() {
        let names = ["net", "alloc", "run_delay", "rss", "io_pressure"];
        let suggestion = |text| closest(text, names.into_iter());
        assert_eq!(suggestion("Alocc"), Some("alloc"));
        assert_eq!(suggestion("run-delay"), Some("run_delay"));
        assert_eq!(suggestion("nett"), Some("net"));
        assert_eq!(suggestion("nte"), Some("net"));
        assert_eq!(suggestion("iopressure"), Some("io_pressure"));
        for text in ["", "x", "ab", "heap", "éé", &"x".repeat(1 << 20)] {
            assert_eq!(suggestion(text), None, "{text}");
        }
    }

    #[test]
    fn edits_are_counted() {
        let count = |text: &str, name| edits(&text.chars().collect::<Vec<_>>(), name);
        assert_eq!(count("kitten", "sitting"), 3);
        assert_eq!(count("", "abc"), 3);
        assert_eq!(count("flaw", "lawn"), 2);
        assert_eq!(count("pdi", "pid"), 1);
        assert_eq!(count("wiat", "wait"), 1);
        // The swapped neighbours would have to be edited again.
        assert_eq!(count("ca", "abc"), 3);
    }
}
