//! Words that say something is unfinished, and names of one machine.

use super::Violation;
use super::tree::{Source, Tree};

/// Written in two parts, so that this table is not its own violation.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Folders that only one machine has.
const FOLDERS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// Where a crate or a package is fetched from is a matter of the machine that fetches it.
const HOSTS: [&str; 4] = [
    concat!("://index.", "crates.io"),
    concat!("://static.", "crates.io"),
    concat!("://static.", "rust-lang.org"),
    concat!("://deb.", "debian.org"),
];

/// Where cargo says a crate came from when it came from where everyone gets it.
const PUBLIC_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.sources.iter().flat_map(check_file).collect()
}

fn check_file(source: &Source) -> Vec<Violation> {
    let lock = source.file_name() == "Cargo.lock";
    // A picture carries the script that makes it a flame graph to click into, in its author's words.
    let picture = source.path.ends_with(".svg");
    let mut found = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let mut report = |message: String| found.push(Violation::new(source, index + 1, message));
        for folder in FOLDERS.into_iter().filter(|folder| has_path(line, folder)) {
            report(format!("a folder of one machine: {folder}"));
        }
        for host in HOSTS.into_iter().filter(|host| line.contains(host)) {
            report(format!("a host to fetch from: {host}"));
        }
        if lock {
            if line.starts_with("source = ") && !line.contains(PUBLIC_REGISTRY) {
                report(String::from("a crate that does not come from the public registry"));
            }
        } else if !picture {
            for word in UNFINISHED.into_iter().filter(|word| has_word(line, word)) {
                report(format!("something is unfinished: {word}"));
            }
        }
    }
    found
}

/// Whether a path in `line` begins with `folder`, rather than having it further on as `/proc/7/root/usr` has.
fn has_path(line: &str, folder: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || "_-.*}>)]$~".contains(c);
    line.match_indices(folder).any(|(start, _)| !line[..start].ends_with(continues))
}

/// Whether `line` has `word` standing alone, not as a part of a longer one such as `mkstemp`'s row of capitals.
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
    fn a_picture_may_carry_the_words_of_others_but_no_folder_of_one_machine() {
        assert_eq!(count("docs/demo.svg", UNFINISHED[0]), 0);
        assert_eq!(count("docs/demo.svg", &format!("\"{}main\"", FOLDERS[0])), 1);
    }

    #[test]
    fn a_part_of_a_name_is_no_word() {
        assert_eq!(count("a.rs", &format!("\"/tmp/name-{0}{0}\"", UNFINISHED[2])), 0);
        assert_eq!(count("a.rs", &format!("MAS{}S", UNFINISHED[0])), 0);
    }

    #[test]
    fn a_folder_of_one_machine_is_a_violation_where_a_path_begins() {
        for folder in FOLDERS {
            assert_eq!(count(".ci/run", &format!("cd {folder}main")), 1);
            assert_eq!(count("a.rs", &format!("\"{folder}main\"")), 1);
            assert_eq!(count("a.rs", &format!("\"/proc/7{folder}usr /proc/{{pid}}{folder}usr\"")), 0);
        }
    }

    #[test]
    fn a_host_to_fetch_from_is_a_violation() {
        for host in HOSTS {
            assert_eq!(count("Dockerfile", &format!("https{host}/")), 1);
        }
    }

    #[test]
    fn locked_crates_come_from_the_public_registry() {
        assert_eq!(count("Cargo.lock", &format!("source = \"{PUBLIC_REGISTRY}\"")), 0);
        assert_eq!(count("Cargo.lock", "source = \"registry+https://mirror.example/index\""), 1);
    }
}
