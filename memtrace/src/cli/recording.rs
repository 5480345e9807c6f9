//! Options of recordings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use memtrace_model::Bytes;
use memtrace_report::Format;

use super::args::TraceArgs;
use super::conflict::ArgConflict;
use crate::run_kit::config::Recording;

/// Extension of recordings.
const EXTENSION: &str = "memtrace";

const DEFAULT_FILE: &str = "run.memtrace";
pub(super) const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
/// The trace completes intervals ten times a second. The counters that the monitor reads hardly change below this.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
const SHORTEST_EVERY: Duration = Duration::from_secs(1);

const DEFAULT_SIZE: Bytes = Bytes(1 << 30);
/// The stacks of a single busy process take a part of it.
const SMALLEST_SIZE: Bytes = Bytes(4 << 20);

/// Adds the default file, if no recording is given.
pub(super) fn with_default(mut args: TraceArgs) -> TraceArgs {
    if args.record.is_none() && !args.outputs.iter().any(|path| is_recording(path)) {
        args.outputs.push(PathBuf::from(DEFAULT_FILE));
    }
    args
}

/// Takes the recording out of the arguments.
pub(super) fn resolve(args: &mut TraceArgs) -> Result<Option<Recording>, ArgConflict> {
    let mut paths: Vec<_> = args.record.take().into_iter().collect();
    paths.extend(args.outputs.extract_if(.., |path| is_recording(path)));
    let interval = args.interval.unwrap_or(DEFAULT_INTERVAL);
    let size_limit = args.size_limit.unwrap_or(DEFAULT_SIZE);
    match paths.as_slice() {
        [] => match option_of_recordings(args) {
            Some(option) => Err(ArgConflict::new(
                format!("{option} is given without a recording"),
                "remove it, or add a file: --record run.memtrace",
            )),
            None => check_interval(interval).map(|()| None),
        },
        [path] => {
            check_interval(interval)?;
            check_size_limit(size_limit)?;
            Ok(Some(Recording {
                path: path.clone(),
                interval,
                size_limit,
                socket: args.socket.take(),
                mark_functions: std::mem::take(&mut args.mark_on),
            }))
        }
        [_, _, ..] => Err(ArgConflict::new("more than one recording is given", "give one --record")),
    }
}

/// Checks the time between two recorded moments, or two readings of the thread monitor.
pub(super) fn check_interval(interval: Duration) -> Result<(), ArgConflict> {
    match interval < SHORTEST_INTERVAL {
        true => Err(ArgConflict::new("--interval is shorter than 100ms", "give a longer one, as in 1s")),
        false => Ok(()),
    }
}

/// Checks the largest size of a recording.
pub(super) fn check_size_limit(size_limit: Bytes) -> Result<(), ArgConflict> {
    match size_limit < SMALLEST_SIZE {
        true => Err(ArgConflict::new("--size-limit is less than 4MiB", "give a larger one, as in 200MiB")),
        false => Ok(()),
    }
}

/// Returns the interval of memory over time, if an output needs it, or shows it in a run with intervals.
pub(super) fn timeline(args: &TraceArgs, recording: Option<&Recording>) -> Option<Duration> {
    let interval = recording.map(|recording| recording.interval).or(args.interval);
    if has_output(args, Format::needs_timeline) {
        return Some(interval.unwrap_or(DEFAULT_INTERVAL));
    }
    let is_default = args.outputs.is_empty() && args.format.is_none();
    interval.or(args.every).filter(|_| is_default || has_output(args, Format::shows_timeline))
}

/// Returns true if an output has such a format.
pub(super) fn has_output(args: &TraceArgs, is_such: fn(Format) -> bool) -> bool {
    let of_paths = args.outputs.iter().filter_map(|path| Format::of_path(path));
    of_paths.chain(args.format).any(is_such)
}

/// Returns the interval at which the top sites are shown. `shortest` is the interval of the run.
pub(super) fn every(args: &TraceArgs, shortest: Option<Duration>) -> Result<Option<Duration>, ArgConflict> {
    match (args.every, shortest) {
        (Some(every), _) if every < SHORTEST_EVERY => {
            Err(ArgConflict::new("--every is shorter than 1s", "give a longer one, as in 10s"))
        }
        (Some(every), Some(interval)) if every < interval => Err(ArgConflict::new(
            "--every is shorter than --interval",
            "shorten --interval: the sites are known at the end of an interval",
        )),
        (every, _) => Ok(every),
    }
}

/// Returns an option that is given and applies to recordings only.
fn option_of_recordings(args: &TraceArgs) -> Option<&'static str> {
    let interval = args.interval.filter(|_| !has_output(args, Format::needs_timeline)).map(|_| "--interval");
    let size_limit = args.size_limit.is_some().then_some("--size-limit");
    let socket = args.socket.is_some().then_some("--socket");
    interval.or(size_limit).or(socket).or((!args.mark_on.is_empty()).then_some("--mark-on"))
}

