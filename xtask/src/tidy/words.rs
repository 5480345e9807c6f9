//! Words that say something is unfinished, and names of one machine.

use super::Violation;
use super::tree::{Source, Tree};

/// Written in two parts, so that this table is not its own violation.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Folders that only one machine has, and hosts that only one network reaches in that way.
const MACHINE: [&str; 6] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("static.", "rust-lang.org"),
    concat!("deb.", "debian.org"),
];

/// Where cargo says a crate came from when it came from where everyone gets it.
const PUBLIC_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.sources.iter().flat_map(check_file).collect()
}

fn check_file(source: &Source) -> Vec<Violation> {
    let lock = source.file_name() == "Cargo.lock";
    let mut found = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let mut report = |message: String| found.push(Violation::new(source, index + 1, message));
        for name in MACHINE.into_iter().filter(|name| line.contains(name)) {
            report(format!("a name of one machine: {name}"));
        }
        if lock {
            if line.starts_with("source = ") && !line.contains(PUBLIC_REGISTRY) {
                report(String::from("a crate that does not come from the public registry"));
            }
        } else {
            for word in UNFINISHED.into_iter().filter(|word| has_word(line, word)) {
                report(format!("something is unfinished: {word}"));
            }
        }
    }
    found
}

/// Whether `line` has `word` standing alone: not as a part of a name such as `mkstemp`'s row of capitals.
fn has_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(start, _)| {
        let end = start + word.len();
        !line[..start].ends_with(joins) && !line[end..].starts_with(joins)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn what_is_unfinished_is_a_violation_in_any_file() {
        for word in UNFINISHED {
            assert_eq!(count("README.md", &format!("a\n{word}: more")), 1);
            assert_eq!(count("tests/victims/exact.c", &format!("/* {word} */")), 1);
        }
    }

    #[test]
    fn a_part_of_a_name_is_no_word() {
        assert_eq!(count("a.rs", &format!("\"/tmp/name-{0}{0}\"", UNFINISHED[2])), 0);
        assert_eq!(count("a.rs", &format!("MAS{}S", UNFINISHED[0])), 0);
    }

    #[test]
    fn a_name_of_one_machine_is_a_violation() {
        for name in MACHINE {
            assert_eq!(count(".ci/run", &format!("cd {name}main")), 1);
        }
    }

    #[test]
    fn locked_crates_come_from_the_public_registry() {
        assert_eq!(count("Cargo.lock", &format!("source = \"{PUBLIC_REGISTRY}\"")), 0);
        assert_eq!(count("Cargo.lock", "source = \"registry+https://mirror.example/index\""), 1);
    }
}
