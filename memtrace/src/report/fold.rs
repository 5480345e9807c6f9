//! Folded stacks: one line per stack, the outermost frame first.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;

use crate::model::{Frame, Node, Profile, Tree};
use crate::report::escape;
use crate::report::groups::Groups;
use crate::report::options::Options;

/// Spelling of folded stacks.
pub(super) struct Spelling {
    /// Separator of entries.
    pub(super) separator: char,
    /// Formats a frame.
    pub(super) frame: fn(&Frame) -> String,
}

/// Distinct stacks with their values, ordered by their text, without zero values.
///
/// The text of a stack takes a kilobyte and more, for hundreds of thousands of stacks, so it is made only when it is
/// written.
pub(super) struct Fold {
    separator: char,
    entries: Entries,
    /// Entries of each stack, the outermost first, with its value.
    stacks: Vec<(Box<[u32]>, u64)>,
}

/// Texts of entries, each once, by number.
#[derive(Default)]
struct Entries {
    texts: Vec<String>,
    known: FxHashMap<String, u32>,
}

impl Entries {
    fn number(&mut self, text: String) -> u32 {
        // There are far fewer than 2^32.
        let next = self.texts.len() as u32;
        *self.known.entry(text).or_insert_with_key(|text| {
            self.texts.push(text.clone());
            next
        })
    }

    fn text(&self, entry: u32) -> &str {
        &self.texts[entry as usize]
    }
}

/// Returns the folded stacks of `profile`.
pub(super) fn fold(profile: &Profile, options: &Options, spelling: &Spelling) -> Fold {
    let roots = Groups::of(profile, options.by);
    let mut entries = Entries::default();
    let mut numbered = |text: &str| entries.number(escape::folded_entry(text));
    let of_roots: Vec<_> = roots.all().iter().map(|root| numbered(&root.label)).collect();
    let of_frames: Vec<_> = profile.frames.iter().map(|frame| numbered(&(spelling.frame)(frame))).collect();

    let mut values: FxHashMap<Box<[u32]>, u64> = FxHashMap::default();
    for (index, stack) in profile.stacks.iter().enumerate() {
        let value = stack.value(options.metric);
        if value == 0 {
            continue;
        }
        let mut path = Vec::with_capacity(stack.frames.len() + 2);
        path.push(of_roots[roots.of_stack(index)]);
        path.extend(stack.frames.iter().map(|frame| of_frames[frame.index()]));
        if stack.frames.is_empty() {
            path.push(entries.number(String::from(escape::missing_frames(stack.end))));
        }
        disarm(&mut path, &mut entries);
        let sum = values.entry(path.into()).or_default();
        *sum = sum.saturating_add(value);
    }
    let separator = spelling.separator;
    let mut stacks: Vec<_> = values.into_iter().collect();
    stacks.sort_unstable_by(|(one, _), (other, _)| in_text(&entries, separator, one, other));
    Fold { separator, entries, stacks }
}

impl Fold {
    /// Iterates over lines and values.
    pub(super) fn lines(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        self.stacks.iter().map(|(path, value)| (self.text(path), *value))
    }

    /// Like [`Fold::lines`], for a picture that omits entries narrower than 1/`parts` of its width: the callees of
    /// such an entry are left out.
    pub(super) fn drawn(self, parts: u64) -> Vec<(String, u64)> {
        let mut tree = Tree::default();
        let mut sums: Vec<u64> = Vec::new();
        let mut nodes = Vec::new();
        let mut all: u64 = 0;
        for (path, value) in &self.stacks {
            all = all.saturating_add(*value);
            let mut node = Node::ROOT;
            for &entry in path {
                // There always is a node: nodes are fewer than the frames of all stacks.
                node = tree.push(node, entry).unwrap_or(node);
                sums.resize(tree.len(), 0);
                if let Some(index) = node.index() {
                    sums[index] = sums[index].saturating_add(*value);
                }
            }
            nodes.push(node);
        }
        let narrow = |sum: u64| u128::from(sum) * u128::from(parts) < u128::from(all);
        let mut lines: Vec<(String, u64)> = Vec::new();
        let mut last = None;
        for ((path, value), &leaf) in self.stacks.iter().zip(&nodes) {
            let mut widths = Vec::with_capacity(path.len());
            let mut node = leaf;
            while let (Some(index), Some((parent, _))) = (node.index(), tree.get(node)) {
                widths.push((node, sums[index]));
                node = parent;
            }
            widths.reverse();
            let length = widths.iter().position(|&(_, sum)| narrow(sum)).map_or(path.len(), |narrow| narrow + 1);
            let end = widths.get(length - 1).map(|&(node, _)| node);
            match lines.last_mut().filter(|_| last == end) {
                Some((_, sum)) => *sum = sum.saturating_add(*value),
                None => lines.push((self.text(&path[..length]), *value)),
            }
            last = end;
        }
        lines
    }

    fn text(&self, path: &[u32]) -> String {
        let mut text = String::new();
        for (place, &entry) in path.iter().enumerate() {
            if place > 0 {
                text.push(self.separator);
            }
            text.push_str(self.entries.text(entry));
        }
        text
    }
}

/// Compares the texts of two stacks.
fn in_text(entries: &Entries, separator: char, one: &[u32], other: &[u32]) -> Ordering {
    let shared = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let mut bytes = [0; 4];
    let separator = separator.encode_utf8(&mut bytes);
    joined(entries, separator, &one[shared..]).cmp(joined(entries, separator, &other[shared..]))
}

/// Iterates over the bytes of the text of these entries.
fn joined<'a>(entries: &'a Entries, separator: &'a str, path: &'a [u32]) -> impl Iterator<Item = u8> + 'a {
    let parts = path.iter().flat_map(move |&entry| [separator, entries.text(entry)]);
    // Before the first entry there is none.
    parts.skip(1).flat_map(str::bytes)
}

/// Escapes entries that inferno would misparse: a leading `#` makes a line a comment, and a trailing number is taken
/// for a value (inferno 0.12, `flamegraph::from_lines` and `merge::rfind_samples`).
fn disarm(path: &mut [u32], entries: &mut Entries) {
    if let [root, ..] = path
        && entries.text(*root).starts_with("# ")
    {
        *root = entries.number(entries.text(*root).replacen(' ', "_", 1));
    }
    // Without a blank in the entry there is no such number: the separator before it is no digit.
    if let [.., leaf] = path
        && let Some((name, number)) = entries.text(*leaf).rsplit_once(' ')
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        *leaf = entries.number(format!("{name}_{number}"));
    }
}

#[cfg(test)]
mod tests;
