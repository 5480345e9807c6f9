//! Rule: modules of the crate memtrace import each other only as the table permits.

use std::collections::BTreeSet;

use super::file_graph::{Edge, FileGraph};
use super::table::MODULES;
use super::tree::Tree;
use super::violation::Violation;

const SOURCES: &str = "memtrace/src/";
const TABLE: &str = "xtask/src/tidy/table.rs";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let graph = FileGraph::of_crate(tree, SOURCES);
    let edges = graph.edges();
    [missing_rows(&graph), refused(&graph, &edges), unused(&graph, &edges)].concat()
}

/// Returns a violation for each permission that no file uses, so that the table permits no more than necessary.
fn unused(graph: &FileGraph<'_>, edges: &[Edge]) -> Vec<Violation> {
    let used: BTreeSet<_> = edges.iter().filter_map(|edge| modules_of(graph, edge)).collect();
    if used.is_empty() {
        return Vec::new();
    }
    let permissions = MODULES.iter().flat_map(|row| row.imports.iter().map(|import| (row.name, *import)));
    let violation = |(name, import)| {
        let message = format!("{name} may import {import}, but does not");
        Violation { path: String::from(TABLE), line: 0, message }
    };
    permissions.filter(|permission| !used.contains(permission)).map(violation).collect()
}

fn missing_rows(graph: &FileGraph<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut seen = BTreeSet::new();
    for file in 0..graph.len() {
        let Some(name) = module(graph, file) else { continue };
        if MODULES.iter().all(|row| row.name != name) && seen.insert(name) {
            let message = format!("tidy/table.rs has no row for {name}");
            violations.push(Violation::new(graph.source(file), 0, message));
        }
    }
    violations
}

fn refused(graph: &FileGraph<'_>, edges: &[Edge]) -> Vec<Violation> {
    let violation = |edge: &Edge| {
        let (from, to) = modules_of(graph, edge)?;
        let is_permitted = MODULES.iter().any(|row| row.name == from && row.imports.contains(&to));
        let message = format!("{from} must not import {} of {to}", edge.path);
        (!is_permitted).then(|| Violation::new(graph.source(edge.from), edge.line, message))
    };
    edges.iter().filter_map(violation).collect()
}

/// Returns the importing and the imported module of an edge; `None` if they are the same, or the root of the crate.
fn modules_of<'a>(graph: &'a FileGraph<'_>, edge: &Edge) -> Option<(&'a str, &'a str)> {
    let (from, to) = (module(graph, edge.from)?, module(graph, edge.to)?);
    (from != to).then_some((from, to))
}

/// Returns the module that contains a file; `None` for the root of the crate.
fn module<'a>(graph: &'a FileGraph<'_>, file: usize) -> Option<&'a str> {
    graph.module(file).first().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(from: &str, text: &str) -> Vec<String> {
        let files = [
            ("memtrace/src/lib.rs", "mod run_kit; mod targets; mod threads; mod trace;"),
            ("memtrace/src/run_kit.rs", "mod clock; pub use clock::now;"),
            ("memtrace/src/run_kit/clock.rs", "pub fn now() {}"),
            ("memtrace/src/targets.rs", "pub struct Tracker;"),
            ("memtrace/src/threads.rs", "pub fn monitor() {}"),
            (from, text),
        ];
        let violations = check(&Tree::of(&files)).into_iter().filter(|violation| violation.path != TABLE);
        violations.map(|violation| violation.message).collect()
    }

    #[test]
    fn unused_permission_is_a_violation() {
        let files = [
            ("memtrace/src/lib.rs", "mod run_kit; mod targets; mod trace;"),
            ("memtrace/src/run_kit.rs", "pub struct Error;"),
            ("memtrace/src/targets.rs", "pub struct Tracker;"),
            ("memtrace/src/trace.rs", "use crate::run_kit::Error; pub fn f(_: Error) {}"),
        ];
        let messages: Vec<_> = check(&Tree::of(&files)).into_iter().map(|violation| violation.message).collect();
        assert!(messages.contains(&String::from("trace may import targets, but does not")));
        assert!(!messages.contains(&String::from("trace may import run_kit, but does not")));
    }

    #[test]
    fn module_must_not_import_one_below_it_or_another_product() {
        let expected = ["run_kit must not import crate::targets::Tracker of targets"];
        assert_eq!(messages("memtrace/src/run_kit/x.rs", "use crate::targets::Tracker;"), expected);
        let expected = ["trace must not import crate::threads::monitor of threads"];
        assert_eq!(messages("memtrace/src/trace/x.rs", "use super::super::threads::monitor;"), expected);
    }

    #[test]
    fn module_may_import_those_of_its_row() {
        let text = "use crate::{run_kit::now, targets::Tracker};";
        assert_eq!(messages("memtrace/src/trace/x.rs", text), [""; 0]);
    }

    #[test]
    fn module_without_a_row_is_a_violation() {
        let expected = ["tidy/table.rs has no row for helpers"];
        assert_eq!(messages("memtrace/src/helpers.rs", ""), expected);
        assert_eq!(messages("memtrace/src/helpers/x.rs", ""), expected);
    }
}
