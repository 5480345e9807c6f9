//! `memtrace threads`: its configuration.

use std::path::{Path, PathBuf};

use memtrace_model::{Bytes, printable};
use memtrace_report::Format;

use super::args::ThreadsArgs;
use super::conflict::ArgConflict;
use super::filters::Excluded;
use super::recording;
use super::target;
use crate::run_kit::config::Recording;
use crate::threads::{MonitorConfig, MonitorFormat, TriggeredTrace};
use memtrace_object::allocators::UserHooks;

const DEFAULT_SIZE: Bytes = Bytes(300 << 20);

/// Returns the configuration of the thread monitor.
pub(super) fn config(args: ThreadsArgs) -> Result<MonitorConfig, ArgConflict> {
    recording::check_interval(args.interval)?;
    if args.max_threads == 0 {
        return Err(ArgConflict::new("--max-threads 0 shows no thread", "give at least 1"));
    }
    if args.target.exclude.iter().any(|excluded| matches!(excluded, Excluded::Threads(_))) {
        return Err(ArgConflict::new("--exclude thread= does not apply to monitored threads", "exclude processes"));
    }
    let size_limit = args.size_limit.unwrap_or(DEFAULT_SIZE);
    recording::check_size_limit(size_limit)?;
    if let Some(path) = args.output.as_deref().filter(|path| Format::of_path(path) != Some(Format::Perfetto)) {
        return Err(not_live(path));
    }
    let target = target::resolve(&args.target, false)?;
    let recording = args.record.map(|path| Recording {
        path,
        interval: args.interval,
        size_limit,
        socket: args.socket,
        mark_functions: Vec::new(),
    });
    // A file alone needs no other output.
    let has_file = recording.is_some() || args.output.is_some();
    let output = args.format.or(if has_file && !args.once { None } else { Some(MonitorFormat::Table) });
    Ok(MonitorConfig {
        target,
        duration: args.duration,
        interval: args.interval,
        once: args.once,
        output,
        trace: args.output,
        recording,
        rows: args.top,
        max_threads: args.max_threads,
        source: args.source,
        user_hooks: UserHooks { allocators: args.allocators, hooks: Vec::new() },
        protect: args.protect,
        realtime: args.realtime,
        sort: args.sort,
        conditions: args.when,
        then: args.then.map(|duration| TriggeredTrace {
            duration,
            directory: args.then_dir.unwrap_or_else(|| PathBuf::from(".")),
        }),
    })
}

/// Returns the refusal of an output that the monitor does not write.
fn not_live(path: &Path) -> ArgConflict {
    let name = printable(path);
    if path.as_os_str() == "-" {
        return ArgConflict::new("a trace for Perfetto goes to a file", "name it *.pftrace, or use --format");
    }
    ArgConflict::new(
        format!("threads are not written to {name} during a run, only to *.pftrace"),
        format!("record them with --record FILE, and use `memtrace report --view threads -o {name} FILE`"),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::args::{Action, Arguments};
    use super::*;

    fn parse(line: &str) -> Result<(Option<PathBuf>, Option<MonitorFormat>), String> {
        let words = ["memtrace", "threads"].into_iter().chain(line.split_whitespace());
        let arguments = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        let Some(Action::Threads(args)) = arguments.action else { panic!("not threads") };
        config(*args).map(|config| (config.trace, config.output)).map_err(|conflict| conflict.message)
    }

    #[test]
    fn trace_replaces_the_table() {
        let trace = || Some(PathBuf::from("a.pftrace"));
        assert_eq!(parse("-a"), Ok((None, Some(MonitorFormat::Table))));
        assert_eq!(parse("-a -o a.pftrace"), Ok((trace(), None)));
        assert_eq!(parse("-a -o a.pftrace --format csv"), Ok((trace(), Some(MonitorFormat::Csv))));
        assert_eq!(parse("-a -o a.pftrace --once"), Ok((trace(), Some(MonitorFormat::Table))));
    }

    #[test]
    fn other_formats_need_a_recording() {
        let refused = "threads are not written to a.svg during a run, only to *.pftrace";
        assert_eq!(parse("-a -o a.svg"), Err(String::from(refused)));
        assert_eq!(parse("-a -o -"), Err(String::from("a trace for Perfetto goes to a file")));
    }
}
