//! How large files may be, and how they are called.

use super::Violation;
use super::tree::{Source, Tree};

/// Past this many lines a second thing probably lives in the file.
const LONG: usize = 400;
const TOO_LONG: usize = 500;
const MAIN: &str = "memtrace/src/main.rs";
const MAIN_LINES: usize = 10;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.rust_below("").filter_map(|source| Some(Violation::new(source, 0, breach(source)?))).collect()
}

/// What is not wrong yet.
pub(super) fn warnings(tree: &Tree) -> Vec<Violation> {
    tree.rust_below("")
        .filter(|source| (LONG + 1..=TOO_LONG).contains(&lines(source)))
        .map(|source| {
            let message = format!("{} lines: which second thing lives here? (limit {TOO_LONG})", lines(source));
            Violation::new(source, 0, message)
        })
        .collect()
}

fn breach(source: &Source) -> Option<String> {
    if source.file_name() == "mod.rs" {
        return Some(String::from("modules are called by their name: foo.rs beside foo/"));
    }
    let lines = lines(source);
    if source.path == MAIN && lines > MAIN_LINES {
        return Some(format!("{lines} lines, where {MAIN_LINES} are enough to call the command line"));
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
    fn a_long_file_is_a_warning_and_a_longer_one_a_violation() {
        for (lines, warned, refused) in [(400, 0, 0), (401, 1, 0), (500, 1, 0), (501, 0, 1)] {
            let tree = of_lines("memtrace/src/report/svg.rs", lines);
            assert_eq!((warnings(&tree).len(), check(&tree).len()), (warned, refused), "{lines} lines");
        }
    }

    #[test]
    fn the_program_is_ten_lines() {
        assert_eq!(check(&of_lines(MAIN, 10)).len(), 0);
        assert_eq!(check(&of_lines(MAIN, 11)).len(), 1);
    }

    #[test]
    fn a_module_is_called_by_its_name() {
        assert_eq!(check(&of_lines("memtrace/src/report/mod.rs", 1)).len(), 1);
    }
}
