//! Suggestion for a misspelled name.

/// Maximum Levenshtein distance of a suggested name.
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

/// Returns the number of characters to insert, remove or replace (Levenshtein distance).
fn edits(text: &[char], name: &str) -> usize {
    let mut previous: Vec<usize> = (0..=text.len()).collect();
    for (row, wanted) in name.chars().enumerate() {
        let mut current = vec![row + 1];
        for (column, character) in text.iter().enumerate() {
            let replaced = previous[column] + usize::from(*character != wanted);
            current.push(replaced.min(previous[column + 1] + 1).min(current[column] + 1));
        }
        previous = current;
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
    }
}
