//! Rule: files do not contain markers of unfinished work, paths of one machine, or hosts of package registries.

use super::tree::{Source, Tree};
use super::violation::Violation;

/// Markers of unfinished work. They are written in two parts, so that this table is not a violation.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Folders of one machine.
const FOLDERS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// Hosts of package registries. The sources must not name them, because the configuration of the machine selects the
/// registries.
const HOSTS: [&str; 4] = [
    concat!("://index.", "crates.io"),
    concat!("://static.", "crates.io"),
    concat!("://static.", "rust-lang.org"),
    concat!("://deb.", "debian.org"),
];

/// Source of a crate from the public registry, as in a lock file.
const PUBLIC_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.sources.iter().flat_map(check_file).collect()
}

fn check_file(source: &Source) -> Vec<Violation> {
    let lock = source.file_name() == "Cargo.lock";
    // A flame graph contains a third-party script.
    let picture = source.path.ends_with(".svg");
    let mut violations = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let mut report = |message: String| violations.push(Violation::new(source, index + 1, message));
        for folder in FOLDERS.into_iter().filter(|folder| contains_path(line, folder)) {
            report(format!("path of one machine: {folder}"));
        }
        for host in HOSTS.into_iter().filter(|host| line.contains(host)) {
            report(format!("host of a package registry: {host}"));
        }
        if lock {
            if line.starts_with("source = ") && !line.contains(PUBLIC_REGISTRY) {
                report(String::from("crate from another registry"));
            }
        } else if !picture {
            for word in UNFINISHED.into_iter().filter(|word| contains_word(line, word)) {
                report(format!("marker of unfinished work: {word}"));
            }
        }
    }
    violations
}

/// Returns true if a path in `line` starts with `folder`. A path such as `/proc/7/root/usr` contains a folder, but
/// does not start with it.
fn contains_path(line: &str, folder: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || "_-.*}>)]$~".contains(c);
    line.match_indices(folder).any(|(start, _)| !line[..start].ends_with(continues))
}

/// Returns true if `line` contains `word`, and not only as a part of longer words such as a template for `mkstemp`.
fn contains_word(line: &str, word: &str) -> bool {
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
    fn marker_of_unfinished_work_is_a_violation_in_any_file() {
        for word in UNFINISHED {
            assert_eq!(count("README.md", &format!("a\n{word}: more")), 1);
            assert_eq!(count("tests/victims/exact.c", &format!("/* {word} */")), 1);
        }
    }

    #[test]
    fn flame_graph_may_have_markers_but_no_path_of_a_machine() {
        assert_eq!(count("docs/demo.svg", UNFINISHED[0]), 0);
        assert_eq!(count("docs/demo.svg", &format!("\"{}main\"", FOLDERS[0])), 1);
    }

    #[test]
    fn part_of_a_longer_word_is_permitted() {
        assert_eq!(count("a.rs", &format!("\"/tmp/name-{0}{0}\"", UNFINISHED[2])), 0);
        assert_eq!(count("a.rs", &format!("MAS{}S", UNFINISHED[0])), 0);
    }

    #[test]
    fn path_of_a_machine_is_a_violation_at_its_start() {
        for folder in FOLDERS {
            assert_eq!(count(".ci/run", &format!("cd {folder}main")), 1);
            assert_eq!(count("a.rs", &format!("\"{folder}main\"")), 1);
            assert_eq!(count("a.rs", &format!("\"/proc/7{folder}usr /proc/{{pid}}{folder}usr\"")), 0);
        }
    }

    #[test]
    fn registry_host_is_a_violation() {
        for host in HOSTS {
            assert_eq!(count("Dockerfile", &format!("https{host}/")), 1);
        }
    }

    #[test]
    fn locked_crates_are_from_the_public_registry() {
        assert_eq!(count("Cargo.lock", &format!("source = \"{PUBLIC_REGISTRY}\"")), 0);
        assert_eq!(count("Cargo.lock", "source = \"registry+https://mirror.example/index\""), 1);
    }
}
