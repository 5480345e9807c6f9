//! Permissions in the import table that no file uses, so that the table stays tight.

use std::collections::{BTreeMap, BTreeSet};

use super::table::{self, Users};
use super::tree::Tree;
use super::{Violation, paths, product, submodules};

const SOURCES: &str = "memtrace/src/";
const TABLE: &str = "xtask/src/tidy/table.rs";

/// The paths in each top-level module.
type PathsByModule = BTreeMap<String, BTreeSet<Vec<String>>>;

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut paths = PathsByModule::new();
    for file in product::files_below(tree, SOURCES) {
        if let Some(name) = file.module.first() {
            let segments = paths::in_file(&file.syntax, &file.module).into_iter().map(|path| path.segments);
            paths.entry(name.clone()).or_default().extend(segments);
        }
    }
    let messages = [unused_imports(&paths), unused_dependencies(&paths), unused_submodules(tree)].concat();
    messages.into_iter().map(|message| Violation { path: String::from(TABLE), line: 0, message }).collect()
}

fn unused_imports(paths: &PathsByModule) -> Vec<String> {
    let is_used = |name: &str, import: &str| {
        let starts = |path: &Vec<String>| path[0] == "crate" && table::starts_with(&path[1..], import);
        paths.get(name).is_some_and(|paths| paths.iter().any(starts))
    };
    let rows = table::MODULES.iter().flat_map(|row| row.imports.iter().map(|import| (row.name, *import)));
    rows.filter(|(name, import)| !is_used(name, import)).map(|(name, import)| message(name, import)).collect()
}

fn unused_dependencies(paths: &PathsByModule) -> Vec<String> {
    let is_used = |module: &str, dependency: &str| {
        let is_of = |path: &Vec<String>| table::dependency(path).is_some_and(|row| row.path == dependency);
        paths.get(module).is_some_and(|paths| paths.iter().any(is_of))
    };
    let mut messages = Vec::new();
    for row in table::DEPENDENCIES {
        let modules = match row.users {
            Users::All => Vec::new(),
            Users::Only(modules) => modules.to_vec(),
            Users::ConstantsFor(modules, constants) => [modules, constants].concat(),
        };
        let unused = modules.into_iter().filter(|module| !is_used(module, row.path));
        messages.extend(unused.map(|module| message(module, row.path)));
    }
    messages
}

fn unused_submodules(tree: &Tree) -> Vec<String> {
    let used = submodules::imports(tree);
    let mut messages = Vec::new();
    for table in table::SUBMODULES {
        for row in table.rows {
            let is_used = |import: &&&str| used.contains(&(table.parent, row.name.to_owned(), (**import).to_owned()));
            let name = format!("{}::{}", table.parent, row.name);
            messages.extend(row.imports.iter().filter(|import| !is_used(import)).map(|import| message(&name, import)));
        }
    }
    messages
}

fn message(name: &str, import: &str) -> String {
    format!("{name} may import {import}, but does not")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_permission_is_a_violation() {
        let texts = ["use crate::model::Pid;", "use object::Elf;"];
        let messages = |text: &str| -> Vec<String> {
            let violations = check(&Tree::of(&[("memtrace/src/elf.rs", text)]));
            violations.into_iter().map(|violation| violation.message).collect()
        };
        for (text, import) in texts.iter().zip(["model", "object"]) {
            let message = message("elf", import);
            assert!(messages("").contains(&message));
            assert!(!messages(text).contains(&message));
        }
    }
}
