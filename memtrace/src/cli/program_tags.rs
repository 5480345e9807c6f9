//! Tags that the program sets: the functions of `--tag-from`, and those of `--hook` with a tag.

use memtrace_history::tags::TagRules;

use super::args::TraceArgs;
use super::conflict::ArgConflict;
use super::tag_functions::TagFrom;
use crate::trace::config::{ProbesOf, TagFunction};

/// Returns true if blocks have the tags that the program sets.
pub(super) fn are_given(args: &TraceArgs) -> bool {
    !args.tag_from.is_empty() || args.hooks.iter().any(|hooks| !hooks.tags.is_empty())
}

/// Returns the functions and the probes that change the current tag.
pub(super) fn take(args: &mut TraceArgs) -> Result<(Vec<TagFunction>, Vec<ProbesOf>), ArgConflict> {
    let (mut functions, mut probes) = (Vec::new(), Vec::new());
    for from in std::mem::take(&mut args.tag_from) {
        match from {
            TagFrom::Functions(of_threads) => functions.extend(of_threads),
            TagFrom::Probes(object) => probes.push(object),
        }
    }
    functions.extend(args.hooks.iter_mut().flat_map(|hooks| std::mem::take(&mut hooks.tags)));
    let has_target = !args.target.pids.is_empty() || !args.target.command.is_empty();
    if let Some(function) = functions.iter().find(|function| function.object.is_none() && !has_target) {
        return Err(ArgConflict::new(
            format!("no file is given for the tags of {}, and no process", function.name),
            "give its file, as in --tag-from 'set=/usr/bin/server:set_module(id=arg0)'; for a tag of --hook, give --pid or a command",
        ));
    }
    if !has_target && probes.iter().any(|probes| probes.object.is_none()) {
        return Err(ArgConflict::new(
            "no file is given for the probes with tags, and no process",
            "give the file with the probes, as in --tag-from /usr/bin/server:probes",
        ));
    }
    Ok((functions, probes))
}

/// Returns the error for rules that only name tags by number, if the program sets none.
pub(super) fn missing() -> ArgConflict {
    ArgConflict::new(
        "the rules only name tags by number, but the program sets none",
        "give the functions that set them, as in --tag-from 'set=set_module(id=arg0)', or other rules",
    )
}

/// Checks that `by` and the rules can be combined with such tags.
pub(super) fn check(args: &TraceArgs, is_by_tag: bool, by: &str, rules: Option<&TagRules>) -> Result<(), ArgConflict> {
    if !is_by_tag && args.by.len() < 2 {
        return Err(ArgConflict::new(
            format!("tags of the program are given with --by {by}"),
            "remove one of them; --tag-from, and a tag of --hook, group by tag",
        ));
    }
    if rules.is_some_and(TagRules::tests_threads) {
        return Err(ArgConflict::new(
            "the rules for tags name threads, which are not distinguished with --tag-from",
            "remove `thread` from the rules",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use memtrace_model::{GroupBy, PartKeys};

    use super::super::args::Arguments;
    use super::super::resolve;

    fn resolved(line: &[&str]) -> Result<(GroupBy, PartKeys, usize), String> {
        let arguments = Arguments::try_parse_from(["memtrace"].iter().chain(line)).expect("each argument is valid");
        let config = resolve::config(arguments.trace).map_err(|conflict| conflict.message)?;
        Ok((config.grouping.by, config.parts(), config.tag_functions.len()))
    }

    #[test]
    fn functions_imply_the_key() {
        let set = "set=/bin/a:f(id=arg0)";
        assert_eq!(resolved(&["--all", "--tag-from", set]), Ok((GroupBy::Tag, PartKeys::TAG, 1)));
        let hook = "alloc=take(size=arg0,tag=arg1)->ret,free=give(arg0)";
        let both = ["--pid", "7", "--hook", hook, "--by", "tag", "--tag-from", "get=g->ret"];
        assert_eq!(resolved(&both), Ok((GroupBy::Tag, PartKeys::TAG, 2)));
        let refused = |line: &[&str]| resolved(line).expect_err("a conflict");
        assert!(refused(&["--all", "--hook", hook]).contains("no file is given for the tags of take"));
        assert!(refused(&["--all", "--tag-from", set, "--by", "user"]).contains("given with --by user"));
        assert!(refused(&["--pid", "7", "--by", "tag"]).contains("needs rules for tags, or functions"));
        assert!(refused(&["--pid", "7", "--tag-from", set, "--events", "fault"]).contains("--tag-from"));
    }
}
