//! A profile's stacks as lines of text, root to leaf.

use super::roots::Roots;
use super::{Options, label};
use crate::model::{Frame, Profile};

/// How stacks are spelt.
pub(super) struct Spelling {
    /// What stands between two entries.
    pub(super) separator: char,
    /// One frame.
    pub(super) frame: fn(&Frame) -> String,
}

/// A line a distinct stack with its value, ordered by the text of the stack; stacks without a value are left out.
pub(super) fn fold(profile: &Profile, options: &Options, spelling: &Spelling) -> Vec<(String, u64)> {
    let roots = Roots::of(profile, options.by);
    let labels: Vec<_> = roots.all().iter().map(|root| label::entry(&root.label)).collect();
    let frames: Vec<_> = profile.frames.iter().map(|frame| label::entry(&(spelling.frame)(frame))).collect();

    let mut lines = Vec::with_capacity(profile.stacks.len());
    for (index, stack) in profile.stacks.iter().enumerate() {
        let value = options.metric.of(stack);
        if value == 0 {
            continue;
        }
        let mut line = labels[roots.of_stack(index)].clone();
        for frame in &stack.frames {
            line.push(spelling.separator);
            line.push_str(&frames[frame.0]);
        }
        if stack.frames.is_empty() {
            line.push(spelling.separator);
            line.push_str(label::no_frames(stack.end));
        }
        disarm(&mut line);
        lines.push((line, value));
    }
    lines.sort_unstable();
    lines.dedup_by(|later, first| {
        let equal = later.0 == first.0;
        if equal {
            first.1 = first.1.saturating_add(later.1);
        }
        equal
    });
    lines
}

/// Takes from a stack what its readers would misunderstand: a beginning that makes it a comment, and an end that makes
/// it carry a number of its own (inferno 0.12, `flamegraph::from_lines` and `merge::rfind_samples`).
fn disarm(line: &mut String) {
    if line.starts_with("# ") {
        line.replace_range(1..2, "_");
    }
    if let Some(space) = line.rfind(' ')
        && line[space + 1..].bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        line.replace_range(space..=space, "_");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_can_be_neither_a_comment_nor_carry_a_number_of_its_own() {
        let disarmed = |line: &str| {
            let mut line = String::from(line);
            disarm(&mut line);
            line
        };
        assert_eq!(disarmed("# sh;main"), "#_sh;main");
        assert_eq!(disarmed("sh;main 7"), "sh;main_7");
        assert_eq!(disarmed("sh;main 7.5"), "sh;main_7.5");
        assert_eq!(disarmed("sh 2;main (7)"), "sh 2;main (7)");
    }
}
