//! `cargo xtask sizes`: lines and files of the product, without tests.

use std::collections::BTreeMap;

use super::product::files_below;
use super::tree::Tree;

/// Folders of the sources that users run or link. Tools, tests and benchmarks are not part of the product.
const PRODUCT: [&str; 6] = [
    "crates/json/src/",
    "memtrace/src/",
    "memtrace-common/src/",
    "memtrace-ebpf/src/",
    "memtrace-probes/src/",
    "memtrace-unwind/src/",
];

/// Files and lines of a part of the product.
#[derive(Clone, Copy, Default)]
struct Size {
    files: usize,
    lines: usize,
}

/// Returns a table of the parts of the product: the crates, and the modules of memtrace.
pub(super) fn table(tree: &Tree) -> String {
    let mut parts: BTreeMap<String, Size> = BTreeMap::new();
    let mut total = Size::default();
    for folder in PRODUCT {
        for file in files_below(tree, folder) {
            let krate = folder.trim_end_matches("/src/");
            let part = match file.module.first() {
                Some(module) if krate == "memtrace" => format!("memtrace::{module}"),
                _ => krate.to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_modules_crates_sum() {
        let files = [
            ("memtrace/src/report.rs", "fn f() {}\n"),
            ("memtrace/src/report/svg.rs", "fn f() {\n}\n"),
            ("memtrace-unwind/src/lib.rs", "fn f() {}\n"),
            ("xtask/src/main.rs", "fn f() {}\n"),
        ];
        let table = table(&Tree::of(&files));
        let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        let expected = [
            vec!["memtrace::report", "2", "files", "3", "lines"],
            vec!["memtrace-unwind", "1", "files", "1", "lines"],
            vec!["product", "3", "files", "4", "lines"],
        ];
        assert_eq!(words, expected);
    }
}
