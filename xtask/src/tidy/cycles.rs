//! Rule: the imports between the files of a crate have no cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::file_graph::{Edge, FileGraph};
use super::product::CRATES;
use super::tree::Tree;
use super::violation::Violation;

/// Sources of xtask.
const OWN: &str = "xtask/src/";

/// Returns a violation for each group of files that import each other.
pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    CRATES.into_iter().chain([OWN]).flat_map(|folder| check_crate(tree, folder)).collect()
}

fn check_crate(tree: &Tree, folder: &'static str) -> Vec<Violation> {
    let graph = FileGraph::of_crate(tree, folder);
    let edges = graph.edges();
    let groups = cyclic_groups(graph.len(), &edges);
    groups.iter().filter_map(|group| Some(violation(&graph, group, &edges, *group.first()?))).collect()
}

fn violation(graph: &FileGraph<'_>, group: &BTreeSet<usize>, edges: &[Edge], first: usize) -> Violation {
    let inside = edges.iter().filter(|edge| group.contains(&edge.from) && group.contains(&edge.to));
    let mut message = format!("{} files import each other:", group.len());
    let mut seen = BTreeSet::new();
    for edge in inside.filter(|edge| seen.insert((edge.from, edge.to))) {
        let (from, to) = (&graph.source(edge.from).path, &graph.source(edge.to).path);
        // Writing to a string cannot fail.
        let _ = write!(message, "\n    {from}:{} uses {} of {to}", edge.line, edge.path);
    }
    Violation::new(graph.source(first), 0, message)
}

/// Returns the strongly connected components with more than one file, as sets of file indices. `files`: number of
/// files.
fn cyclic_groups(files: usize, edges: &[Edge]) -> BTreeSet<BTreeSet<usize>> {
    let mut next: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for edge in edges {
        next.entry(edge.from).or_default().insert(edge.to);
    }
    let reachable: Vec<BTreeSet<usize>> = (0..files).map(|file| reachable_from(file, &next)).collect();
    let group =
        |file: usize| reachable[file].iter().copied().filter(|other| reachable[*other].contains(&file)).collect();
    (0..files).map(group).filter(|group: &BTreeSet<usize>| !group.is_empty()).collect()
}

fn reachable_from(file: usize, next: &BTreeMap<usize, BTreeSet<usize>>) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut to_visit = vec![file];
    while let Some(file) = to_visit.pop() {
        to_visit.extend(next.get(&file).into_iter().flatten().copied().filter(|other| reached.insert(*other)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_that_import_each_other_are_a_violation() {
        let files = [
            ("memtrace-ebpf/src/a.rs", "use crate::b::B; pub struct A;"),
            ("memtrace-ebpf/src/b.rs", "use crate::c::C;\npub struct B;"),
            ("memtrace-ebpf/src/c.rs", "use crate::a::A; pub struct C;"),
            ("memtrace-ebpf/src/d.rs", "use crate::a::A;"),
        ];
        let expected = "memtrace-ebpf/src/a.rs: 3 files import each other:\n    \
             memtrace-ebpf/src/a.rs:1 uses crate::b::B of memtrace-ebpf/src/b.rs\n    \
             memtrace-ebpf/src/b.rs:1 uses crate::c::C of memtrace-ebpf/src/c.rs\n    \
             memtrace-ebpf/src/c.rs:1 uses crate::a::A of memtrace-ebpf/src/a.rs";
        assert_eq!(messages(&files), [expected]);
        assert_eq!(messages(&files[1..]), [""; 0]);
    }

    #[test]
    fn a_child_may_not_use_the_parent_that_uses_it() {
        let child = ("memtrace/src/kernel/x.rs", "use super::LIMIT; pub fn f() {}");
        let parent = "mod x; pub const LIMIT: u8 = 1;";
        assert_eq!(messages(&[("memtrace/src/kernel.rs", parent), child]), [""; 0]);
        let uses_child = format!("{parent} fn g() {{ x::f() }}");
        assert_eq!(messages(&[("memtrace/src/kernel.rs", &uses_child), child]).len(), 1);
    }

    #[test]
    fn a_parent_that_only_reexports_is_in_no_cycle() {
        let files = [
            ("memtrace/src/kernel.rs", "mod x; mod y; pub use x::X; pub use y::Y;"),
            ("memtrace/src/kernel/x.rs", "pub struct X;"),
            ("memtrace/src/kernel/y.rs", "use super::X; pub struct Y(X);"),
        ];
        assert_eq!(messages(&files), [""; 0]);
    }
}
