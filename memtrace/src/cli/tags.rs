//! `--tags`: the file of rules, and the grouping that it implies.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use memtrace_history::tags::TagRules;
use memtrace_model::{GroupBy, printable};

use super::conflict::ArgConflict;

/// Largest file of rules, in bytes. A recording contains it.
const MAX_FILE: u64 = 1 << 16;

/// Returns the key of the groups, and the rules for tags. `by` is the chosen key.
pub(super) fn resolve(
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

/// Returns the key of the groups of a run, and the rules for tags. `has_program_tags` is true if the program sets tags.
pub(super) fn resolve_run(
    file: Option<&Path>,
    by: Option<GroupBy>,
    has_program_tags: bool,
) -> Result<(GroupBy, Option<TagRules>), ArgConflict> {
    let (by, rules) = resolve(file, by)?;
    let has_tags = rules.is_some() || has_program_tags;
    match by {
        None if has_tags => Ok((GroupBy::Tag, rules)),
        Some(GroupBy::Tag) if !has_tags => Err(without_rules()),
        by => Ok((by.unwrap_or_default(), rules)),
    }
}

/// Returns the error for tags without rules.
pub(super) fn without_rules() -> ArgConflict {
    ArgConflict::new(
        "--by tag needs rules for tags, or functions that set them",
        "give a file of rules, as in --tags tags.toml, or functions, as in --tag-from 'set=set_module(id=arg0)'",
    )
}

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
        let by = |by| resolve(Some(&file), by).map(|(by, rules)| (by, rules.is_some()));
        assert_eq!(by(None).unwrap(), (Some(GroupBy::Tag), true));
        assert_eq!(by(Some(GroupBy::Tag)).unwrap(), (Some(GroupBy::Tag), true));
        assert_eq!(by(Some(GroupBy::User)).unwrap_err().message, "--tags is given with --by user");
        assert_eq!(resolve(None, None).unwrap(), (None, None));
        assert_eq!(resolve(None, Some(GroupBy::User)).unwrap(), (Some(GroupBy::User), None));
    }

    #[test]
    fn unusable_files_are_refused() {
        let directory = harness::Scratch::new();
        let file = directory.path("tags.toml");
        let message = || resolve(Some(&file), None).unwrap_err().message;
        assert!(message().starts_with("cannot read the rules for tags in "), "{}", message());
        std::fs::write(&file, "[[rule]]\ntag = 'a'").unwrap();
        assert!(message().contains("no condition"), "{}", message());
        std::fs::write(&file, " ".repeat((1 << 16) + 1)).unwrap();
        assert!(message().contains("too long"), "{}", message());
        std::fs::write(&file, [0xff]).unwrap();
        assert!(message().contains("utf-8"), "{}", message());
    }
}
