//! Activity of threads that the options ask for.

use super::args::TraceArgs;
use super::conflict::ArgConflict;
use super::spans::SpanArg;
use crate::trace::config::ActivityConfig;

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
