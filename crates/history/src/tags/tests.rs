use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use memtrace_model::{Frame, FrameId, Location, Name, ObjectName, Pid, StackEnd};

use super::rules::RuleError;
use super::*;

/// Frame of a function in an object and a source file.
fn frame(function: &str, object: &str, source: &str) -> Frame {
    Frame {
        object: Some(ObjectName { path: PathBuf::from(object), build_id: None }),
        location: Some(Location { file: PathBuf::from(source), line: Some(7) }),
        ..Frame::new(Ok(Name(function.to_owned())))
    }
}

/// Returns the profile of one process with two threads. A stack is a thread ID (0 for none) and the indices of its frames, the
/// outermost first.
fn profile(stacks: &[(u32, &[usize])]) -> Profile {
    let frames = vec![
        frame("main", "/bin/server", "src/main.c"),
        frame("server::sessions::Table::insert", "/bin/server", "src/sessions/table.cc"),
        frame("xmlParse{closure#0}", "/usr/lib/libxml2.so.2", "parser.c"),
        Frame::new(Ok(Name(String::from("jit_code")))),
    ];
    let process = ProcessProfile {
        thread_names: BTreeMap::from([(Tid(8), String::from("worker-1"))]),
        ..ProcessProfile::new(Pid(7), "server")
    };
    let stacks = stacks.iter().map(|&(tid, calls)| {
        let calls: Arc<[FrameId]> = calls.iter().map(|&call| FrameId::new(call)).collect();
        let part = if tid == 0 { Part::WHOLE } else { Part::WHOLE.with_thread(Tid(tid)) };
        StackProfile::new(0, part, calls, StackEnd::Complete)
    });
    Profile { stacks: stacks.collect(), frames, processes: vec![process], ..Profile::default() }
}

/// Returns the tag that `rules` give to each of `stacks`; see [`profile`].
fn tags(rules: &str, stacks: &[(u32, &[usize])]) -> Vec<Option<String>> {
    let StackLabels { of_stacks, names } = labels(&profile(stacks), Some(&TagRules::parse(rules).unwrap()));
    of_stacks.into_iter().map(|label| label.map(|label| names[label.index()].clone())).collect()
}

fn some(tags: &[&str]) -> Vec<Option<String>> {
    tags.iter().map(|tag| (!tag.is_empty()).then(|| (*tag).to_owned())).collect()
}

#[test]
fn the_innermost_frame_with_a_rule_decides() {
    let rules = "
        [[rule]]
        tag = 'sessions'
        function = 'server::sessions::*'
        [[rule]]
        tag = 'xml'
        object = 'libxml2.so*'
        [[rule]]
        tag = 'start'
        source = 'src/main.?'";
    let stacks: &[(u32, &[usize])] = &[(0, &[0, 1, 2]), (0, &[0, 2, 1]), (0, &[0]), (0, &[3]), (0, &[])];
    assert_eq!(tags(rules, stacks), some(&["xml", "sessions", "start", "", ""]));
}

#[test]
fn the_first_rule_of_a_frame_decides() {
    let rules = "
        [[rule]]
        tag = 'parser'
        function = 'xmlParse{closure#0}'
        [[rule]]
        tag = 'xml'
        object = '*/libxml2.so*'";
    assert_eq!(tags(rules, &[(0, &[2])]), some(&["parser"]));
}

#[test]
fn one_frame_has_to_meet_all_conditions() {
    let rules = "
        [[rule]]
        tag = 'both'
        function = 'main'
        object = 'libxml2.so*'";
    assert_eq!(tags(rules, &[(0, &[0, 2])]), some(&[""]));
}

#[test]
fn rules_for_threads_apply_to_the_rest() {
    let rules = "
        [[rule]]
        tag = 'workers'
        thread = 'worker-*'
        [[rule]]
        tag = 'xml of the main thread'
        object = 'libxml2.so*'
        thread = 'server'
        [[rule]]
        tag = 'sessions'
        function = '*::sessions::*'";
    let stacks: &[(u32, &[usize])] = &[(8, &[0, 1]), (8, &[0, 2]), (7, &[0, 2]), (7, &[0]), (0, &[0, 2])];
    assert_eq!(tags(rules, stacks), some(&["sessions", "workers", "xml of the main thread", "", ""]));
}

#[test]
fn rules_with_the_same_tag_have_one_label() {
    let rules = "
        [[rule]]
        tag = 'a'
        function = 'main'
        [[rule]]
        tag = 'a'
        function = 'jit*'";
    let profile = profile(&[(0, &[0]), (0, &[3])]);
    let labels = labels(&profile, Some(&TagRules::parse(rules).unwrap()));
    assert_eq!(labels, StackLabels { of_stacks: vec![Some(LabelId::new(0)); 2], names: vec![String::from("a")] });
}

#[test]
fn unusable_rules_are_refused() {
    let error = |text: &str| TagRules::parse(text).unwrap_err();
    assert_eq!(error(""), RuleError::NoRules);
    assert_eq!(error("[[rule]]\ntag = 'a'"), RuleError::NoCondition(String::from("a")));
    assert_eq!(error("[[rule]]\ntag = ''\nfunction = 'f'"), RuleError::EmptyTag);
    for (text, part) in [
        ("[[rule]]\ntag = 'a'\nfunctions = 'f'", "functions"),
        ("[[rule]]\nfunction = 'f'", "tag"),
        ("[[rule]]\ntag = 1\nfunction = 'f'", "line 2"),
        ("[[rules]]\ntag = 'a'", "rules"),
        ("tag", "line 1"),
    ] {
        let RuleError::Syntax(message) = error(text) else { unreachable!("{text}") };
        assert!(message.contains(part), "{text}: {message}");
    }
    let many = "[[rule]]\ntag = 'a'\nfunction = 'f'\n".repeat(1001);
    assert_eq!(error(&many), RuleError::TooMany(1001));
}
