//! Tags by rule: names of stacks by the functions, objects and source files of their frames, and by the names of their
//! threads. `docs/guide/tags.md` documents the file of rules. Pure.

mod rules;

use std::collections::BTreeMap;

pub(crate) use self::rules::TagRules;

use self::rules::Rule;
use crate::model::{LabelId, Partition, ProcessProfile, Profile, StackProfile, Tid};

impl TagRules {
    /// Sets the label of each stack with frames or a thread that a rule matches to the tag of the rule.
    ///
    /// Frames are tested from the innermost one on, each with the rules in the order of the file; the first match counts.
    /// Rules without conditions on frames apply to the stacks that no other rule matches.
    pub(crate) fn label(&self, profile: &mut Profile) {
        let mut labels = Labels::default();
        let labels_of_rules: Vec<LabelId> = self.rules().iter().map(|rule| labels.number(&rule.name)).collect();
        // Frames and threads are few compared with stacks.
        let of_frames: Vec<Vec<usize>> =
            profile.frames.iter().map(|frame| self.matching(|rule| rule.has_frame(frame))).collect();
        let mut of_threads: BTreeMap<(usize, Partition), Vec<bool>> = BTreeMap::new();
        for stack in &mut profile.stacks {
            let process = &profile.processes[stack.process];
            let allowed = of_threads.entry((stack.process, stack.part)).or_insert_with(|| {
                let name = thread_name(process, stack.part);
                self.rules().iter().map(|rule| rule.has_thread(name)).collect()
            });
            stack.label = self.first_match(stack, &of_frames, allowed).map(|rule| labels_of_rules[rule]);
        }
        profile.labels = labels.names;
    }

    /// Returns the indices of the rules with conditions on frames that `matches` selects.
    fn matching(&self, matches: impl Fn(&Rule) -> bool) -> Vec<usize> {
        let rules = self.rules().iter().enumerate();
        rules.filter(|(_, rule)| rule.tests_frames() && matches(rule)).map(|(index, _)| index).collect()
    }

    /// Returns the index of the rule of a stack. `of_frames` has the rules that match each frame, `allowed` is true for the
    /// rules that match the thread.
    fn first_match(&self, stack: &StackProfile, of_frames: &[Vec<usize>], allowed: &[bool]) -> Option<usize> {
        let mut innermost_first = stack.frames.iter().rev().flat_map(|frame| &of_frames[frame.index()]).copied();
        let by_frame = innermost_first.find(|&rule| allowed[rule]);
        by_frame.or_else(|| {
            let mut rules = self.rules().iter().zip(allowed);
            rules.position(|(rule, &is_allowed)| is_allowed && !rule.tests_frames())
        })
    }
}

/// Returns the name of the thread of a part of a process; `None` if threads are not distinguished.
fn thread_name(process: &ProcessProfile, part: Partition) -> Option<&str> {
    let Partition::Thread(tid) = part else { return None };
    match process.thread_names.get(&tid) {
        Some(name) => Some(name),
        // The first thread has the name of the process.
        None => (tid == Tid(process.pid.0)).then(|| process.comm.raw()),
    }
}

/// Distinct labels.
#[derive(Default)]
struct Labels {
    names: Vec<String>,
}

impl Labels {
    fn number(&mut self, name: &str) -> LabelId {
        let known = self.names.iter().position(|known| known == name);
        LabelId::new(known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        }))
    }
}

#[cfg(test)]
mod tests;
