//! Rule: the methods of a type are in at most two files. A type with methods in more files has several tasks.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Item, ItemImpl, Type};

use super::product::{CRATES, ProductFile, files_below};
use super::tree::Tree;
use super::violation::Violation;

/// Maximum number of files with methods of a type.
const MOST: usize = 2;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    CRATES.into_iter().flat_map(|folder| check_crate(&files_below(tree, folder))).collect()
}

fn check_crate(files: &[ProductFile<'_>]) -> Vec<Violation> {
    let mut definitions: BTreeMap<String, Vec<&[String]>> = BTreeMap::new();
    for file in files {
        for name in file.syntax.items.iter().filter_map(defined) {
            definitions.entry(name).or_default().push(&file.module);
        }
    }
    let mut places: BTreeMap<(String, &[String]), BTreeSet<&str>> = BTreeMap::new();
    for file in files {
        for name in file.syntax.items.iter().filter_map(with_methods) {
            // If several modules have a type of this name, the nearest one is assumed.
            let of_name = definitions.get(&name).into_iter().flatten();
            if let Some(nearest) = of_name.max_by_key(|module| common(module, &file.module)) {
                places.entry((name, nearest)).or_default().insert(&file.source.path);
            }
        }
    }
    let too_many = places.into_iter().filter(|(_, files)| files.len() > MOST);
    let violation = |((name, _), files): ((String, _), BTreeSet<&str>)| {
        let all = files.iter().copied().collect::<Vec<_>>().join(", ");
        let path = files.first().copied().unwrap_or_default();
        Violation {
            path: path.to_owned(),
            line: 0,
            message: format!("methods of {name} are in {} files: {all}", files.len()),
        }
    };
    too_many.map(violation).collect()
}

/// Returns the name of the type that an item defines.
fn defined(item: &Item) -> Option<String> {
    match item {
        Item::Struct(item) => Some(item.ident.to_string()),
        Item::Enum(item) => Some(item.ident.to_string()),
        Item::Union(item) => Some(item.ident.to_string()),
        _ => None,
    }
}

/// Returns the name of the type if an item is its inherent `impl`.
fn with_methods(item: &Item) -> Option<String> {
    let Item::Impl(ItemImpl { trait_: None, self_ty, .. }) = item else { return None };
    let Type::Path(path) = &**self_ty else { return None };
    Some(path.path.segments.last()?.ident.to_string())
}

/// Returns the length of the common prefix of two paths, in segments.
fn common(one: &[String], other: &[String]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::Source;

    #[test]
    fn methods_in_three_files_are_found() {
        let source = |path: &str, text: &str| Source { path: format!("memtrace/src/{path}"), text: text.to_owned() };
        let method = "impl<T> A<T> { fn f() {} }";
        let own = format!("struct A; {method}");
        let with_test = format!("impl Copy for A {{}} #[cfg(test)] {method}");
        let tree = |last: &str| Tree {
            sources: vec![
                source("a.rs", &own),
                source("a/b.rs", method),
                // The impl of a trait, a test and another type of this name do not count.
                source("a/c.rs", &with_test),
                source("other.rs", &own),
                source("a/d.rs", last),
            ],
        };
        assert!(check(&tree("")).is_empty());
        let violations = check(&tree(method));
        assert_eq!(violations.len(), 1);
        assert!(violations[0].message.contains("A are in 3 files"), "{}", violations[0].message);
    }
}
