//! Tests of the definition of the command line, and helpers that parse the options of a trace.

use clap::CommandFactory;
use memtrace_model::{GroupBy, MAX_FRAMES, MAX_RINGS, Metric};
use memtrace_report::Format;

use super::*;
use crate::cli::trace;
use crate::trace::config::Config;

/// Parses the options of a trace, without checks of combinations.
pub(crate) fn parsed_trace(line: &str) -> TraceArgs {
    let words = std::iter::once("memtrace").chain(line.split_whitespace());
    Arguments::try_parse_from(words).expect("each argument is valid").trace
}

/// Returns the configuration of a trace, or the message of the conflict.
pub(crate) fn resolved_trace(line: &str) -> Result<Config, String> {
    trace::config(parsed_trace(line)).map_err(|conflict| conflict.message)
}

/// Returns the message of the conflict between options.
pub(crate) fn refusal_of_trace(line: &str) -> String {
    resolved_trace(line).expect_err(line)
}

#[test]
fn definition_is_valid() {
    Arguments::command().debug_assert();
}

#[test]
fn long_help_has_every_option() {
    let mut command = Arguments::command();
    let help = command.render_long_help().to_string();
    for option in command.get_arguments().filter_map(clap::Arg::get_long) {
        assert!(help.lines().any(|line| line.trim_start().contains(&format!("--{option}"))), "--{option}");
    }
}

#[test]
fn help_states_the_ranges_of_numbers() {
    let command = Arguments::command();
    let help = |id: &str| {
        let argument = command.get_arguments().find(|argument| argument.get_id() == id).expect(id);
        argument.get_help().expect("each argument has one").to_string()
    };
    assert!(help("max_depth").contains(&format!("0 to {MAX_FRAMES}")));
    assert!(help("shards").contains(&format!("1 to {MAX_RINGS}")));
}

#[test]
fn all_formats_metrics_and_keys_are_accepted() {
    for key in GroupBy::ALL {
        let args = Arguments::try_parse_from(["memtrace", "--by", key.name()]).expect("a key");
        assert_eq!(args.trace.common.grouping.by, [*key]);
    }
    for format in Format::OF_STACKS {
        let args = Arguments::try_parse_from(["memtrace", "--format", format.name()]).expect("a format");
        assert_eq!(args.trace.common.output.format, Some(*format));
    }
    for metric in Metric::ALL {
        let args = Arguments::try_parse_from(["memtrace", "--metric", metric.name()]).expect("a metric");
        assert_eq!(args.trace.common.stacks.metric, Some(metric));
    }
}
