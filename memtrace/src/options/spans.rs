//! Options of spans and waits of threads.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use memtrace_model::TagValue;

use super::target::TargetArgs;
use crate::options::arguments_of_functions::{argument, number};
use crate::options::conflict::ArgConflict;
use crate::options::headings::ACTIVITY;
use crate::options::units;

/// Spans and waits of threads to trace.
#[derive(Debug, Default, Args)]
pub(crate) struct SpanArgs {
    /// Trace tasks, or the calls of a function, in each thread over time
    ///
    /// `probes` traces the tasks, locks and events that programs with memtrace.h name, in all objects of the targets,
    /// and FILE:probes those of one file. EXE:FUNCTION traces the calls of any function of an executable or library, by
    /// its symbol, its demangled name, or the end of this name, such as `Server::handle`; `*` stands for any
    /// characters. If no function has exactly this name, all functions that match are traced, at most 64.
    /// EXE:FUNCTION(id=argN) labels each call by a number, (id=argN:32) by one of 32 bits, and (name=argN) by a C
    /// string; arg0 is the first argument. A call that ends with a jump to another library (a tail call) may be shown
    /// up to the jump; the name of its span then says so. Each span has its CPU time and the bytes that the thread
    /// allocates in it. The summary has totals; .html, .pftrace and .json have each span. The two probes of a task cost
    /// less than 2 µs. Those of a call cost several, and 10 to 25 µs on a virtual machine, because the kernel
    /// single-steps the return on x86-64. May be given more than once.
    #[arg(long = "span", value_name = "EXE:FUNCTION", value_parser = span, hide_short_help = true, help_heading = ACTIVITY)]
    pub(crate) spans: Vec<SpanArg>,

    /// Trace waits for futexes of at least this duration, as in 1ms
    ///
    /// Mutexes, condition variables, semaphores and joins wait for futexes. A wait is recorded when it ends, with its
    /// stack, the thread that ended it and, for mutexes of glibc, the thread that held the lock. Units are ns, us, ms,
    /// s, m and h.
    #[arg(long, value_name = "DURATION", value_parser = units::short_duration, hide_short_help = true, help_heading = ACTIVITY)]
    pub(crate) min_wait: Option<Duration>,
}

impl SpanArgs {
    /// Returns the activity to trace; `None` if no option asks for it. `min_call` is the minimum duration of the traced
    /// allocator calls; `None` if they are not traced.
    pub(crate) fn resolve(
        self,
        min_call: Option<Duration>,
        target: &TargetArgs,
    ) -> Result<Option<ActivityConfig>, ArgConflict> {
        if self.spans.is_empty() && self.min_wait.is_none() && min_call.is_none() {
            return Ok(None);
        }
        let mut config = ActivityConfig { min_wait: self.min_wait, min_call, ..ActivityConfig::default() };
        for span in self.spans {
            match span {
                SpanArg::Probes(probes) => config.probes.push(probes),
                SpanArg::Function(function) => config.functions.push(function),
            }
        }
        if !target.names_processes() && config.probes.iter().any(|probes| probes.object.is_none()) {
            return Err(ArgConflict::new(
                "no file is given for the probes with tasks, and no process",
                "give the file with the probes, as in --span /usr/bin/server:probes",
            ));
        }
        Ok(Some(config))
    }
}

/// Argument of one `--span`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SpanArg {
    Probes(ProbesOf),
    Function(SpanFunction),
}

/// Parses `probes`, `FILE:probes`, `EXE:FUNCTION`, `EXE:FUNCTION(id=argN)` or `EXE:FUNCTION(name=argN)`. The first
/// colon ends the file, because a demangled name can contain colons.
pub(crate) fn span(text: &str) -> Result<SpanArg, String> {
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

/// Activity of threads to trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ActivityConfig {
    /// Objects with user probes of `memtrace.h` at tasks, locks and events.
    pub(crate) probes: Vec<ProbesOf>,
    /// Functions to trace. Each call is a span.
    pub(crate) functions: Vec<SpanFunction>,
    /// Minimum duration of a traced futex wait; `None` to trace none.
    pub(crate) min_wait: Option<Duration>,
    /// Minimum duration of an allocator call that becomes a span; `None` to time no calls.
    pub(crate) min_call: Option<Duration>,
}

/// Objects with probes of `memtrace.h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbesOf {
    /// Executable or library; `None` for all objects of the targets.
    pub(crate) object: Option<PathBuf>,
}

/// A function to trace. Each call is a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpanFunction {
    /// Executable or library that contains the function.
    pub(crate) object: PathBuf,
    /// Symbol or demangled name of the function, the end of this name, or a pattern with `*`.
    pub(crate) name: String,
    /// Argument that labels each span: its position, from 0, and the kind of its value.
    pub(crate) label: Option<(u8, TagValue)>,
}

impl SpanFunction {
    /// Returns the name of the function, with the name of its file.
    pub(crate) fn text(&self) -> String {
        format!("{}:{}", self.object.to_string_lossy(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::resolved_trace;

    #[test]
    fn options_ask_for_activity() {
        let taken = |line: &str| resolved_trace(line).map(|config| config.activity);
        assert_eq!(taken("--pid 7"), Ok(None));
        let config = taken("--pid 7 --span probes --min-wait 20us").unwrap().unwrap();
        assert_eq!(config.probes.len(), 1);
        assert_eq!(config.min_wait, Some(Duration::from_micros(20)));
        assert!(taken("--all --span probes").unwrap_err().contains("no file is given"));
    }

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
        assert_eq!(span("server:*::handle*(id=arg2)"), function("*::handle*", Some((2, TagValue::Word))));
        assert_eq!(span("server:f(int)(name=arg0)"), function("f(int)", Some((0, TagValue::Name))));
        for refused in ["server", ":f", "server:", "server:f(id=arg9)", "server:f(size=arg0)", "server:f(id=arg0"] {
            assert!(span(refused).is_err(), "{refused}");
        }
    }
}
