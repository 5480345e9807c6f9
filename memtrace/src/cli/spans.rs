//! Parser of `--span`, and the activity of threads that options ask for.

use std::path::PathBuf;

use super::args::TraceArgs;
use super::arguments_of_functions::{argument, number};
use super::conflict::ArgConflict;
use crate::model::TagValue;
use crate::session::{ActivityConfig, ProbesOf, SpanFunction};

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

/// Returns the activity to trace; `None` if no option asks for it.
pub(super) fn take(args: &mut TraceArgs) -> Result<Option<ActivityConfig>, ArgConflict> {
    if args.activity.given().is_none() {
        return Ok(None);
    }
    let mut config = ActivityConfig {
        min_wait: args.activity.min_wait,
        min_call: args.activity.allocator_latency,
        ..ActivityConfig::default()
    };
    for span in std::mem::take(&mut args.activity.spans) {
        match span {
            SpanArg::Probes(probes) => config.probes.push(probes),
            SpanArg::Function(function) => config.functions.push(function),
        }
    }
    let has_target = !args.target.pids.is_empty() || !args.target.command.is_empty();
    if !has_target && config.probes.iter().any(|probes| probes.object.is_none()) {
        return Err(ArgConflict::new(
            "no file is given for the probes with tasks, and no process",
            "give the file with the probes, as in --span /usr/bin/server:probes",
        ));
    }
    Ok(Some(config))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::args::Arguments;
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
        for refused in ["server", ":f", "server:", "server:f(id=arg9)", "server:f(size=arg0)"] {
            assert!(span(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn options_ask_for_activity() {
        let taken = |line: &[&str]| {
            let arguments = Arguments::try_parse_from(["memtrace"].iter().chain(line)).expect("each argument is valid");
            take(&mut { arguments.trace }).map_err(|conflict| conflict.message)
        };
        assert_eq!(taken(&["--pid", "7"]), Ok(None));
        let config = taken(&["--pid", "7", "--span", "probes", "--min-wait", "20us"]).unwrap().unwrap();
        assert_eq!(config.probes.len(), 1);
        assert_eq!(config.min_wait, Some(std::time::Duration::from_micros(20)));
        assert!(taken(&["--all", "--span", "probes"]).unwrap_err().contains("no file is given"));
    }
}
