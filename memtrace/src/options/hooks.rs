//! Parser of `--allocator OBJECT[:PREFIX]` and `--hook alloc=FUNC(size=arg0)->ret,free=FUNC(arg0)`.

use std::path::PathBuf;

use memtrace_model::{Function, Naming, Signature, TagAction, TagEffect, TagSource, TagValue};

use super::arguments_of_functions::{argument, number, split};
use crate::options::tag_functions::TagFunction;
use crate::run_kit::config::MarkFunction;
use memtrace_object::allocators::{Hooks, NamedAllocator};

/// Parses `OBJECT[:PREFIX]`.
pub(crate) fn allocator(text: &str) -> Result<NamedAllocator, String> {
    let (object, prefix) = text.split_once(':').unwrap_or((text, ""));
    if object.is_empty() {
        return Err("an object's path or name is missing, as in libpool.so or libpool.so:pool_".into());
    }
    if !prefix.bytes().all(is_word) {
        return Err(format!("`{prefix}` cannot begin a function's name"));
    }
    Ok(NamedAllocator { object: PathBuf::from(object), prefix: prefix.to_owned() })
}

/// Parses `EXE:FUNCTION`. The first colon ends the file, because a demangled name can contain colons.
pub(crate) fn mark_function(text: &str) -> Result<MarkFunction, String> {
    match text.split_once(':') {
        Some((object, name)) if !object.is_empty() && !name.is_empty() => {
            Ok(MarkFunction { object: PathBuf::from(object), name: name.to_owned() })
        }
        _ => Err("give a file and a function, as in /usr/bin/server:handle_request".into()),
    }
}

/// Parses a list of functions: `alloc=FUNC(size=argN)->ret`, `alloc=FUNC(size=argN*argM)->ret`,
/// `alloc=FUNC(size=argN)->argM`, `realloc=FUNC(old=argN,size=argM)->ret` and `free=FUNC(argN)`. Functions that allocate can
/// have a tag, `tag=argN` or `tagname=argN`.
pub(crate) fn hooks(text: &str) -> Result<TaggedHooks, String> {
    let (functions, tags): (Vec<_>, Vec<_>) =
        split(text).into_iter().map(hook).collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    Ok(TaggedHooks { hooks: Hooks { functions }, tags: tags.into_iter().flatten().collect() })
}

/// Functions of one `--hook`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaggedHooks {
    pub(crate) hooks: Hooks,
    /// Hooked functions with a tag among their arguments.
    pub(crate) tags: Vec<TagFunction>,
}

fn hook(text: &str) -> Result<(&'static Function, Option<TagFunction>), String> {
    let malformed = || {
        format!(
            "`{text}` is none of alloc=FUNC(size=argN)->ret, realloc=FUNC(old=argN,size=argM)->ret and free=FUNC(argN)"
        )
    };
    let (role, rest) = text.split_once('=').ok_or_else(malformed)?;
    let (name, rest) = rest.split_once('(').ok_or_else(malformed)?;
    let (arguments, result) = rest.split_once(')').ok_or_else(malformed)?;
    let result = match result.trim() {
        "" => None,
        result => Some(result.strip_prefix("->").ok_or_else(malformed)?.trim()),
    };
    let name = name.trim();
    if name.is_empty() || name.bytes().any(|byte| byte.is_ascii_whitespace()) {
        return Err(malformed());
    }
    let args = HookArgs::parse(arguments)?;
    if args.tag.is_some() && role.trim() == "free" {
        return Err(format!("`{text}`: a freed block has the tag of its allocation"));
    }
    let tag = args.tag.map(|(argument, value)| TagFunction {
        object: None,
        name: name.to_owned(),
        effect: TagEffect {
            action: TagAction::SetCall,
            source: Some(TagSource::Argument(argument)),
            value,
            condition: None,
        },
        until_return: false,
        rule: text.to_owned(),
    });
    let signature = match (role.trim(), result) {
        ("alloc", Some(result)) => args.alloc(result),
        ("realloc", Some("ret")) => args.realloc(),
        ("free", None) => args.free(),
        _ => None,
    };
    let signature = signature.ok_or_else(malformed)?;
    // Leaked on purpose: hooked functions live as long as memtrace, like the rows of the built-in table. The length of
    // the command line bounds their number.
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let function = Function { name, signature, required: false, naming: Naming::Hook, throws: false };
    Ok((Box::leak(Box::new(function)), tag))
}

/// Arguments in the parentheses of one hooked function. The numbers are indices of arguments.
#[derive(Default)]
struct HookArgs {
    size: Option<(u8, Option<u8>)>,
    old: Option<u8>,
    block: Option<u8>,
    /// Index of the argument with the tag, and the kind of its value.
    tag: Option<(u8, TagValue)>,
}

impl HookArgs {
    fn parse(text: &str) -> Result<Self, String> {
        let mut args = Self::default();
        for part in text.split(',').map(str::trim) {
            let is_duplicate = match part.split_once('=') {
                Some(("size", value)) => args.size.replace(product(value)?).is_some(),
                Some(("old", value)) => args.old.replace(argument(value)?).is_some(),
                Some(("tag", value)) => args.tag.replace(number(value)?).is_some(),
                Some(("tagname", value)) => args.tag.replace((argument(value)?, TagValue::Name)).is_some(),
                Some((name, _)) => return Err(format!("`{name}` is none of size, old, tag and tagname")),
                None => args.block.replace(argument(part)?).is_some(),
            };
            if is_duplicate {
                return Err(format!("`{part}` is given twice"));
            }
        }
        Ok(args)
    }

