//! A profile's stacks as lines of text, root to leaf.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;

use crate::model::{Frame, Node, Profile, Tree};
use crate::report::escape;
use crate::report::groups::Roots;
use crate::report::options::Options;

/// How stacks are spelt.
pub(super) struct Spelling {
    /// What stands between two entries.
    pub(super) separator: char,
    /// One frame.
    pub(super) frame: fn(&Frame) -> String,
}

/// The distinct stacks with their values, ordered by their text; those without a value are left out.
///
/// The text of one stack takes a kilobyte and more, and there are hundreds of thousands of them: it is made when it is
/// written.
pub(super) struct Fold {
    separator: char,
    entries: Entries,
    /// The entries of each stack, root to leaf, and its value.
    stacks: Vec<(Box<[u32]>, u64)>,
}

/// The texts of entries, each once, by their number.
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

/// The stacks of `profile`, spelt so.
pub(super) fn fold(profile: &Profile, options: &Options, spelling: &Spelling) -> Fold {
    let roots = Roots::of(profile, options.by);
    let mut entries = Entries::default();
    let mut numbered = |text: &str| entries.number(escape::entry(text));
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
            path.push(entries.number(String::from(escape::no_frames(stack.end))));
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
    /// A line a stack, with its value.
    pub(super) fn lines(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        self.stacks.iter().map(|(path, value)| (self.text(path), *value))
    }

    /// As [`Fold::lines`], for a picture in which entries narrower than one part in `parts` of its width are not drawn: where
    /// one of these is, what it calls is left out.
    pub(super) fn drawn(self, parts: u64) -> Vec<(String, u64)> {
        let mut tree = Tree::default();
        let mut sums: Vec<u64> = Vec::new();
        let mut nodes = Vec::new();
        let mut all: u64 = 0;
        for (path, value) in &self.stacks {
            all = all.saturating_add(*value);
            let mut node = Node::ROOT;
            for &entry in path {
                // Never without a node: they are fewer than the frames of all stacks.
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

/// The order of two stacks' texts.
fn in_text(entries: &Entries, separator: char, one: &[u32], other: &[u32]) -> Ordering {
    let shared = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let mut bytes = [0; 4];
    let separator = separator.encode_utf8(&mut bytes);
    joined(entries, separator, &one[shared..]).cmp(joined(entries, separator, &other[shared..]))
}

/// The bytes of a text made of these entries.
fn joined<'a>(entries: &'a Entries, separator: &'a str, path: &'a [u32]) -> impl Iterator<Item = u8> + 'a {
    let parts = path.iter().flat_map(move |&entry| [separator, entries.text(entry)]);
    // Before the first entry there is none.
    parts.skip(1).flat_map(str::bytes)
}

/// Takes from a stack what its readers would misunderstand: a beginning that makes it a comment, and an end that makes
/// it carry a number of its own (inferno 0.12, `flamegraph::from_lines` and `merge::rfind_samples`).
fn disarm(path: &mut [u32], entries: &mut Entries) {
    if let [root, ..] = path
        && entries.text(*root).starts_with("# ")
    {
        *root = entries.number(entries.text(*root).replacen(' ', "_", 1));
    }
    // An entry without a blank carries none, whatever is before it: what parts the two is no digit.
    if let [.., leaf] = path
        && let Some((name, number)) = entries.text(*leaf).rsplit_once(' ')
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        *leaf = entries.number(format!("{name}_{number}"));
    }
}

#[cfg(test)]
mod tests;
