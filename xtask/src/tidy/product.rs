//! Parses the product code of a crate: its files, without code under `#[cfg(test)]`.

use std::ops::RangeInclusive;

use syn::spanned::Spanned;
use syn::{Attribute, File, ImplItem, Item, ItemMod};

use super::tree::{Source, Tree};

/// Source folders of the crates that users run or link. Tools, tests and benchmarks are not part of the product.
pub(super) const CRATES: [&str; 11] = [
    "crates/history/src/",
    "crates/host/src/",
    "crates/json/src/",
    "crates/model/src/",
    "crates/object/src/",
    "crates/report/src/",
    "memtrace/src/",
    "memtrace-common/src/",
    "memtrace-ebpf/src/",
    "memtrace-probes/src/",
    "memtrace-unwind/src/",
];

/// Parsed file of a crate.
pub(super) struct ProductFile<'a> {
    pub(super) source: &'a Source,
    pub(super) module: Vec<String>,
    pub(super) syntax: File,
    /// Line ranges of the tests in the file, from 1.
    tests: Vec<RangeInclusive<usize>>,
}

impl ProductFile<'_> {
    /// Returns the number of lines of code. Tests, blank lines and lines with only a comment do not count.
    pub(super) fn code_lines(&self) -> usize {
        let is_code = |(number, line): &(usize, &str)| {
            let line = line.trim_start();
            !(line.is_empty() || line.starts_with("//") || self.tests.iter().any(|lines| lines.contains(number)))
        };
        (1..).zip(self.source.text.lines()).filter(is_code).count()
    }
}

/// Returns the files of the crate with sources below `folder`. Files that are not Rust are skipped.
pub(super) fn files_below<'a>(tree: &'a Tree, folder: &'a str) -> Vec<ProductFile<'a>> {
    let mut files = Vec::new();
    let mut tests = Vec::new();
    for source in tree.rust_below(folder) {
        let Ok(mut syntax) = syn::parse_file(&source.text) else { continue };
        let module = module_of(source.path.strip_prefix(folder).unwrap_or(&source.path));
        let mut removed = Tests::default();
        removed.remove_from(&mut syntax.items, &module);
        tests.append(&mut removed.modules);
        files.push(ProductFile { source, module, syntax, tests: removed.lines });
    }
    files.retain(|file| !tests.iter().any(|test| file.module.starts_with(test)));
    files
}

/// Returns the module path of a file. `path` is its path in the crate: `report/svg.rs` is `report::svg`, and `lib.rs`
/// and `main.rs` are the root.
pub(super) fn module_of(path: &str) -> Vec<String> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    if matches!(path, "lib" | "main") { Vec::new() } else { path.split('/').map(String::from).collect() }
}

/// Items under `#[cfg(test)]` that were removed from a file.
#[derive(Default)]
struct Tests {
    /// Paths of the removed modules.
    modules: Vec<Vec<String>>,
    lines: Vec<RangeInclusive<usize>>,
}

impl Tests {
    fn remove_from(&mut self, items: &mut Vec<Item>, module: &[String]) {
        items.retain_mut(|item| {
            if attributes_of(item).is_some_and(is_test) {
                if let Item::Mod(ItemMod { ident, .. }) = item {
                    self.modules.push([module, &[ident.to_string()]].concat());
                }
                self.add_lines(item);
                return false;
            }
            if let Item::Mod(ItemMod { ident, content: Some((_, items)), .. }) = item {
                self.remove_from(items, &[module, &[ident.to_string()]].concat());
            }
            if let Item::Impl(item) = item {
                item.items.retain(|item| {
                    let is_test = matches!(item, ImplItem::Fn(function) if is_test(&function.attrs));
                    if is_test {
                        self.add_lines(item);
                    }
                    !is_test
                });
            }
            true
        });
    }

    fn add_lines(&mut self, removed: &impl Spanned) {
        let span = removed.span();
        self.lines.push(span.start().line..=span.end().line);
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

fn attributes_of(item: &Item) -> Option<&[Attribute]> {
    Some(match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_under_cfg_test_is_removed() {
        let files = [
            ("c/src/a.rs", "#[cfg(test)] mod tests; #[cfg(test)] fn f() {} fn g() {}"),
            ("c/src/a/tests.rs", ""),
            ("c/src/a/tests/more.rs", ""),
            ("c/src/b.rs", "mod x { #[cfg(test)] use crate::a; } impl B { #[cfg(test)] fn f() {} }"),
        ];
        let tree = Tree::of(&files);
        let files = files_below(&tree, "c/src/");
        assert_eq!(files.iter().map(|file| file.module.join("::")).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(files[0].syntax.items.len(), 1);
        assert!(matches!(&files[1].syntax.items[0], Item::Mod(item) if item.content.as_ref().unwrap().1.is_empty()));
        assert!(matches!(&files[1].syntax.items[1], Item::Impl(item) if item.items.is_empty()));
    }

    #[test]
    fn lines_of_code_leave_out_tests_blanks_comments() {
        let text = "//! Doc.\n\n/// Doc.\nfn f() {\n    // Why.\n    g(); // how\n}\n\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n\
                    impl B {\n    fn h() {}\n    #[cfg(test)]\n    fn i() {}\n}\n";
        let tree = Tree::of(&[("c/src/a.rs", text)]);
        assert_eq!(files_below(&tree, "c/src/").iter().map(ProductFile::code_lines).collect::<Vec<_>>(), [3 + 3]);
    }

    #[test]
    fn module_is_derived_from_the_path() {
        assert_eq!(module_of("report/svg.rs"), ["report", "svg"]);
        assert_eq!(module_of("lib.rs"), [""; 0]);
    }
}
