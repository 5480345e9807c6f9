//! Rule for the sizes and names of files.

use super::tree::{Source, Tree};
use super::violation::Violation;

/// A file with more lines is a warning.
const LONG: usize = 700;
/// A file with more lines is a violation, because it probably has two responsibilities.
const TOO_LONG: usize = 800;
const MAIN: &str = "memtrace/src/main.rs";
const MAIN_LINES: usize = 10;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.rust_below("").filter_map(|source| Some(Violation::new(source, 0, violation(source)?))).collect()
}

/// Returns warnings about files that approach the limit.
pub(super) fn warnings(tree: &Tree) -> Vec<Violation> {
    tree.rust_below("")
        .filter(|source| (LONG + 1..=TOO_LONG).contains(&lines(source)))
        .map(|source| {
            let message = format!("{} lines; split it before it exceeds the limit of {TOO_LONG}", lines(source));
            Violation::new(source, 0, message)
        })
        .collect()
}

fn violation(source: &Source) -> Option<String> {
    if source.file_name() == "mod.rs" {
        return Some(String::from("name the file of a module foo.rs instead of foo/mod.rs"));
    }
    let lines = lines(source);
    if source.path == MAIN && lines > MAIN_LINES {
        return Some(format!("{lines} lines, more than {MAIN_LINES}: main only calls the command line"));
    }
    (lines > TOO_LONG).then(|| format!("{lines} lines, more than {TOO_LONG}"))
}

fn lines(source: &Source) -> usize {
    source.text.lines().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_lines(path: &str, lines: usize) -> Tree {
        Tree::of(&[(path, "//\n".repeat(lines).as_str())])
    }

    #[test]
    fn long_file_is_a_warning_or_a_violation() {
        for (lines, warned, refused) in [(700, 0, 0), (701, 1, 0), (800, 1, 0), (801, 0, 1)] {
            let tree = of_lines("memtrace/src/report/svg.rs", lines);
            assert_eq!((warnings(&tree).len(), check(&tree).len()), (warned, refused), "{lines} lines");
        }
    }

    #[test]
    fn main_has_at_most_ten_lines() {
        assert_eq!(check(&of_lines(MAIN, 10)).len(), 0);
        assert_eq!(check(&of_lines(MAIN, 11)).len(), 1);
    }

    #[test]
    fn mod_rs_is_a_violation() {
        assert_eq!(check(&of_lines("memtrace/src/report/mod.rs", 1)).len(), 1);
    }
}
