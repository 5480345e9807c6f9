//! Pruning of folded stacks for a picture: entries that are too small to see are merged.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use memtrace_model::{Node, Tree};

use super::sums::{Entries, Path, Sum};

/// Estimated size of a box in the SVG file, in bytes, without the name.
const BOX: usize = 260;

/// Bounds of a picture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pruning {
    /// Entries narrower than 1/`parts` of the picture are merged.
    pub parts: u64,
    /// Maximum size of all boxes in bytes; `None` for no limit.
    pub bytes: Option<usize>,
}

/// If an entry of a stack is too small to draw, moves the stack to `others`, where stacks with the same drawn entries
/// are merged. Returns the stacks that are drawn completely.
pub(super) fn prune(
    stacks: Vec<(Path, Sum)>,
    others: &mut BTreeMap<Path, Sum>,
    entries: &Entries,
    pruning: Pruning,
) -> Vec<(Path, Sum)> {
    let mut values = Values::default();
    let leaves: Vec<_> = stacks.iter().map(|(path, sum)| values.add(path, sum.value)).collect();
    let merged: Vec<_> = std::mem::take(others).into_iter().collect();
    let merged: Vec<_> = merged.into_iter().map(|(path, sum)| (values.add(&path, sum.value), path, sum)).collect();
    let least = values.least(entries, pruning);
    let mut add = |path: &[u32], sum| others.entry(path.into()).or_default().add(sum);
    for (leaf, path, sum) in merged {
        add(&path[..values.visible(leaf, least)], sum);
    }
    let mut kept = Vec::with_capacity(stacks.len());
    for ((path, sum), leaf) in stacks.into_iter().zip(leaves) {
        match values.visible(leaf, least) {
            all if all == path.len() => kept.push((path, sum)),
            some => add(&path[..some], sum),
        }
    }
    kept
}

/// An entry of a stack with its inclusive value: its own value plus the values of its callees.
#[derive(Clone, Copy)]
struct NodeValue {
    sum: u64,
    entry: u32,
    parent: Node,
    /// Number of callees.
    children: u32,
}

/// Tree of all entries with their inclusive values.
#[derive(Default)]
struct Values {
    tree: Tree<u32>,
    nodes: Vec<NodeValue>,
    all: u64,
}

impl Values {
    fn add(&mut self, path: &[u32], value: u64) -> Node {
        self.all = self.all.saturating_add(value);
        path.iter().fold(Node::ROOT, |parent, &entry| {
            // `push` fails only if the number of nodes overflows. There are far fewer nodes.
            let node = self.tree.push(parent, entry).unwrap_or(parent);
            if self.nodes.len() < self.tree.len() {
                self.nodes.push(NodeValue { sum: 0, entry, parent, children: 0 });
                if let Some(caller) = parent.index() {
                    self.nodes[caller].children += 1;
                }
            }
            if let Some(index) = node.index() {
                self.nodes[index].sum = self.nodes[index].sum.saturating_add(value);
            }
            node
        })
    }

    /// Returns the minimum value of an entry that is drawn.
    fn least(&self, entries: &Entries, pruning: Pruning) -> u64 {
        let least = self.all.div_ceil(pruning.parts);
        let Some(bytes) = pruning.bytes else { return least };
        let mut largest: Vec<_> = (0..self.nodes.len()).filter(|&index| self.nodes[index].sum >= least).collect();
        largest.sort_unstable_by_key(|&index| (Reverse(self.nodes[index].sum), index));
        // For each entry, the number of callees that are not drawn. They share one box.
        let mut left_out: Vec<_> = self.nodes.iter().map(|node| node.children).collect();
        // The outermost entries that are not drawn also share one box.
        let mut boxes = 1;
        let mut names = 0;
        for index in largest {
            let node = self.nodes[index];
            boxes += 1 + usize::from(left_out[index] > 0);
            names += name_bytes(entries.text(node.entry));
            if let Some(caller) = node.parent.index() {
                left_out[caller] -= 1;
                boxes -= usize::from(left_out[caller] == 0);
            }
            if boxes * BOX + names > bytes {
                return node.sum.saturating_add(1);
            }
        }
        least
    }

    /// Returns the number of drawn entries from the root to `leaf`. The drawn entries are the outermost ones, because
    /// no entry is larger than its caller.
    fn visible(&self, leaf: Node, least: u64) -> usize {
        let parent = |node: &Node| self.tree.get(*node).map(|(parent, _)| parent);
        let path = std::iter::successors(Some(leaf), parent).filter_map(Node::index);
        path.filter(|&index| self.nodes[index].sum >= least).count()
    }
}

/// Returns the bytes that a name takes in the picture: escaped in the tooltip, and shortened in the box.
fn name_bytes(name: &str) -> usize {
    name.len() + 4 * name.bytes().filter(|byte| matches!(byte, b'<' | b'>' | b'&')).count() + name.len().min(150)
}