    fn alloc(&self, result: &str) -> Option<Signature> {
        match (self, result) {
            (Self { size: Some((size, None)), old: None, block: None, .. }, "ret") => {
                Some(Signature::Alloc { size: *size })
            }
            (Self { size: Some((count, Some(size))), old: None, block: None, .. }, "ret") => {
                Some(Signature::AllocProduct { count: *count, size: *size })
            }
            (Self { size: Some((size, None)), old: None, block: None, .. }, out) => {
                Some(Signature::AllocOut { out: argument(out).ok()?, size: *size })
            }
            _ => None,
        }
    }

    fn realloc(&self) -> Option<Signature> {
        match *self {
            Self { size: Some((size, None)), old: Some(old), block: None, .. } => {
                Some(Signature::Realloc { old, size })
            }
            Self { size: Some((count, Some(size))), old: Some(old), block: None, .. } => {
                Some(Signature::ReallocProduct { old, count, size })
            }
            _ => None,
        }
    }

    /// Returns the signature of a function that frees. The function may itself call `free` for memory of its pool. This
    /// inner call must not count as another free.
    fn free(&self) -> Option<Signature> {
        match *self {
            Self { size: None, old: None, block: Some(block), .. } => Some(Signature::FreeAround { block }),
            _ => None,
        }
    }
}

fn product(text: &str) -> Result<(u8, Option<u8>), String> {
    match text.split_once('*') {
        Some((count, size)) => Ok((argument(count)?, Some(argument(size)?))),
        None => Ok((argument(text)?, None)),
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signatures(text: &str) -> Vec<(&'static str, Signature)> {
        let hooks = hooks(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        hooks.hooks.functions.iter().map(|function| (function.name, function.signature)).collect()
    }

    #[test]
    fn hooks_are_parsed_with_their_arguments() {
        assert_eq!(
            signatures("alloc=take(size=arg0)->ret,free=give(arg0)"),
            [("take", Signature::Alloc { size: 0 }), ("give", Signature::FreeAround { block: 0 })]
        );
        assert_eq!(
            signatures("alloc=array(size=arg2*arg1) -> ret, realloc = grow(old=arg1, size=arg2) -> ret"),
            [
                ("array", Signature::AllocProduct { count: 2, size: 1 }),
                ("grow", Signature::Realloc { old: 1, size: 2 })
            ]
        );
        assert_eq!(signatures("alloc=make(size=arg1)->arg0"), [("make", Signature::AllocOut { out: 0, size: 1 })]);
        assert_eq!(
            signatures("realloc=more(old=arg0,size=arg1*arg2)->ret"),
            [("more", Signature::ReallocProduct { old: 0, count: 1, size: 2 })]
        );
    }

    #[test]
    fn functions_that_allocate_can_have_a_tag() {
        let rule = String::from("alloc=take(size=arg0,tagname=arg1)->ret");
        let hooks = hooks(&format!("{rule},free=give(arg0)")).expect("a hook with a tag");
        let effect = TagEffect {
            action: TagAction::SetCall,
            source: Some(TagSource::Argument(1)),
            value: TagValue::Name,
            condition: None,
        };
        assert_eq!(hooks.tags, [TagFunction { object: None, name: "take".into(), effect, until_return: false, rule }]);
        assert_eq!(hooks.hooks.functions.len(), 2);
    }

    #[test]
    fn malformed_hooks_are_refused() {
        let refused = |text| hooks(text).expect_err("a malformed hook");
        assert!(refused("take").contains("alloc=FUNC(size=argN)->ret"));
        for text in [
            "alloc=take(size=arg0)",
            "alloc=take(arg0)->ret",
            "free=give(arg0)->ret",
            "free=give(size=arg0)",
            "realloc=grow(size=arg0)->ret",
            "alloc=(size=arg0)->ret",
            "alloc=take(size=arg0,size=arg1)->ret",
            "pool=take(size=arg0)->ret",
            "alloc=take(size=arg0)->ret,",
            "",
        ] {
            refused(text);
        }
        assert!(refused("free=give(arg6)").contains("arg0 to arg5"));
        assert!(refused("free=give(block)").contains("not an argument"));
        assert!(refused("free=give(arg0,tag=arg1)").contains("has the tag of its allocation"));
        assert!(refused("alloc=take(length=arg0)->ret").contains("is none of size, old, tag and tagname"));
    }

    #[test]
    fn allocator_is_an_object_with_optional_prefix() {
        let named = |object: &str, prefix: &str| NamedAllocator { object: object.into(), prefix: prefix.into() };
        assert_eq!(allocator("libpool.so"), Ok(named("libpool.so", "")));
        assert_eq!(allocator("/opt/libpool.so:pool_"), Ok(named("/opt/libpool.so", "pool_")));
        assert!(allocator(":pool_").is_err() && allocator("libpool.so:a-b").is_err());
    }
}
