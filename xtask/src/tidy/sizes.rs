//! `cargo xtask sizes`: lines and files of the product, without tests.

use std::collections::BTreeMap;

use super::product::{CRATES, files_below};
use super::tree::Tree;

/// Number of files and lines of a crate or module.
#[derive(Clone, Copy, Default)]
struct Size {
    files: usize,
    lines: usize,
}

/// Returns a table of the crates of the product. A crate with independent modules has a row for each module instead.
pub(super) fn table(tree: &Tree) -> String {
    let mut parts: BTreeMap<String, Size> = BTreeMap::new();
    let mut total = Size::default();
    for folder in CRATES {
        for file in files_below(tree, folder) {
            let name = folder.trim_end_matches("/src/").trim_start_matches("crates/");
            let part = match file.module.first() {
                Some(module) if has_modules(name) => format!("{name}::{module}"),
                _ => name.to_owned(),
            };
            let lines = file.code_lines();
            for size in [parts.entry(part).or_default(), &mut total] {
                size.files += 1;
                size.lines += lines;
            }
        }
    }
    let mut parts: Vec<_> = parts.into_iter().collect();
    parts.sort_by_key(|(_, size)| std::cmp::Reverse(size.lines));
    parts.push((String::from("product"), total));
    let row = |(name, Size { files, lines }): &(String, Size)| format!("{name:<28} {files:>5} files {lines:>6} lines");
    parts.iter().map(row).collect::<Vec<_>>().join("\n")
}

/// Returns true for a crate with independent modules. In any other crate, the files belong together.
fn has_modules(name: &str) -> bool {
    matches!(name, "host" | "memtrace" | "object")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_modules_crates_sum() {
        let files = [
            ("memtrace/src/trace.rs", "fn f() {}\n"),
            ("memtrace/src/trace/start.rs", "fn f() {\n}\n"),
            ("crates/report/src/svg.rs", "fn f() {\n}\n"),
            ("memtrace-unwind/src/lib.rs", "fn f() {}\n"),
            ("xtask/src/main.rs", "fn f() {}\n"),
        ];
        let table = table(&Tree::of(&files));
        let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        let expected = [
            vec!["memtrace::trace", "2", "files", "3", "lines"],
            vec!["report", "1", "files", "2", "lines"],
            vec!["memtrace-unwind", "1", "files", "1", "lines"],
            vec!["product", "4", "files", "6", "lines"],
        ];
        assert_eq!(words, expected);
    }
}
