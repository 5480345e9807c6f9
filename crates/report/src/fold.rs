//! Folded stacks: one line for each stack, the outermost frame first.

mod pruning;
mod sums;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use memtrace_model::{Frame, Profile};
use rustc_hash::FxHashMap;

pub(super) use self::pruning::Pruning;
use self::sums::{Entries, Path, Sum};
use crate::escape;
use crate::estimate::Samples;
use crate::groups::Groups;
use crate::metrics::MetricView;
use crate::options::Options;

/// Options of [`fold`]: the texts of folded stacks, and the bounds of a picture.
pub(super) struct Spelling {
    /// Separator between the entries of a stack.
    pub(super) separator: char,
    /// Returns the text of a frame.
    pub(super) frame: fn(&Frame) -> String,
    /// Bounds of the picture; `None` to keep all stacks.
    pub(super) pruning: Option<Pruning>,
}

/// Distinct stacks with their values, ordered by text. Stacks with the value 0 are left out.
///
/// The text of a stack can take more than a kilobyte, and there can be hundreds of thousands of stacks. So a text is
/// made only when it is written.
pub(super) struct Fold {
    separator: char,
    entries: Entries,
    stacks: Vec<(Path, Sum)>,
}

/// Returns the folded stacks of `profile`.
pub(super) fn fold(profile: &Profile, options: &Options, spelling: &Spelling) -> Fold {
    let view = MetricView::new(profile, options.metric);
    let roots = Groups::of(profile, options.by);
    let mut entries = Entries::default();
    let mut numbered = |text: &str| entries.number(escape::folded_entry(text));
    let of_roots: Vec<_> = roots.all().iter().map(|root| numbered(&disarmed_root(&root.label))).collect();
    let of_frames: Vec<_> = profile.frames.iter().map(|frame| numbered(&(spelling.frame)(frame))).collect();

    let mut stacks: FxHashMap<Path, Sum> = FxHashMap::default();
    // Sums of merged stacks, by the entries that the merged stacks have in common.
    let mut others: BTreeMap<Path, Sum> = BTreeMap::new();
    for (index, stack) in profile.stacks.iter().enumerate() {
        let value = view.value(&stack.usage);
        if value == 0 {
            continue;
        }
        let sum = Sum { value, stacks: stack.merged().max(1), samples: view.samples(&stack.usage) };
        let mut path = Vec::with_capacity(stack.frames.len() + 2);
        path.push(of_roots[roots.of_stack(index)]);
        if stack.merged() > 0 {
            others.entry(path.into()).or_default().add(sum);
            continue;
        }
        path.extend(stack.frames.iter().map(|frame| of_frames[frame.index()]));
        if stack.frames.is_empty() {
            path.push(entries.number(String::from(escape::missing_frames(stack.end))));
        }
        disarm_leaf(&mut path, &mut entries);
        stacks.entry(path.into()).or_default().add(sum);
    }
    let mut stacks: Vec<_> = stacks.into_iter().collect();
    if let Some(pruning) = spelling.pruning {
        stacks = pruning::prune(stacks, &mut others, &entries, pruning);
    }
    stacks.extend(others.into_iter().map(|(path, sum)| {
        let entry = entries.number(escape::other_stacks(sum.stacks));
        (path.iter().copied().chain([entry]).collect(), sum)
    }));
    let separator = spelling.separator;
    stacks.sort_unstable_by(|(one, _), (other, _)| in_text(&entries, separator, one, other));
    Fold { separator, entries, stacks }
}

impl Fold {
    /// Iterates over the stacks, each as its text and its value.
    pub(super) fn lines(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        self.stacks.iter().map(|(path, sum)| (self.text(path), sum.value))
    }

    /// Iterates over the samples of the stacks, in the order of [`Self::lines`].
    pub(super) fn samples(&self) -> impl Iterator<Item = Samples> + '_ {
        self.stacks.iter().map(|(_, sum)| sum.samples)
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

/// Compares two stacks by the bytes of their texts.
fn in_text(entries: &Entries, separator: char, one: &[u32], other: &[u32]) -> Ordering {
    let shared = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let mut bytes = [0; 4];
    let separator = separator.encode_utf8(&mut bytes);
    joined(entries, separator, &one[shared..]).cmp(joined(entries, separator, &other[shared..]))
}

/// Iterates over the bytes of the entries of `path`, with separators between the entries.
fn joined<'a>(entries: &'a Entries, separator: &'a str, path: &'a [u32]) -> impl Iterator<Item = u8> + 'a {
    let parts = path.iter().flat_map(move |&entry| [separator, entries.text(entry)]);
    // No separator precedes the first entry.
    parts.skip(1).flat_map(str::bytes)
}

/// Escapes a leading `# `, which inferno would take for a comment (inferno 0.12, `flamegraph::from_lines`).
fn disarmed_root(name: &str) -> Cow<'_, str> {
    let visible = escape::visible(name);
    if visible.starts_with("# ") { Cow::Owned(visible.replacen(' ', "_", 1)) } else { Cow::Borrowed(name) }
}

/// Escapes a trailing number, which inferno would take for a value (inferno 0.12, `merge::rfind_samples`).
fn disarm_leaf(path: &mut [u32], entries: &mut Entries) {
    // inferno looks for a number after the last blank. If that blank is in an entry before the leaf, the text after it
    // contains a separator, so it is no number.
    if let [.., leaf] = path
        && let Some((name, number)) = entries.text(*leaf).rsplit_once(' ')
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        *leaf = entries.number(format!("{name}_{number}"));
    }
}

/// Returns the folded stacks of two profiles, ordered by text. Each stack has a value for each profile.
pub(super) fn fold_pair(profiles: [&Profile; 2], options: &Options, separator: char) -> BTreeMap<String, [u64; 2]> {
    let spelling = Spelling { separator, frame: Frame::label, pruning: None };
    let mut pairs: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (side, profile) in profiles.into_iter().enumerate() {
        for (stack, value) in fold(profile, options, &spelling).lines() {
            pairs.entry(stack).or_default()[side] = value;
        }
    }
    pairs
}

#[cfg(test)]
mod tests;
