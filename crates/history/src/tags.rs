//! Tags of stacks: tags that targets set, and tags by rule. A rule tests the functions, objects and source files of
//! the frames, and the names of threads. `docs/guide/tags.md` documents the file of rules. Pure.

mod rules;

use std::collections::{BTreeMap, HashMap};

use memtrace_model::{
    LabelId, Part, ProcessProfile, Profile, StackLabels, StackProfile, TagFormat, TagId, TagName, Tid,
};

pub use self::rules::TagRules;

use self::rules::Rule;

/// Returns the name of a tag that a target has set. `rules` can name tags that are numbers. `format` formats other numbers.
pub fn name(tag: &TagName, rules: Option<&TagRules>, format: Option<TagFormat>) -> String {
    let by_rule = match (tag, rules) {
        (TagName::Number(number), Some(rules)) => rules.name_of(*number),
        _ => None,
    };
    by_rule.map_or_else(|| tag.text(format), str::to_owned)
}

/// Returns the label of each stack: its tag. A tag that the target has set takes precedence over tags by rule.
pub fn labels(profile: &Profile, rules: Option<&TagRules>) -> StackLabels {
    let mut labels = Labels::default();
    let format = profile.run.tag_format;
    let of_programs: BTreeMap<TagId, LabelId> =
        profile.run.tags.iter().map(|(id, tag)| (*id, labels.number(&name(tag, rules, format)))).collect();
    let mut of_stacks = match rules {
        Some(rules) => rules.labels(profile, &mut labels),
        None => vec![None; profile.stacks.len()],
    };
    for (label, stack) in of_stacks.iter_mut().zip(&profile.stacks) {
        if let Some(id) = stack.part.tag().filter(|id| *id != TagId::UNTAGGED) {
            // An incomplete recording has no names of tags. Then the label contains the ID of the tag.
            let of_program = of_programs.get(&id).copied();
            *label = Some(of_program.unwrap_or_else(|| labels.number(&format!("tag {}", id.0))));
        }
    }
    StackLabels { of_stacks, names: labels.names }
}

impl TagRules {
    /// Returns the label of each stack: the tag of a rule that matches its frames or its thread.
    ///
    /// Frames are tested from the innermost one on, each with the rules in the order of the file. The first match
    /// counts. Rules without conditions on frames apply to stacks that no other rule matches.
    fn labels(&self, profile: &Profile, labels: &mut Labels) -> Vec<Option<LabelId>> {
        let labels_of_rules: Vec<LabelId> = self.rules().iter().map(|rule| labels.number(&rule.name)).collect();
        // The rules are tested for each frame and thread, because these are few compared with stacks.
        let of_frames: Vec<Vec<usize>> =
            profile.frames.iter().map(|frame| self.matching(|rule| rule.has_frame(frame))).collect();
        let mut of_threads: BTreeMap<(usize, Part), Vec<bool>> = BTreeMap::new();
        let label = |stack: &StackProfile| {
            let process = &profile.processes[stack.process];
            let allowed = of_threads.entry((stack.process, stack.part)).or_insert_with(|| {
                let name = thread_name(process, stack.part);
                self.rules().iter().map(|rule| rule.has_thread(name)).collect()
            });
            self.first_match(stack, &of_frames, allowed).map(|rule| labels_of_rules[rule])
        };
        profile.stacks.iter().map(label).collect()
    }

    /// Returns the indices of the rules that have conditions on frames and that `matches` accepts.
    fn matching(&self, matches: impl Fn(&Rule) -> bool) -> Vec<usize> {
        let rules = self.rules().iter().enumerate();
        rules.filter(|(_, rule)| rule.tests_frames() && matches(rule)).map(|(index, _)| index).collect()
    }

    /// Returns the index of the rule of a stack. `of_frames`: rules that match each frame. `allowed`: true for each
    /// rule that matches the thread.
    fn first_match(&self, stack: &StackProfile, of_frames: &[Vec<usize>], allowed: &[bool]) -> Option<usize> {
        let mut innermost_first = stack.frames.iter().rev().flat_map(|frame| &of_frames[frame.index()]).copied();
        let by_frame = innermost_first.find(|&rule| allowed[rule]);
        by_frame.or_else(|| {
            let mut rules = self.rules().iter().zip(allowed);
            rules.position(|(rule, &is_allowed)| is_allowed && rule.tests_threads_only())
        })
    }
}

/// Returns the name of the thread of a part of a process; `None` if threads are not distinguished.
fn thread_name(process: &ProcessProfile, part: Part) -> Option<&str> {
    let tid = part.thread()?;
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
    by_name: HashMap<String, LabelId>,
}

impl Labels {
    fn number(&mut self, name: &str) -> LabelId {
        *self.by_name.entry(name.to_owned()).or_insert_with(|| {
            self.names.push(name.to_owned());
            LabelId::new(self.names.len() - 1)
        })
    }
}

#[cfg(test)]
mod tests;
