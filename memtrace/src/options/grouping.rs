//! Options of the grouping of stacks: the key, and the file of rules for tags.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use memtrace_history::tags::TagRules;
use memtrace_model::{GroupBy, TagFormat, printable};

use crate::options::conflict::ArgConflict;
use crate::options::headings::OUTPUT;
use crate::options::possible_values;
use crate::run_kit::grouping::Grouping;

/// Maximum size of a file of rules, in bytes. It has a limit because each recording contains the file.
const MAX_FILE: u64 = 1 << 16;

/// The key of groups, and the file of rules for tags.
#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    /// Group stacks by this key [default: process; tag with --tags or --tag-from]
    ///
    /// The key is the root of the flame graph and of folded stacks, and the summary has a table of it. The JSON always
    /// contains the processes. Allocators are recorded only if they are the key, and threads also if rules of --tags
    /// name them. `memtrace accounts` takes several keys, as in --by process,thread.
    #[arg(long, value_name = "KEY", value_delimiter = ',', value_parser = possible_values::group_keys(), help_heading = OUTPUT)]
    pub(crate) by: Vec<GroupBy>,

    /// Group stacks by the tags of the rules in this file
    ///
    /// Each rule of the TOML file has a tag, and patterns for the function, object, source file or thread. A stack has
    /// the tag of its innermost frame that matches a rule. `memtrace report --tags` applies rules to recordings.
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = OUTPUT)]
    pub(crate) tags: Option<PathBuf>,
}

impl GroupArgs {
    /// Returns the grouping of stacks. `program_tags` is true if blocks have tags that the traced process sets; the tags have
    /// the format `tag_format`. `is_recorded` is true if the stacks are recorded.
    pub(crate) fn resolve(
        &self,
        program_tags: bool,
        tag_format: Option<TagFormat>,
        is_recorded: bool,
    ) -> Result<Grouping, ArgConflict> {
        if self.by.len() > 1 {
            return Err(ArgConflict::new(
                "--by has more than one key",
                "give one; `memtrace accounts` groups by two, as in --by process,thread",
            ));
        }
        let (by, tags) = resolve_run(self.tags.as_deref(), self.by.first().copied(), program_tags)?;
        if !program_tags && tags.as_ref().is_some_and(TagRules::only_name_numbers) {
            return Err(ArgConflict::new(
                "the rules only name tags by number, but the program sets none",
                "give the functions that set them, as in --tag-from 'set=set_module(id=arg0)', or other rules",
            ));
        }
        if program_tags {
            check_program_tags(by, tags.as_ref(), is_recorded)?;
        }
        Ok(Grouping { by, tags, program_tags, tag_format })
    }
}

/// Checks that `by` and the rules can be combined with tags that the traced process sets. A recording has the tags too if
/// the stacks are grouped by another key.
fn check_program_tags(by: GroupBy, rules: Option<&TagRules>, is_recorded: bool) -> Result<(), ArgConflict> {
    if !by.is_tag() && !is_recorded {
        return Err(ArgConflict::new(
            format!("tags of the program are given with --by {}", by.name()),
            "remove one of them, because --tag-from, and a tag of --hook, group by tag; or record both: `memtrace record`",
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

/// Returns the key of the groups, and the rules for tags in `file`. `by` is the key that the user has given.
pub(crate) fn resolve_tags(
    file: Option<&Path>,
    by: Option<GroupBy>,
) -> Result<(Option<GroupBy>, Option<TagRules>), ArgConflict> {
    let Some(file) = file else { return Ok((by, None)) };
    match by {
        None | Some(GroupBy::Tag) => Ok((Some(GroupBy::Tag), Some(read(file)?))),
        Some(by) => Err(ArgConflict::new(
            format!("--tags is given with --by {}", by.name()),
            "remove one of them; --tags groups by tag",
        )),
    }
}

/// Returns the key of the groups of a run, and the rules for tags. `has_program_tags` is true if the traced process
/// sets tags.
fn resolve_run(
    file: Option<&Path>,
    by: Option<GroupBy>,
    has_program_tags: bool,
) -> Result<(GroupBy, Option<TagRules>), ArgConflict> {
    let (by, rules) = resolve_tags(file, by)?;
    let has_tags = rules.is_some() || has_program_tags;
    match by {
        None if has_tags => Ok((GroupBy::Tag, rules)),
        Some(GroupBy::Tag) if !has_tags => Err(tags_without_rules()),
        by => Ok((by.unwrap_or_default(), rules)),
    }
}

/// Returns the error for `--by tag` without rules, and without functions that set tags.
pub(crate) fn tags_without_rules() -> ArgConflict {
    ArgConflict::new(
        "--by tag needs rules for tags, or functions that set them",
        "give a file of rules, as in --tags tags.toml, or functions, as in --tag-from 'set=set_module(id=arg0)'",
    )
}

#[expect(clippy::disallowed_methods, reason = "the user names the file")]
fn read(path: &Path) -> Result<TagRules, ArgConflict> {
    let shown = printable(path);
    let cannot_read = |error: std::io::Error| {
        ArgConflict::new(
            format!("cannot read the rules for tags in {shown}: {error}"),
            "give a readable file of UTF-8 text",
        )
    };
    let mut text = Vec::new();
    let mut file = File::open(path).map_err(cannot_read)?.take(MAX_FILE + 1);
    file.read_to_end(&mut text).map_err(cannot_read)?;
    if text.len() as u64 > MAX_FILE {
        return Err(ArgConflict::new(
            format!("the rules for tags in {shown} are too long"),
            "shorten the file to 64KiB",
        ));
    }
    let text = String::from_utf8(text).map_err(|error| cannot_read(std::io::Error::other(error)))?;
    TagRules::parse(&text).map_err(|error| {
        ArgConflict::new(
            format!("bad rules for tags in {shown}: {error}"),
            "each rule is a table [[rule]] with tag, and at least one of function, object, source and thread, or only number",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_imply_the_key() {
        let directory = harness::Scratch::new();
        let file = directory.path("tags.toml");
        std::fs::write(&file, "[[rule]]\ntag = 'a'\nfunction = 'f'").unwrap();
        let by = |by| resolve_tags(Some(&file), by).map(|(by, rules)| (by, rules.is_some()));
        assert_eq!(by(None).unwrap(), (Some(GroupBy::Tag), true));
        assert_eq!(by(Some(GroupBy::Tag)).unwrap(), (Some(GroupBy::Tag), true));
        assert_eq!(by(Some(GroupBy::User)).unwrap_err().message, "--tags is given with --by user");
        assert_eq!(resolve_tags(None, None).unwrap(), (None, None));
        assert_eq!(resolve_tags(None, Some(GroupBy::User)).unwrap(), (Some(GroupBy::User), None));
    }

    #[test]
    fn unusable_files_are_refused() {
        let directory = harness::Scratch::new();
        let file = directory.path("tags.toml");
        let message = || resolve_tags(Some(&file), None).unwrap_err().message;
        assert!(message().starts_with("cannot read the rules for tags in "), "{}", message());
        std::fs::write(&file, "[[rule]]\ntag = 'a'").unwrap();
        assert!(message().contains("no condition"), "{}", message());
        std::fs::write(&file, " ".repeat((1 << 16) + 1)).unwrap();
        assert!(message().contains("too long"), "{}", message());
        std::fs::write(&file, [0xff]).unwrap();
        assert!(message().contains("utf-8"), "{}", message());
    }
}
