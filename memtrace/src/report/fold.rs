//! A profile's stacks as lines of text, root to leaf.

use super::label;
use crate::model::{Frame, Metric, ProcessProfile, Profile};

/// How stacks are spelt.
pub(super) struct Spelling {
    /// What stands between two entries.
    pub(super) separator: char,
    /// The process, which is the root of its stacks.
    pub(super) process: fn(&ProcessProfile) -> String,
    /// One frame.
    pub(super) frame: fn(&Frame) -> String,
}

/// A line a distinct stack with its value, ordered by the text of the stack; stacks without a value are left out.
pub(super) fn fold(profile: &Profile, metric: Metric, spelling: &Spelling) -> Vec<(String, u64)> {
    let processes: Vec<_> =
        profile.processes.iter().map(|process| label::entry(&(spelling.process)(process))).collect();
    let frames: Vec<_> = profile.frames.iter().map(|frame| label::entry(&(spelling.frame)(frame))).collect();

    let mut lines = Vec::with_capacity(profile.stacks.len());
    for stack in &profile.stacks {
        let value = metric.of(stack);
        if value == 0 {
            continue;
        }
        let mut line = processes[stack.process].clone();
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
