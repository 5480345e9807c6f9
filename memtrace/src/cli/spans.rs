//! Parser of `--span`.

use std::path::PathBuf;

use memtrace_model::TagValue;

use super::arguments_of_functions::{argument, number};
use crate::trace::config::{ProbesOf, SpanFunction};

/// Argument of one `--span`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SpanArg {
    Probes(ProbesOf),
    Function(SpanFunction),
}

/// Parses `probes`, `FILE:probes`, `EXE:FUNCTION`, `EXE:FUNCTION(id=argN)` or `EXE:FUNCTION(name=argN)`. A demangled name
/// contains colons itself.
pub(super) fn span(text: &str) -> Result<SpanArg, String> {
    if text == "probes" {
        return Ok(SpanArg::Probes(ProbesOf { object: None }));
    }
    let (object, function) = match text.split_once(':') {
        Some((object, function)) if !object.is_empty() && !function.is_empty() => (PathBuf::from(object), function),
        _ => return Err("give `probes`, or a file and a function, as in /usr/bin/server:handle_request".into()),
    };
    if function == "probes" {
        return Ok(SpanArg::Probes(ProbesOf { object: Some(object) }));
    }
    let (name, label) = match function.strip_suffix(')').and_then(|function| function.rsplit_once('(')) {
        Some((name, label)) if label.contains('=') => (name, Some(parse_label(label)?)),
        _ if function.contains("=arg") => {
            return Err(format!("`{function}` lacks a parenthesis, as in handle(id=arg0)"));
        }
        _ => (function, None),
    };
    Ok(SpanArg::Function(SpanFunction { object, name: name.to_owned(), label }))
}

fn parse_label(text: &str) -> Result<(u8, TagValue), String> {
    match text.split_once('=') {
        Some(("id", value)) => number(value),
        Some(("name", value)) => Ok((argument(value)?, TagValue::Name)),
        _ => Err(format!("`{text}` is none of id=argN, id=argN:32 and name=argN")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_probes_or_functions() {
        let probes = |object: Option<&str>| Ok(SpanArg::Probes(ProbesOf { object: object.map(PathBuf::from) }));
        assert_eq!(span("probes"), probes(None));
        assert_eq!(span("/bin/server:probes"), probes(Some("/bin/server")));
        let function = |name: &str, label| {
            Ok(SpanArg::Function(SpanFunction { object: "server".into(), name: name.into(), label }))
        };
        assert_eq!(span("server:handle"), function("handle", None));
        assert_eq!(span("server:ns::handle(int)"), function("ns::handle(int)", None));
        assert_eq!(span("server:handle(id=arg2:32)"), function("handle", Some((2, TagValue::Half))));
        assert_eq!(span("server:f(int)(name=arg0)"), function("f(int)", Some((0, TagValue::Name))));
        for refused in ["server", ":f", "server:", "server:f(id=arg9)", "server:f(size=arg0)", "server:f(id=arg0"] {
            assert!(span(refused).is_err(), "{refused}");
        }
    }
}
