//! Parser of `--tag-from 'set=FUNC(id=arg0)'`, `--tag-from probes` and `--tag-from mariadb:class`.

use std::path::PathBuf;

use memtrace_model::{MAX_TAG_STEPS, TagAction, TagEffect, TagField, TagSource, TagValue};

use super::arguments_of_functions::{argument, split};
use super::tag_presets::TagPreset;
use crate::options::ProbesOf;

/// Argument of one `--tag-from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TagFrom {
    Functions(Vec<TagFunction>),
    Probes(ProbesOf),
    Preset(TagPreset),
}

/// Parses a preset, `probes`, `FILE:probes`, or functions.
pub(crate) fn tag_from(text: &str) -> Result<TagFrom, String> {
    if let Some(preset) = TagPreset::from_name(text.trim()) {
        return Ok(TagFrom::Preset(preset));
    }
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

/// Parses a list of functions: `set=FUNC(id=argN)`, `set=FUNC(id=argN:32)`, `set=FUNC(name=argN)`, `during=FUNC(id=argN)`,
/// `enter=FUNC(id=argN)` with `leave=FUNC`, `get=FUNC()->ret`, `get=FUNC()->name` and `process=FUNC(id=argN)`. All
/// except `get` can have a condition, as in `set=FUNC(id=argN,if=argM==7)`. A field of a structure can replace the
/// argument, as in `set=FUNC(name=*(argN+0x18))`. `within=FUNC` can follow `get`. A file can precede the function, as in
/// `set=/usr/bin/server:FUNC(id=arg0)`.
pub(crate) fn tag_functions(text: &str) -> Result<Vec<TagFunction>, String> {
    let mut functions: Vec<TagFunction> = Vec::new();
    for part in split(text) {
        let function = tag_function(part)?;
        if function.is_wrapper() {
            let is_getter = |getter: &&mut TagFunction| getter.effect.source == Some(TagSource::Result);
            let getter = functions.iter_mut().rfind(|function| !function.is_wrapper());
            let getter = getter.filter(is_getter).ok_or_else(|| {
                format!("`{part}` follows no get=FUNC()->ret, as in get=current_module()->ret,within=server_malloc")
            })?;
            getter.effect.action = TagAction::SetLast;
        }
        functions.push(function);
    }
    let has = |action| functions.iter().any(|function| function.effect.action == action);
    if has(TagAction::Enter) != has(TagAction::Leave) {
        return Err(String::from("enter and leave belong together, as in enter=push(id=arg0),leave=pop"));
    }
    Ok(functions)
}

fn tag_function(text: &str) -> Result<TagFunction, String> {
    let malformed = || {
        format!(
            "`{text}` is none of set=FUNC(id=argN), during=FUNC(id=argN), enter=FUNC(id=argN), leave=FUNC, get=FUNC()->ret, within=FUNC, process=FUNC(id=argN), probes, FILE:probes, {}",
            TagPreset::names()
        )
    };
    let (role, rest) = text.split_once('=').ok_or_else(malformed)?;
    let role = role.trim();
    let (function, effect) = match role {
        "get" => getter(rest).ok_or_else(malformed)?,
        role => {
            let action = action(role).ok_or_else(malformed)?;
            let (function, arguments) = arguments(rest.trim());
            let Some(arguments) = arguments else {
                let nothing = TagEffect { action, source: None, value: TagValue::Word, condition: None };
                return match action {
                    TagAction::Leave | TagAction::EnterWrapper => {
                        located(text, function, nothing).ok_or_else(malformed)
                    }
                    _ => Err(malformed()),
                };
            };
            let TagArgs { tag, condition } = TagArgs::parse(arguments)?;
            if action == TagAction::EnterWrapper || tag.is_none() != (action == TagAction::Leave) {
                return Err(malformed());
            }
            let (source, value) = tag.unzip();
            (function, TagEffect { action, source, value: value.unwrap_or(TagValue::Word), condition })
        }
    };
    let function = located(text, function, effect).ok_or_else(malformed)?;
    Ok(TagFunction { until_return: role == "during", ..function })
}

fn action(role: &str) -> Option<TagAction> {
    match role {
        "set" | "during" => Some(TagAction::Set),
        "enter" => Some(TagAction::Enter),
        "leave" => Some(TagAction::Leave),
        "process" => Some(TagAction::SetProcess),
        "within" => Some(TagAction::EnterWrapper),
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
    let inside = last_parenthesis(text).map(|(function, inside)| (function, &inside[1..inside.len() - 1]));
    match inside {
        Some((function, arguments)) if arguments.contains('=') => (function, Some(arguments)),
        Some((function, "")) => (function, None),
        _ => (text, None),
    }
}

/// Splits the text before its last pair of outer parentheses; returns `None` if the text does not end with a pair.
fn last_parenthesis(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_u32;
    let begins = |letter: char| {
        match letter {
            ')' => depth += 1,
            '(' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == '(' && depth == 0
    };
    let begin = text.strip_suffix(')').and_then(|_| text.rfind(begins))?;
    Some(text.split_at(begin))
}

/// Splits the text into the file and the function; returns `None` if the name of the function is empty. The text before
/// the first colon is a file only if it contains a slash, because a demangled name can have colons. `rule`: the function
/// with its effect.
fn located(rule: &str, function: &str, effect: TagEffect) -> Option<TagFunction> {
    let function = function.trim();
    let (object, name) = match function.split_once(':') {
        Some((object, name)) if object.contains('/') => (Some(PathBuf::from(object)), name),
        _ => (None, function),
    };
    let (name, rule) = (name.to_owned(), rule.to_owned());
    (!name.is_empty()).then_some(TagFunction { object, name, effect, until_return: false, rule })
}

/// Arguments in the parentheses of one function.
#[derive(Default)]
struct TagArgs {
    /// Source of the tag, and the kind of its value.
    tag: Option<(TagSource, TagValue)>,
    condition: Option<(u8, u32)>,
}

impl TagArgs {
    fn parse(text: &str) -> Result<Self, String> {
        let mut args = Self::default();
        for part in text.split(',').map(str::trim) {
            let is_duplicate = match part.split_once('=') {
                Some(("id", value)) => args.tag.replace(number(value)?).is_some(),
                Some(("name", value)) => args.tag.replace((field(value, true)?, TagValue::Name)).is_some(),
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

/// Parses `argN` or a field, or one of these with the suffix `:32`.
fn number(text: &str) -> Result<(TagSource, TagValue), String> {
    match text.trim().strip_suffix(":32") {
        Some(text) => Ok((field(text, false)?, TagValue::Half)),
        None => Ok((field(text, false)?, TagValue::Word)),
    }
}

/// Largest offset of a field. Few structures are larger.
const MAX_OFFSET: i32 = (1 << 20) - 1;

/// Parses `argN` or a field, such as `*(argN+0x18)` or `*(*(argN+0x18)+8)`. `can_be_inside`: true if the tag can be inside
/// of the last structure, as a C string is in `argN+8`.
fn field(text: &str, can_be_inside: bool) -> Result<TagSource, String> {
    let malformed = || format!("`{}` is no argument and no field: use argN, *(argN+8) or *(*(argN+8)+8)", text.trim());
    let mut rest = text.trim();
    let mut steps = 0_u8;
    // The offset after each word, the last word first.
    let mut offsets = Vec::new();
    let argument = loop {
        let (inner, offset) = offset(rest)?;
        offsets.push(offset);
        let Some(pointer) = inner.strip_prefix('*') else { break argument(inner)? };
        rest = pointer.strip_prefix('(').and_then(|pointer| pointer.strip_suffix(')')).ok_or_else(malformed)?.trim();
        steps += 1;
        if usize::from(steps) > MAX_TAG_STEPS {
            return Err(format!("`{}` has more than {MAX_TAG_STEPS} pointers", text.trim()));
        }
    };
    if offsets[0] != 0 && !can_be_inside {
        return Err(format!("`{}` is the address of a field: use *({})", text.trim(), text.trim()));
    }
    if offsets == [0] {
        return Ok(TagSource::Argument(argument));
    }
    offsets.reverse();
    offsets.resize(MAX_TAG_STEPS + 1, 0);
    let offsets: [i32; MAX_TAG_STEPS + 1] = offsets.try_into().map_err(|_| malformed())?;
    Ok(TagSource::Field(TagField { argument, steps, offsets }))
}

/// Splits an expression into the pointer and the offset that is added to it: 0 if there is none.
fn offset(text: &str) -> Result<(&str, i32), String> {
    let after = text.rfind(')').map_or(0, |end| end + 1);
    let Some(sign) = text[after..].find(['+', '-']) else { return Ok((text, 0)) };
    let (pointer, offset) = text.split_at(after + sign);
    let (sign, digits) = offset.split_at(1);
    let digits = digits.trim();
    let number = decimal_or_hex(digits).filter(|_| !digits.contains('+')).and_then(|number| i32::try_from(number).ok());
    let number = number.filter(|number| *number <= MAX_OFFSET);
    let number = number.ok_or_else(|| format!("`{digits}` is no offset: use a number of at most {MAX_OFFSET:#x}"))?;
    Ok((pointer.trim(), if sign == "-" { -number } else { number }))
}

fn condition(text: &str) -> Result<(u8, u32), String> {
    let (tested, value) = text.split_once("==").ok_or_else(|| format!("`{text}` is no condition, as in if=arg0==7"))?;
    let value = value.trim();
    let number = decimal_or_hex(value);
    Ok((argument(tested)?, number.ok_or_else(|| format!("`{value}` is no number of at most 32 bits"))?))
}

fn decimal_or_hex(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A function that changes the current tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TagFunction {
    /// Executable or library with the function; `None` for each object of the targets that has it.
    pub(crate) object: Option<PathBuf>,
    /// Symbol or demangled name of the function.
    pub(crate) name: String,
    pub(crate) effect: TagEffect,
    /// True if the tag is removed when the function returns.
    pub(crate) until_return: bool,
    /// The function with its effect, as the user gave it.
    pub(crate) rule: String,
}

impl TagFunction {
    /// Returns the name of the function, with the name of its file if the user gave one.
    pub(crate) fn text(&self) -> String {
        match &self.object {
            Some(object) => format!("{}:{}", object.to_string_lossy(), self.name),
            None => self.name.clone(),
        }
    }

    /// Returns true for a function that allocates a block and asks for the tag of the block.
    pub(crate) fn is_wrapper(&self) -> bool {
        self.effect.action == TagAction::EnterWrapper
    }

    /// Returns the change at the end of each call; `None` if there is none.
    pub(crate) fn end_action(&self) -> Option<TagAction> {
        match self.effect.action {
            TagAction::EnterWrapper => Some(TagAction::LeaveWrapper),
            // If the thread has not entered another tag, it has no tag after `Leave`.
            TagAction::Set if self.until_return => Some(TagAction::Leave),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(Option<PathBuf>, String, TagEffect)> {
        let functions = tag_functions(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        functions.into_iter().map(|TagFunction { object, name, effect, .. }| (object, name, effect)).collect()
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
    fn tags_can_end_at_the_return_of_a_function() {
        let functions = tag_functions("during=my_malloc(id=arg0:32),set=f(id=arg1)").unwrap();
        let set = TagEffect { value: TagValue::Half, ..by(TagAction::Set, 0) };
        assert_eq!((functions[0].effect, functions[0].end_action()), (set, Some(TagAction::Leave)));
        assert_eq!((functions[1].effect, functions[1].end_action()), (by(TagAction::Set, 1), None));
        let within = tag_functions("get=f()->ret,within=g").unwrap();
        assert_eq!(within[1].end_action(), Some(TagAction::LeaveWrapper));
    }

    #[test]
    fn presets_are_parsed_by_their_names() {
        for &preset in TagPreset::ALL {
            assert_eq!(tag_from(&format!(" {} ", preset.name())), Ok(TagFrom::Preset(preset)));
        }
        for text in ["mariadb", "mariadb:table", "skynet:service"] {
            let refused = tag_from(text).expect_err(text);
            assert!(refused.ends_with("mariadb:connection, mariadb:host, mariadb:user and skynet"), "{refused}");
        }
    }

    #[test]
    fn functions_keep_the_text_of_the_user() {
        let text = "set=f(int)(id=arg0, if=arg1==2), leave=/bin/a:g,enter=h(name=*(arg1))";
        let functions = tag_functions(text).unwrap();
        let rules: Vec<_> = functions.iter().map(|function| function.rule.as_str()).collect();
        assert_eq!(rules, ["set=f(int)(id=arg0, if=arg1==2)", "leave=/bin/a:g", "enter=h(name=*(arg1))"]);
    }

    #[test]
    fn fields_are_parsed_with_their_offsets() {
        let source = |text: &str| parsed(&format!("set=f({text})"))[0].2.source;
        let field = |argument, steps, offsets| Some(TagSource::Field(TagField { argument, steps, offsets }));
        assert_eq!(source("name=*(arg1+0x18)"), field(1, 1, [0x18, 0, 0]));
        assert_eq!(source("name=*(*(arg1+0x18)+8)"), field(1, 2, [0x18, 8, 0]));
        assert_eq!(source("name=*(*(arg0 - 16)) + 4"), field(0, 2, [-16, 0, 4]));
        assert_eq!(source("name=*( arg2 )"), field(2, 1, [0, 0, 0]));
        assert_eq!(source("name=arg3+40"), field(3, 0, [40, 0, 0]));
        assert_eq!(source("id=*(arg5+0xfffff):32"), field(5, 1, [0xf_ffff, 0, 0]));
        assert_eq!(source("id=*(arg4+8),if=arg1==3"), field(4, 1, [8, 0, 0]));
        assert_eq!(source("name=arg0+0"), Some(TagSource::Argument(0)));
        assert_eq!(parsed("set=f(id=*(arg5+8):32)")[0].2.value, TagValue::Half);
        assert_eq!(parsed("set=ns::f(char (*)(int))(name=*(arg1+8))")[0].1, "ns::f(char (*)(int))");
    }

    #[test]
    fn getters_inside_a_wrapper_tag_its_last_block() {
        let effect = |action, source| TagEffect { action, source, value: TagValue::Word, condition: None };
        let getter = effect(TagAction::SetLast, Some(TagSource::Result));
        let wrapper = effect(TagAction::EnterWrapper, None);
        assert_eq!(
            parsed("get=handle()->ret, within=my_malloc, within=/bin/a:my_realloc()"),
            [
                (None, "handle".into(), getter),
                (None, "my_malloc".into(), wrapper),
                (Some("/bin/a".into()), "my_realloc".into(), wrapper)
            ]
        );
        let half = parsed("set=g(id=arg0),get=f()->ret:32,within=m");
        assert_eq!(half[1].2, TagEffect { value: TagValue::Half, ..getter });
        assert_eq!(half[0].2.action, TagAction::Set);
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
            ("during=f", "is none of set=FUNC"),
            ("set=f(id=arg9)", "`arg9` is not an argument"),
            ("set=f(id=arg0,name=arg1)", "give one tag"),
            ("set=f(id=arg0,if=arg1)", "is no condition"),
            ("set=f(id=arg0,if=arg1==x)", "`x` is no number"),
            ("set=f(size=arg0)", "is none of id=argN"),
            ("get=f()->arg0", "is none of set=FUNC"),
            ("enter=f(id=arg0)", "enter and leave belong together"),
            ("leave=f", "enter and leave belong together"),
            ("enter=f(id=arg0),leave=g(id=arg0)", "is none of set=FUNC"),
            ("set=f(id=arg0+8)", "is the address of a field: use *(arg0+8)"),
            ("set=f(id=*(arg0+8)+8)", "is the address of a field: use *(*(arg0+8)+8)"),
            ("set=f(name=*arg0)", "is no argument and no field"),
            ("set=f(name=*(arg6+8))", "`arg6` is not an argument"),
            ("set=f(name=*(*(*(arg0))))", "has more than 2 pointers"),
            ("set=f(name=*(arg0+0x100000))", "`0x100000` is no offset"),
            ("set=f(name=*(arg0+x))", "`x` is no offset"),
            ("set=f(name=*(arg0+-8))", "`-8` is no offset"),
            ("set=f(name=arg0++8)", "`+8` is no offset"),
            ("set=f(name=arg0+)", "`` is no offset"),
            ("within=f", "follows no get=FUNC()->ret"),
            ("set=f(id=arg0),within=g", "follows no get=FUNC()->ret"),
            ("get=f()->ret,within=g(id=arg0)", "is none of set=FUNC"),
            ("get=f()->ret,within=", "is none of set=FUNC"),
        ] {
            let refused = tag_functions(text).expect_err(text);
            assert!(refused.contains(message), "{text}: {refused}");
        }
    }
}
