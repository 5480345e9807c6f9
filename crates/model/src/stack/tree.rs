//! Prefix tree: sequences that share their first items.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

/// A tree of items. A node stands for the sequence of the items from the root to the node.
#[derive(Clone, Debug)]
pub struct Tree<T> {
    nodes: Vec<(Node, T)>,
    /// Index of the nodes by parent and item.
    known: HashTable<Node>,
}

/// A node of a [`Tree`]. The root is the only node without an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(u32);

impl Node {
    /// The root, which stands for the empty sequence.
    pub const ROOT: Self = Self(0);

    /// Returns the number of the node in the order of creation: 0 for the root.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the node with this [number](Self::number).
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Returns the position of the node in the order of creation, without the root: 0 for the first node; `None` for
    /// the root. Only [`Tree::retain`] changes positions.
    #[must_use]
    pub const fn index(self) -> Option<usize> {
        match self.0.checked_sub(1) {
            Some(index) => Some(index as usize),
            None => None,
        }
    }
}

/// Map from the nodes of a tree to the nodes of another one: the result of [`Tree::merge`], [`Tree::convert`] and
/// [`Tree::retain`].
#[derive(Clone, Debug)]
pub struct Merged(Vec<Node>);

impl Merged {
    /// Returns the node of the other tree that stands for the same sequence as `node`.
    #[must_use]
    pub fn of(&self, node: Node) -> Node {
        node.index().and_then(|index| self.0.get(index)).copied().unwrap_or(Node::ROOT)
    }
}

/// Returns the hash of one of `nodes`.
fn hash_of<T: Hash>(nodes: &[(Node, T)], node: Node) -> u64 {
    node.index().map_or(0, |index| FxBuildHasher.hash_one(&nodes[index]))
}

impl<T> Default for Tree<T> {
    fn default() -> Self {
        Self { nodes: Vec::new(), known: HashTable::new() }
    }
}

impl<T: Copy + Eq + Hash> Tree<T> {
    /// Returns the node for the sequence of `parent` followed by `item`; `None` if the number of nodes overflows, which
    /// needs more memory than machines have.
    pub fn push(&mut self, parent: Node, item: T) -> Option<Node> {
        let nodes = &mut self.nodes;
        let next = u32::try_from(nodes.len()).ok()?.checked_add(1)?;
        let wanted = (parent, item);
        // The first sequence through a node adds the child right after the node. Most nodes have one child. This
        // comparison saves a lookup in the index, which is seldom in the cache if it is large.
        if nodes.get(parent.0 as usize) == Some(&wanted) {
            return Some(Node(parent.0 + 1));
        }
        let is_wanted = |node: &Node| node.index().is_some_and(|index| nodes[index] == wanted);
        match self.known.entry(FxBuildHasher.hash_one(wanted), is_wanted, |node| hash_of(nodes, *node)) {
            hashbrown::hash_table::Entry::Occupied(entry) => Some(*entry.get()),
            hashbrown::hash_table::Entry::Vacant(entry) => {
                entry.insert(Node(next));
                // A vector that doubles leaves a third of its memory unused on average. A vector that grows by an
                // eighth needs many copies: 3 % of memtrace's processor time.
                if nodes.len() == nodes.capacity() {
                    nodes.reserve_exact(nodes.len() / 4 + 4);
                }
                nodes.push(wanted);
                Some(Node(next))
            }
        }
    }

    /// Reserves memory for a number of further nodes.
    pub fn reserve(&mut self, nodes: usize) {
        self.nodes.reserve(nodes);
        self.known.reserve(nodes, |node| hash_of(&self.nodes, *node));
    }

    /// Adds all nodes of this tree to another tree. For each node, `push` gets the parent's node in the other tree and
    /// the item, and returns the node in the other tree.
    pub fn convert(&self, mut push: impl FnMut(Node, T) -> Node) -> Merged {
        let mut merged = Merged(Vec::with_capacity(self.len()));
        // A node comes after its parent.
        for &(parent, item) in &self.nodes {
            let node = push(merged.of(parent), item);
            merged.0.push(node);
        }
        merged
    }

    /// Adds all nodes of `other`, and returns the map from its nodes to the nodes of this tree.
    pub fn merge(&mut self, other: &Self) -> Merged {
        other.convert(|parent, item| self.push(parent, item).unwrap_or(parent))
    }

    /// Removes all nodes that are in no sequence of `used`, and returns the map from the old nodes to the new ones.
    /// Kept nodes stay in order. Items get the value that `rename` returns, which must differ for different items.
    pub fn retain(&mut self, used: impl IntoIterator<Item = Node>, mut rename: impl FnMut(T) -> T) -> Merged {
        let mut is_used = vec![false; self.nodes.len()];
        for index in used.into_iter().filter_map(Node::index) {
            is_used[index] = true;
        }
        // A node comes after its parent.
        for index in (0..is_used.len()).rev() {
            if let Some(parent) = self.nodes[index].0.index().filter(|_| is_used[index]) {
                is_used[parent] = true;
            }
        }
        let mut merged = Merged(Vec::with_capacity(is_used.len()));
        let mut kept = 0;
        for (index, is_used) in is_used.into_iter().enumerate() {
            let mut node = Node::ROOT;
            if is_used {
                let (parent, item) = self.nodes[index];
                self.nodes[kept] = (merged.of(parent), rename(item));
                kept += 1;
                node = Node::from_number(kept as u32);
            }
            merged.0.push(node);
        }
        self.nodes.truncate(kept);
        self.rebuild_index();
        merged
    }

