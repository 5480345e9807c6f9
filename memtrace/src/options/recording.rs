//! Options of recordings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use memtrace_model::Bytes;
use memtrace_report::Format;

use super::output::OutputArgs;
use crate::options::conflict::{ArgConflict, first_given};
use crate::options::headings::OUTPUT;
use crate::options::{hooks, units};
use crate::run_kit::config::{MarkFunction, Recording};

/// Extension of recordings.
const EXTENSION: &str = "memtrace";

const DEFAULT_FILE: &str = "run.memtrace";
pub(crate) const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum of `--interval`. A trace completes intervals at most ten times a second, and the counters of `memtrace
/// threads` hardly change in a shorter time.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

const DEFAULT_SIZE: Bytes = Bytes(1 << 30);
/// Minimum of `--size-limit`: enough for the stacks of a busy process.
const SMALLEST_SIZE: Bytes = Bytes(4 << 20);

/// The recording of a run.
#[derive(Debug, Default, Args)]
pub(crate) struct RecordingArgs {
    /// Record the changes of each interval into this file, an SQLite database
    ///
    /// It can be read during the trace, and survives the end of memtrace by a signal.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) record: Option<PathBuf>,

    /// Record at this interval, as in 10s; at least 100ms [default: 1s]
    ///
    /// Also the interval of the values of memory over time in .html, .pftrace and .firefox.json, and of accounts in .pftrace.
    #[arg(short, long, value_name = "DURATION", value_parser = units::duration, hide_short_help = true, help_heading = OUTPUT)]
    pub(crate) interval: Option<Duration>,

    /// Limit the size of the recording, as in 200MiB; at least 4MiB [default: 1GiB]
    ///
    /// Old intervals are merged into longer ones, so that a recording can run for weeks. Totals at the ends of the
    /// intervals that remain are exact, and marks remain.
    #[arg(long, value_name = "SIZE", value_parser = units::size, hide_short_help = true, help_heading = OUTPUT)]
    pub(crate) size_limit: Option<Bytes>,

    /// Receive marks of the recording, or resets of accounts, at this Unix socket
    ///
    /// For `memtrace mark --socket PATH` and `memtrace reset --socket PATH`. By default, it is in /run/memtrace for root, and in a directory of the user for
    /// others. Only root and the user of memtrace can set marks.
    #[arg(long, value_name = "PATH", hide_short_help = true, help_heading = OUTPUT)]
    pub(crate) socket: Option<PathBuf>,

    /// Set a mark of the recording at each entry of this function
    ///
    /// EXE is the path of an executable or library, FUNCTION one of its symbols or its demangled name. Entries by traced
    /// processes count. A mark is set as soon as memtrace learns of the entry, usually within a millisecond. May be given
    /// more than once.
    #[arg(long, value_name = "EXE:FUNCTION", value_parser = hooks::mark_function, hide_short_help = true, help_heading = OUTPUT)]
    pub(crate) mark_on: Vec<MarkFunction>,
}

impl RecordingArgs {
    /// Adds the default recording file to the outputs, if the user gave no recording.
    pub(crate) fn add_default(&self, output: &mut OutputArgs) {
        if self.record.is_none() && !output.outputs.iter().any(|path| is_recording(path)) {
            output.outputs.push(PathBuf::from(DEFAULT_FILE));
        }
    }

