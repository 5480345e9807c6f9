//! Parser of `--tag-from 'set=FUNC(id=arg0)'` and `--tag-from probes`.

use std::path::PathBuf;

use memtrace_model::{TagAction, TagEffect, TagSource, TagValue};

use super::arguments_of_functions::{argument, number, split};
use crate::options::ProbesOf;

/// Argument of one `--tag-from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TagFrom {
    Functions(Vec<TagFunction>),
    Probes(ProbesOf),
}

/// Parses `probes`, `FILE:probes`, or functions.
pub(crate) fn tag_from(text: &str) -> Result<TagFrom, String> {
    match text.trim().strip_suffix("probes") {
        Some("") => Ok(TagFrom::Probes(ProbesOf { object: None })),
        Some(file)
            if let Some(file) = file.strip_suffix(':')
                && file.contains('/')
                && !file.contains('=') =>
        {
            Ok(TagFrom::Probes(ProbesOf { object: Some(PathBuf::from(file)) }))
        }
        _ => tag_functions(text).map(TagFrom::Functions),
    }
}

/// Parses a list of functions: `set=FUNC(id=argN)`, `set=FUNC(id=argN:32)`, `set=FUNC(name=argN)`,
/// `enter=FUNC(id=argN)` with `leave=FUNC`, `get=FUNC()->ret`, `get=FUNC()->name` and `process=FUNC(id=argN)`. All
/// except `get` can have a condition, as in `set=FUNC(id=argN,if=argM==7)`. A file can precede the function, as in
/// `set=/usr/bin/server:FUNC(id=arg0)`.
fn tag_functions(text: &str) -> Result<Vec<TagFunction>, String> {
    let functions = split(text).into_iter().map(tag_function).collect::<Result<Vec<_>, _>>()?;
    let has = |action| functions.iter().any(|function| function.effect.action == action);
    if has(TagAction::Enter) != has(TagAction::Leave) {
        return Err(String::from("enter and leave belong together, as in enter=push(id=arg0),leave=pop"));
    }
    Ok(functions)
}

fn tag_function(text: &str) -> Result<TagFunction, String> {
    let malformed = || {
        format!(
            "`{text}` is none of set=FUNC(id=argN), enter=FUNC(id=argN), leave=FUNC, get=FUNC()->ret, process=FUNC(id=argN), probes and FILE:probes"
        )
    };
    let (role, rest) = text.split_once('=').ok_or_else(malformed)?;
    let (function, effect) = match role.trim() {
        "get" => getter(rest).ok_or_else(malformed)?,
        role => {
            let action = action(role).ok_or_else(malformed)?;
            let (function, arguments) = arguments(rest.trim());
            let Some(arguments) = arguments else {
                let nothing = TagEffect { action, source: None, value: TagValue::Word, condition: None };
                return match action {
                    TagAction::Leave => located(function, nothing).ok_or_else(malformed),
                    _ => Err(malformed()),
                };
            };
            let TagArgs { tag, condition } = TagArgs::parse(arguments)?;
            if tag.is_none() != (action == TagAction::Leave) {
                return Err(malformed());
            }
            let (source, value) = tag.unzip();
            let source = source.map(TagSource::Argument);
            (function, TagEffect { action, source, value: value.unwrap_or(TagValue::Word), condition })
        }
    };
    located(function, effect).ok_or_else(malformed)
}

fn action(role: &str) -> Option<TagAction> {
    match role {
        "set" => Some(TagAction::Set),
        "enter" => Some(TagAction::Enter),
        "leave" => Some(TagAction::Leave),
        "process" => Some(TagAction::SetProcess),
        _ => None,
    }
}

/// Parses `FUNC()->ret`, `FUNC()->ret:32` or `FUNC()->name`.
fn getter(text: &str) -> Option<(&str, TagEffect)> {
    let (function, result) = text.rsplit_once("->")?;
    let value = match result.trim() {
        "ret" => TagValue::Word,
        "ret:32" => TagValue::Half,
        "name" => TagValue::Name,
        _ => return None,
    };
    let function = function.trim();
    let effect = TagEffect { action: TagAction::Set, source: Some(TagSource::Result), value, condition: None };
    Some((function.strip_suffix("()").unwrap_or(function), effect))
}

/// Splits the text into the function and its arguments. The arguments have an equals sign. Other parentheses belong to
/// a demangled name.
fn arguments(text: &str) -> (&str, Option<&str>) {
    let inside = text.strip_suffix(')').and_then(|text| text.rsplit_once('('));
    match inside {
        Some((function, arguments)) if arguments.contains('=') => (function, Some(arguments)),
        Some((function, "")) => (function, None),
        _ => (text, None),
    }
}

/// Splits the text into the file and the function; returns `None` if the name of the function is empty. The text before
/// the first colon is a file only if it contains a slash, because a demangled name can have colons.
fn located(function: &str, effect: TagEffect) -> Option<TagFunction> {
    let function = function.trim();
    let (object, name) = match function.split_once(':') {
        Some((object, name)) if object.contains('/') => (Some(PathBuf::from(object)), name),
        _ => (None, function),
    };
    (!name.is_empty()).then(|| TagFunction { object, name: name.to_owned(), effect })
}

/// Arguments in the parentheses of one function.
#[derive(Default)]
struct TagArgs {
    /// Index of the argument with the tag, and the kind of its value.
    tag: Option<(u8, TagValue)>,
    condition: Option<(u8, u32)>,
}