    /// Rebuilds the index of the nodes. Releases memory if many nodes were removed.
    fn rebuild_index(&mut self) {
        let nodes = &mut self.nodes;
        nodes.shrink_to(nodes.len() + nodes.len() / 4);
        self.known.clear();
        self.known.shrink_to(2 * nodes.len(), |node| hash_of(nodes, *node));
        for node in (1..=nodes.len() as u32).map(Node) {
            self.known.insert_unique(hash_of(nodes, node), node, |node| hash_of(nodes, *node));
        }
    }

    /// Sorts the sequences of all nodes lexicographically, and returns the position of each node, in the order of node
    /// numbers.
    #[must_use]
    pub fn positions(&self) -> Vec<u32>
    where
        T: Ord,
    {
        let mut sizes = vec![1_u32; self.nodes.len() + 1];
        let numbered = || self.nodes.iter().enumerate().map(|(index, node)| (index + 1, node));
        // A node comes after its parent.
        for (number, (parent, _)) in numbered().rev() {
            sizes[parent.0 as usize] += sizes[number];
        }
        let mut siblings: Vec<_> = numbered().map(|(number, &(parent, item))| (parent, item, number)).collect();
        siblings.sort_unstable_by_key(|&(parent, item, _)| (parent, item));
        let mut positions = vec![0; self.nodes.len() + 1];
        // Position of the next child of each node: after the node, its earlier children, and all nodes below these
        // children.
        let mut next = vec![1; self.nodes.len() + 1];
        for (parent, _, number) in siblings {
            positions[number] = next[parent.0 as usize];
            next[parent.0 as usize] += sizes[number];
            next[number] = positions[number] + 1;
        }
        positions
    }

    /// Returns the parent of a node, and the item of the node; `None` for the root.
    #[must_use]
    pub fn get(&self, node: Node) -> Option<(Node, T)> {
        self.nodes.get(node.index()?).copied()
    }

    /// Iterates over the items of a node's sequence, from the last to the first.
    pub fn to_root(&self, node: Node) -> impl Iterator<Item = T> + '_ {
        std::iter::successors(self.get(node), |(parent, _)| self.get(*parent)).map(|(_, item)| item)
    }

    /// Returns the number of nodes without the root.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true if the root is the only node.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shared_prefixes_are_stored_once(
            sequences in prop::collection::vec(prop::collection::vec(0_u8..4, 0..6), 0..40),
        ) {
            let mut tree = Tree::default();
            let push = |tree: &mut Tree<u8>, sequence: &Vec<u8>| {
                sequence.iter().fold(Node::ROOT, |node, &item| tree.push(node, item).unwrap())
            };
            let nodes: Vec<_> = sequences.iter().map(|sequence| push(&mut tree, sequence)).collect();
            for (sequence, &node) in sequences.iter().zip(&nodes) {
                let mut kept: Vec<_> = tree.to_root(node).collect();
                kept.reverse();
                prop_assert_eq!(&kept, sequence);
            }
            let positions = tree.positions();
            let mut in_order: Vec<_> = sequences.iter().zip(nodes.iter().map(|node| positions[node.number() as usize])).collect();
            in_order.sort_unstable();
            prop_assert!(in_order.is_sorted_by_key(|&(_, position)| position));
            let mut distinct = positions;
            distinct.sort_unstable();
            prop_assert!(distinct.into_iter().eq(0..=tree.len() as u32));
            let mut beginnings: Vec<_> = sequences.iter().flat_map(|sequence| (1..=sequence.len()).map(|end| &sequence[..end])).collect();
            beginnings.sort_unstable();
            beginnings.dedup();
            prop_assert_eq!(tree.len(), beginnings.len());

            let mut smaller = tree.clone();
            let half = &nodes[..nodes.len() / 2];
            let kept = smaller.retain(half.iter().copied(), |item| item + 10);
            for &node in half {
                let renamed: Vec<_> = tree.to_root(node).map(|item| item + 10).collect();
                prop_assert_eq!(smaller.to_root(kept.of(node)).collect::<Vec<_>>(), renamed);
            }
            let mut beginnings: Vec<_> = sequences[..half.len()].iter().flat_map(|sequence| (1..=sequence.len()).map(|end| &sequence[..end])).collect();
            beginnings.sort_unstable();
            beginnings.dedup();
            prop_assert_eq!(smaller.len(), beginnings.len());
            let mut in_order = half.to_vec();
            in_order.sort_unstable();
            prop_assert!(in_order.iter().map(|&node| kept.of(node)).is_sorted());

            let mut other = Tree::default();
            push(&mut other, &vec![3, 2]);
            let merged = other.merge(&tree);
            for &node in &nodes {
                prop_assert!(other.to_root(merged.of(node)).eq(tree.to_root(node)));
            }
        }
    }
}