    /// Removes the recording from these options and from the outputs, and returns it; `None` if no recording file is given.
    pub(crate) fn take(&mut self, output: &mut OutputArgs) -> Result<Option<Recording>, ArgConflict> {
        let mut paths: Vec<_> = self.record.take().into_iter().collect();
        paths.extend(output.outputs.extract_if(.., |path| is_recording(path)));
        let interval = self.interval.unwrap_or(DEFAULT_INTERVAL);
        let size_limit = self.size_limit.unwrap_or(DEFAULT_SIZE);
        match paths.as_slice() {
            [] => match self.given_without_file(output) {
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
                    socket: self.socket.take(),
                    mark_functions: std::mem::take(&mut self.mark_on),
                }))
            }
            [_, _, ..] => Err(ArgConflict::new("more than one recording is given", "give one --record")),
        }
    }

    /// Returns the interval of memory over time; `None` if it is not collected. It is collected if an output needs it, or if an
    /// output can show it and an interval is given: by a recording, `--interval` or `--every`.
    pub(crate) fn timeline(&self, output: &OutputArgs, recording: Option<&Recording>) -> Option<Duration> {
        let interval = recording.map(|recording| recording.interval).or(self.interval);
        if output.has(Format::needs_timeline) {
            return Some(interval.unwrap_or(DEFAULT_INTERVAL));
        }
        let is_default = output.outputs.is_empty() && output.format.is_none();
        interval.or(output.every).filter(|_| is_default || output.has(Format::shows_timeline))
    }

    /// Returns an option that is given and applies to recordings only.
    fn given_without_file(&self, output: &OutputArgs) -> Option<&'static str> {
        first_given(&[
            ("--interval", self.interval.is_some() && !output.has(Format::needs_timeline)),
            ("--size-limit", self.size_limit.is_some()),
            ("--socket", self.socket.is_some()),
            ("--mark-on", !self.mark_on.is_empty()),
        ])
    }
}

/// Checks the interval of a recording or of `memtrace threads`.
pub(crate) fn check_interval(interval: Duration) -> Result<(), ArgConflict> {
    match interval < SHORTEST_INTERVAL {
        true => Err(ArgConflict::new("--interval is shorter than 100ms", "give a longer one, as in 1s")),
        false => Ok(()),
    }
}

/// Checks the size limit of a recording.
pub(crate) fn check_size_limit(size_limit: Bytes) -> Result<(), ArgConflict> {
    match size_limit < SMALLEST_SIZE {
        true => Err(ArgConflict::new("--size-limit is less than 4MiB", "give a larger one, as in 200MiB")),
        false => Ok(()),
    }
}

fn is_recording(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(EXTENSION))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::CommonArgs;
    use crate::cli::parsed_trace;

    fn parse(line: &str) -> CommonArgs {
        parsed_trace(line).common
    }

    fn take(args: &mut CommonArgs) -> Result<Option<Recording>, String> {
        args.recording.take(&mut args.output).map_err(|conflict| conflict.message)
    }

    #[test]
    fn recording_has_its_limit_and_its_socket() {
        let resolve = |line| take(&mut parse(line)).expect("a recording").expect("it is given");
        let default = resolve("--record a");
        assert_eq!((default.size_limit, default.socket), (Bytes(1 << 30), None));
        let given = resolve("--record a --size-limit 4M --socket /tmp/a.sock");
        assert_eq!((given.size_limit, given.socket), (Bytes(4 << 20), Some("/tmp/a.sock".into())));
    }

    #[test]
    fn sites_are_shown_at_most_once_in_an_interval() {
        let every = |line| {
            let mut args = parse(line);
            let recording = take(&mut args).expect("a valid recording");
            let every = args.output.resolve_every(recording.map(|recording| recording.interval));
            every.map_err(|conflict| conflict.message)
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
            let recording = take(&mut args)?;
            Ok(args.recording.timeline(&args.output, recording.as_ref()).map(|interval| interval.as_millis()))
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

    fn resolved(mut args: CommonArgs) -> Result<Resolved, String> {
        let recording = take(&mut args)?;
        Ok((recording.map(|recording| (recording.path, recording.interval.as_millis())), args.output.outputs))
    }

    #[test]
    fn output_with_the_extension_is_a_recording() {
        let recording = |path: &str, interval| Some((PathBuf::from(path), interval));
        assert_eq!(resolved(parse("")), Ok((None, Vec::new())));
        assert_eq!(resolved(parse("--record a.db -o b.svg")), Ok((recording("a.db", 1000), vec!["b.svg".into()])));
        assert_eq!(resolved(parse("-o a.Memtrace -i 10s")), Ok((recording("a.Memtrace", 10_000), Vec::new())));
        let with_default = |line: &str| {
            let mut args = parse(line);
            args.recording.add_default(&mut args.output);
            resolved(args)
        };
        assert_eq!(with_default("-o a.svg"), Ok((recording("run.memtrace", 1000), vec!["a.svg".into()])));
        assert_eq!(with_default("--record a.db"), Ok((recording("a.db", 1000), Vec::new())));
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
