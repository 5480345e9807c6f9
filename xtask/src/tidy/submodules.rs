//! Submodules of a module import each other only as the table permits.

use std::collections::BTreeSet;

use super::Violation;
use super::file_graph::{Edge, FileGraph};
use super::table::{self, Submodules};
use super::tree::Tree;

const SOURCES: &str = "memtrace/src/";
const TABLE: &str = "xtask/src/tidy/table.rs";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let graph = FileGraph::of_crate(tree, SOURCES);
    let edges = graph.edges();
    let of_table = |table: &Submodules| {
        [missing_rows(&graph, table), refused(&graph, &edges, table), unused(&graph, &edges, table)].concat()
    };
    table::SUBMODULES.iter().flat_map(of_table).collect()
}

/// Returns the permissions that no file uses, so that the table stays tight.
fn unused(graph: &FileGraph<'_>, edges: &[Edge], table: &Submodules) -> Vec<Violation> {
    let used: BTreeSet<_> = edges.iter().filter_map(|edge| submodules_of(graph, edge, table)).collect();
    if used.is_empty() {
        return Vec::new();
    }
    let permissions = table.rows.iter().flat_map(|row| row.imports.iter().map(|import| (row.name, *import)));
    let violation = |(name, import)| {
        let message = format!("{}::{name} may import {import}, but does not", table.parent);
        Violation { path: String::from(TABLE), line: 0, message }
    };
    permissions.filter(|permission| !used.contains(permission)).map(violation).collect()
}

fn missing_rows(graph: &FileGraph<'_>, table: &Submodules) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut seen = BTreeSet::new();
    for file in 0..graph.len() {
        let Some(name) = submodule(graph.module(file), table).filter(|name| !name.is_empty()) else { continue };
        if table.rows.iter().all(|row| row.name != name) && seen.insert(name) {
            let message = format!("tidy/table.rs has no row for {}::{name}", table.parent);
            violations.push(Violation::new(graph.source(file), 0, message));
        }
    }
    violations
}

fn refused(graph: &FileGraph<'_>, edges: &[Edge], table: &Submodules) -> Vec<Violation> {
    let violation = |edge: &Edge| {
        let (from, to) = submodules_of(graph, edge, table)?;
        let is_permitted =
            from.is_empty() || table.rows.iter().any(|row| row.name == from && row.imports.contains(&to));
        let message = format!("{0}::{from} must not import {1} of {0}::{to}", table.parent, edge.path);
        (!is_permitted).then(|| Violation::new(graph.source(edge.from), edge.line, message))
    };
    edges.iter().filter_map(violation).collect()
}

/// Returns the two submodules of an import, unless they are the same or it is outside of the parent.
fn submodules_of<'a>(graph: &'a FileGraph<'_>, edge: &Edge, table: &Submodules) -> Option<(&'a str, &'a str)> {
    let (from, to) = (submodule(graph.module(edge.from), table)?, submodule(graph.module(edge.to), table)?);
    (from != to).then_some((from, to))
}

/// Returns the submodule that contains a file, or an empty name for the file of the parent.
fn submodule<'a>(module: &'a [String], table: &Submodules) -> Option<&'a str> {
    match module {
        [parent, rest @ ..] if parent == table.parent => Some(rest.first().map_or("", String::as_str)),
        _ => None,
    }
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
        let violations = check(&Tree::of(&files)).into_iter().filter(|violation| violation.path != TABLE);
        violations.map(|violation| violation.message).collect()
    }

    #[test]
    fn unused_permission_is_a_violation() {
        let files = [
            ("memtrace/src/session.rs", "mod error; mod explain;"),
            ("memtrace/src/session/error.rs", "pub struct Error;"),
            ("memtrace/src/session/explain.rs", "use super::error::Error; pub fn f(_: Error) {}"),
        ];
        let messages: Vec<_> = check(&Tree::of(&files)).into_iter().map(|violation| violation.message).collect();
        assert!(messages.contains(&String::from("session::explain may import outputs, but does not")));
        assert!(!messages.contains(&String::from("session::explain may import error, but does not")));
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