fn is_recording(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(EXTENSION))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::args::Arguments;
    use super::*;

    fn parse(line: &str) -> TraceArgs {
        let words = std::iter::once("memtrace").chain(line.split_whitespace());
        Arguments::try_parse_from(words).expect("each argument is valid").trace
    }

    #[test]
    fn recording_has_its_limit_and_its_socket() {
        let resolve = |line| resolve(&mut parse(line)).expect("a recording").expect("it is given");
        let default = resolve("--record a");
        assert_eq!((default.size_limit, default.socket), (Bytes(1 << 30), None));
        let given = resolve("--record a --size-limit 4M --socket /tmp/a.sock");
        assert_eq!((given.size_limit, given.socket), (Bytes(4 << 20), Some("/tmp/a.sock".into())));
    }

    #[test]
    fn sites_are_shown_at_most_once_in_an_interval() {
        let every = |line| {
            let mut args = parse(line);
            let recording = resolve(&mut args).expect("a valid recording");
            every(&args, recording.map(|recording| recording.interval)).map_err(|conflict| conflict.message)
        };
        assert_eq!((every(""), every("--every 10s")), (Ok(None), Ok(Some(Duration::from_secs(10)))));
        assert_eq!(every("--every 999ms"), Err(String::from("--every is shorter than 1s")));
        assert_eq!(every("--every 5s --record a -i 5s"), Ok(Some(Duration::from_secs(5))));
        assert_eq!(every("--every 5s --record a -i 6s"), Err(String::from("--every is shorter than --interval")));
    }

    #[test]
    fn memory_over_time_is_collected_for_outputs_that_show_it() {
        let timeline = |line: &str| {
            let mut args = parse(line);
            let recording = resolve(&mut args).map_err(|conflict| conflict.message)?;
            Ok(timeline(&args, recording.as_ref()).map(|interval| interval.as_millis()))
        };
        for (line, expected) in [
            ("", None),
            ("-o a.json", None),
            ("-o a.html", Some(1000)),
            ("-o a.pftrace -i 200ms", Some(200)),
            ("--format firefox -o a", Some(1000)),
            ("--record a -i 5s -o a.html", Some(5000)),
            ("--record a -i 5s -o a.json", Some(5000)),
            ("--record a -o a.pb.gz", None),
            ("--every 10s", Some(10_000)),
            ("--every 10s -o a.html", Some(1000)),
        ] {
            assert_eq!(timeline(line), Ok::<_, String>(expected), "{line}");
        }
        assert_eq!(timeline("-o a.html -i 99ms"), Err(String::from("--interval is shorter than 100ms")));
    }

    /// File of the recording and its interval in milliseconds, and the other outputs.
    type Resolved = (Option<(PathBuf, u128)>, Vec<PathBuf>);

    fn resolved(mut args: TraceArgs) -> Result<Resolved, String> {
        let recording = resolve(&mut args).map_err(|conflict| conflict.message)?;
        Ok((recording.map(|recording| (recording.path, recording.interval.as_millis())), args.outputs))
    }

    #[test]
    fn output_with_the_extension_is_a_recording() {
        let recording = |path: &str, interval| Some((PathBuf::from(path), interval));
        assert_eq!(resolved(parse("")), Ok((None, Vec::new())));
        assert_eq!(resolved(parse("--record a.db -o b.svg")), Ok((recording("a.db", 1000), vec!["b.svg".into()])));
        assert_eq!(resolved(parse("-o a.Memtrace -i 10s")), Ok((recording("a.Memtrace", 10_000), Vec::new())));
        assert_eq!(
            resolved(with_default(parse("-o a.svg"))),
            Ok((recording("run.memtrace", 1000), vec!["a.svg".into()]))
        );
        assert_eq!(resolved(with_default(parse("--record a.db"))), Ok((recording("a.db", 1000), Vec::new())));
    }

    #[test]
    fn options_of_recordings_are_checked() {
        assert_eq!(resolved(parse("-i 1s")), Err(String::from("--interval is given without a recording")));
        assert_eq!(resolved(parse("--size-limit 1G")), Err(String::from("--size-limit is given without a recording")));
        assert_eq!(resolved(parse("--socket /a")), Err(String::from("--socket is given without a recording")));
        assert_eq!(
            resolved(parse("--record a --size-limit 4095k")),
            Err(String::from("--size-limit is less than 4MiB"))
        );
        assert_eq!(resolved(parse("--record a -i 99ms")), Err(String::from("--interval is shorter than 100ms")));
        assert_eq!(resolved(parse("--record a -o b.memtrace")), Err(String::from("more than one recording is given")));
    }
}
