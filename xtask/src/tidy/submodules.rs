//! Submodules of a module import each other only as the table permits.

use std::collections::BTreeSet;

use super::Violation;
use super::file_graph::{Edge, FileGraph};
use super::table::{self, Submodules};
use super::tree::Tree;

const SOURCES: &str = "memtrace/src/";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let graph = FileGraph::of_crate(tree, SOURCES);
    let edges = graph.edges();
    table::SUBMODULES.iter().flat_map(|table| check_module(&graph, &edges, table)).collect()
}

fn check_module(graph: &FileGraph<'_>, edges: &[Edge], table: &Submodules) -> Vec<Violation> {
    // The name of the submodule that contains a file; the parent's own file has an empty name.
    let submodule = |file: usize| match graph.module(file) {
        [parent, rest @ ..] if parent == table.parent => Some(rest.first().map_or("", String::as_str)),
        _ => None,
    };
    let mut violations = Vec::new();
    let mut named = BTreeSet::new();
    for file in 0..graph.len() {
        let Some(name) = submodule(file).filter(|name| !name.is_empty()) else { continue };
        if table.rows.iter().all(|row| row.name != name) && named.insert(name) {
            let message = format!("tidy/table.rs has no row for {}::{name}", table.parent);
            violations.push(Violation::new(graph.source(file), 0, message));
        }
    }
    for edge in edges {
        let (Some(from), Some(to)) = (submodule(edge.from), submodule(edge.to)) else { continue };
        let is_permitted = table.rows.iter().any(|row| row.name == from && row.imports.contains(&to));
        if from != to && !from.is_empty() && !is_permitted {
            let message = format!("{0}::{from} must not import {1} of {0}::{to}", table.parent, edge.path);
            violations.push(Violation::new(graph.source(edge.from), edge.line, message));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(from: &str, text: &str) -> Vec<String> {
        let files = [
            ("memtrace/src/session.rs", "mod clock; mod run; mod track; pub use track::Tracker; pub use run::run;"),
            ("memtrace/src/session/clock.rs", "pub fn now() {}"),
            ("memtrace/src/session/track.rs", "pub struct Tracker;"),
            ("memtrace/src/session/run.rs", "pub fn run() {}"),
            (from, text),
        ];
        check(&Tree::of(&files)).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn submodule_must_not_import_another_of_its_level() {
        let expected = ["session::clock must not import crate::session::Tracker of session::track"];
        assert_eq!(messages("memtrace/src/session/clock/x.rs", "use crate::session::Tracker;"), expected);
        let expected = ["session::track must not import crate::session::run::run of session::run"];
        assert_eq!(messages("memtrace/src/session/track/x.rs", "use super::super::run::run;"), expected);
    }

    #[test]
    fn submodule_may_import_those_of_its_row() {
        assert_eq!(messages("memtrace/src/session/run/x.rs", "use crate::session::{Tracker, clock::now};"), [""; 0]);
    }

    #[test]
    fn submodule_without_a_row_is_a_violation() {
        let expected = ["tidy/table.rs has no row for session::helpers"];
        assert_eq!(messages("memtrace/src/session/helpers.rs", ""), expected);
        assert_eq!(messages("memtrace/src/session/helpers/x.rs", ""), expected);
    }
}
