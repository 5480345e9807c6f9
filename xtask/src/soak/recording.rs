//! `cargo xtask bench recording`: measures the cost of a recording. Traces of the machine with and without a recording
//! alternate while the loops of the soak test run.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::trace::Trace;
use super::workload::Workload;
use crate::privilege::Root;
use crate::workspace::{self, Workspace};
use crate::{bpf, command, setup, ui};

/// Default time from the attachment to the measurement. Within this time, unwind tables are built, and short-lived
/// processes still record their own stacks instead of the stacks of their group (docs/design/0069).
const WARM_UP: Duration = Duration::from_secs(60);

/// Limit for the median of [`Round::ratio`].
const MAX_RATIO: f64 = 1.1;

/// Limit for the size of a recording, in MiB per hour.
const MAX_MIB_PER_HOUR: f64 = 100.0;

const MIB: f64 = 1024.0 * 1024.0;

#[derive(Debug, PartialEq)]
struct Options {
    rounds: u32,
    /// Time from the attachment to the measurement.
    warm_up: Duration,
    /// Duration of a measurement.
    time: Duration,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self { rounds: 5, warm_up: WARM_UP, time: Duration::from_secs(60) };
        for pair in words.chunks(2) {
            let number = || -> Result<u32> {
                let value = pair.get(1).with_context(|| format!("{} needs a value", pair[0]))?;
                value.parse().ok().filter(|number| *number > 0).with_context(|| format!("{value} is not a number"))
            };
            match pair[0].as_str() {
                "--rounds" => options.rounds = number()?,
                "--warm-up" => options.warm_up = Duration::from_secs(number()?.into()),
                "--seconds" => options.time = Duration::from_secs(number()?.into()),
                word => bail!("unknown option {word}; there are --rounds N, --warm-up N and --seconds N"),
            }
        }
        Ok(options)
    }
}

/// Results of a round: one trace with a recording, and one without.
struct Round {
    /// Processor time with a recording, divided by the processor time without a recording.
    ratio: f64,
    mib_per_hour: f64,
    /// Run time of `memtrace report`.
    report: Duration,
}

/// Measures the ratio of memtrace's processor time with and without a recording, and prints a table.
///
/// # Errors
///
/// A step fails.
pub(crate) fn compare(workspace: &Workspace, words: &[String]) -> Result<()> {
    let options = Options::parse(words)?;
    let root = Root::obtain().context("memtrace traces as root")?;
    setup::for_soak()?;
    bpf::run(workspace)?;
    let memtrace = command::build_release(workspace)?;
    let folder = workspace.join("target/bench/recording");
    workspace::create_empty(&folder)?;
    ui::step(&format!(
        "Tracing the machine {} times for {} s",
        2 * options.rounds,
        (options.warm_up + options.time).as_secs()
    ));
    let workload = Workload::start(&folder)?;
    let mut rounds = Vec::new();
    for number in 0..options.rounds {
        // The order of the two traces alternates.
        let (with, without) = if number % 2 == 0 {
            let without = processor_time(root, &memtrace, &folder, false, &options)?;
            (processor_time(root, &memtrace, &folder, true, &options)?, without)
        } else {
            let with = processor_time(root, &memtrace, &folder, true, &options)?;
            (with, processor_time(root, &memtrace, &folder, false, &options)?)
        };
        rounds.push(round(root, with / without, &memtrace, &folder, options.warm_up + options.time)?);
    }
    workload.stop()?;
    ui::result(&format!("\n{}", table(&rounds)));
    Ok(())
}

/// Traces the machine, and returns the processor time of memtrace as a share of one processor.
fn processor_time(root: Root, memtrace: &Path, folder: &Path, is_recorded: bool, options: &Options) -> Result<f64> {
    let recording = folder.join("run.memtrace").display().to_string();
    let arguments = if is_recorded { vec![String::from("--record"), recording] } else { Vec::new() };
    let trace = Trace::start(root, memtrace, folder, &arguments)?;
    thread::sleep(options.warm_up);
    let (before, start) = (trace.processor_time()?, Instant::now());
    thread::sleep(options.time);
    let share = (trace.processor_time()? - before).as_secs_f64() / start.elapsed().as_secs_f64();
    trace.stop()?;
    Ok(share)
}

/// Returns the results of a round. `time` is the duration of its recording.
fn round(root: Root, ratio: f64, memtrace: &Path, folder: &Path, time: Duration) -> Result<Round> {
    let recording = folder.join("run.memtrace");
    let bytes = fs::metadata(&recording).with_context(|| format!("no {}", recording.display()))?.len();
    let start = Instant::now();
    let mut report = root.command(memtrace);
    report.arg("report").arg("-o").arg(folder.join("again.json")).arg(&recording);
    report.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = report.status().with_context(|| format!("cannot run {}", command::shown(&report)))?;
    // Exit code 20 means that events were lost.
    if !matches!(status.code(), Some(0 | 20)) {
        bail!("failed with {status}: {}", command::shown(&report));
    }
    let mib_per_hour = bytes as f64 / MIB / time.as_secs_f64() * 3600.0;
    Ok(Round { ratio, mib_per_hour, report: start.elapsed() })
}

fn table(rounds: &[Round]) -> String {
    let spread = |value: &dyn Fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let median = values.get(values.len() / 2).copied().unwrap_or_default();
        let (least, most) = (values.first().copied().unwrap_or_default(), values.last().copied().unwrap_or_default());
        format!("{median:.2} | {least:.2} to {most:.2}")
    };
    format!(
        "| | median | range | limit |\n|---|---:|---:|---:|\n\
         | processor time with a recording, divided by that without | {} | {MAX_RATIO} |\n\
         | MiB per hour | {} | {MAX_MIB_PER_HOUR} |\n| seconds for a report | {} | |",
        spread(&|round| round.ratio),
        spread(&|round| round.mib_per_hour),
        spread(&|round| round.report.as_secs_f64()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_defaults() {
        let parse = |words: &[&str]| Options::parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(parse(&[]).unwrap(), Options { rounds: 5, warm_up: WARM_UP, time: Duration::from_secs(60) });
        let short = parse(&["--seconds", "7", "--rounds", "1", "--warm-up", "3"]).unwrap();
        assert_eq!(short, Options { rounds: 1, warm_up: Duration::from_secs(3), time: Duration::from_secs(7) });
        for words in [&["--rounds"][..], &["--rounds", "0"], &["--x", "1"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn table_has_medians() {
        let round = |ratio| Round { ratio, mib_per_hour: 80.0, report: Duration::from_millis(1500) };
        let table = table(&[round(1.3), round(1.05), round(1.125)]);
        assert!(table.contains("divided by that without | 1.12 | 1.05 to 1.30 | 1.1 |"), "{table}");
        assert!(table.contains("| seconds for a report | 1.50 | 1.50 to 1.50 | |"), "{table}");
    }
}