impl TagArgs {
    fn parse(text: &str) -> Result<Self, String> {
        let mut args = Self::default();
        for part in text.split(',').map(str::trim) {
            let is_duplicate = match part.split_once('=') {
                Some(("id", value)) => args.tag.replace(number(value)?).is_some(),
                Some(("name", value)) => args.tag.replace((argument(value)?, TagValue::Name)).is_some(),
                Some(("if", value)) => args.condition.replace(condition(value)?).is_some(),
                _ => return Err(format!("`{part}` is none of id=argN, name=argN and if=argN==VALUE")),
            };
            if is_duplicate {
                return Err(format!("`{part}`: give one tag, and one condition"));
            }
        }
        Ok(args)
    }
}

fn condition(text: &str) -> Result<(u8, u32), String> {
    let (tested, value) = text.split_once("==").ok_or_else(|| format!("`{text}` is no condition, as in if=arg0==7"))?;
    let value = value.trim();
    let number = match value.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => value.parse(),
    };
    Ok((argument(tested)?, number.map_err(|_| format!("`{value}` is no number of at most 32 bits"))?))
}

/// A function that changes the current tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TagFunction {
    /// Executable or library with the function; `None` for each object of the targets that has it.
    pub(crate) object: Option<PathBuf>,
    /// Symbol or demangled name of the function.
    pub(crate) name: String,
    pub(crate) effect: TagEffect,
}

impl TagFunction {
    /// Returns the name of the function, with the name of its file if the user gave one.
    pub(crate) fn text(&self) -> String {
        match &self.object {
            Some(object) => format!("{}:{}", object.to_string_lossy(), self.name),
            None => self.name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(Option<PathBuf>, String, TagEffect)> {
        let functions = tag_functions(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        functions.into_iter().map(|TagFunction { object, name, effect }| (object, name, effect)).collect()
    }

    const fn by(action: TagAction, argument: u8) -> TagEffect {
        TagEffect { action, source: Some(TagSource::Argument(argument)), value: TagValue::Word, condition: None }
    }

    #[test]
    fn functions_are_parsed_with_their_effects() {
        let set = by(TagAction::Set, 0);
        assert_eq!(parsed("set=set_module(id=arg0)"), [(None, "set_module".into(), set)]);
        assert_eq!(
            parsed("set=pthread_setspecific(id=arg1, if=arg0==0x10)"),
            [(None, "pthread_setspecific".into(), TagEffect { condition: Some((0, 16)), ..by(TagAction::Set, 1) })]
        );
        assert_eq!(
            parsed("process=/opt/server:phase(name=arg2)"),
            [(
                Some("/opt/server".into()),
                "phase".into(),
                TagEffect { value: TagValue::Name, ..by(TagAction::SetProcess, 2) }
            )]
        );
        let leave = TagEffect { action: TagAction::Leave, source: None, value: TagValue::Word, condition: None };
        assert_eq!(
            parsed("enter=net::Scope::Scope(int)(id=arg1),leave=net::Scope::~Scope()"),
            [
                (None, "net::Scope::Scope(int)".into(), by(TagAction::Enter, 1)),
                (None, "net::Scope::~Scope".into(), leave)
            ]
        );
        let get = TagEffect { source: Some(TagSource::Result), ..set };
        assert_eq!(parsed("get=current_module()->ret"), [(None, "current_module".into(), get)]);
        assert_eq!(parsed("get=module_name->name")[0].2, TagEffect { value: TagValue::Name, ..get });
        assert_eq!(parsed("get=f()->ret:32")[0].2, TagEffect { value: TagValue::Half, ..get });
        assert_eq!(parsed("set=f(id=arg0:32)")[0].2, TagEffect { value: TagValue::Half, ..set });
    }

    #[test]
    fn probes_are_those_of_all_objects_or_of_a_file() {
        let probes = |object: Option<&str>| Ok(TagFrom::Probes(ProbesOf { object: object.map(PathBuf::from) }));
        assert_eq!(tag_from("probes"), probes(None));
        assert_eq!(tag_from("/opt/server:probes"), probes(Some("/opt/server")));
        assert!(tag_from("server:probes").is_err(), "a file has a slash");
        assert!(matches!(tag_from("set=probes(id=arg0)"), Ok(TagFrom::Functions(_))));
    }

    #[test]
    fn malformed_functions_are_refused() {
        for (text, message) in [
            ("set_module", "is none of set=FUNC"),
            ("put=f(id=arg0)", "is none of set=FUNC"),
            ("set=f", "is none of set=FUNC"),
            ("set=(id=arg0)", "is none of set=FUNC"),
            ("set=f(if=arg0==1)", "is none of set=FUNC"),
            ("set=f(id=arg9)", "`arg9` is not an argument"),
            ("set=f(id=arg0,name=arg1)", "give one tag"),
            ("set=f(id=arg0,if=arg1)", "is no condition"),
            ("set=f(id=arg0,if=arg1==x)", "`x` is no number"),
            ("set=f(size=arg0)", "is none of id=argN"),
            ("get=f()->arg0", "is none of set=FUNC"),
            ("enter=f(id=arg0)", "enter and leave belong together"),
            ("leave=f", "enter and leave belong together"),
            ("enter=f(id=arg0),leave=g(id=arg0)", "is none of set=FUNC"),
        ] {
            let refused = tag_functions(text).expect_err(text);
            assert!(refused.contains(message), "{text}: {refused}");
        }
    }
}
