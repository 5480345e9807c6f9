//! Command line of the benchmarks.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Benchmark {
    /// Time per pair of malloc and free.
    Overhead,
    /// Slowdown of real programs.
    Real,
    /// Time per stack, by stack depth.
    Unwind,
    /// Time per span of a thread's activity.
    Spans,
    /// Time to read the heap profile of a Go program.
    Go,
    /// Cost of sampled traces of running programs.
    Sampled,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) benchmark: Benchmark,
    /// Path of the measured memtrace.
    pub(crate) memtrace: PathBuf,
    /// Path of the object with the minimal BPF programs.
    pub(crate) floor: PathBuf,
    pub(crate) rounds: usize,
    /// Duration of a measurement, for victims that run a given number of pairs or spans, and for programs that repeat their work.
    pub(crate) slice: Duration,
    /// Amount of work of the real programs, in percent of the default.
    pub(crate) scale: u64,
    /// Folder with another C library and its dynamic linker, for the victims of [`Benchmark::Overhead`]; `None` for the
    /// C library of this process.
    pub(crate) libc: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(words: impl Iterator<Item = OsString>) -> Result<Self> {
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        let (name, options) =
            words.split_first().context("missing benchmark: overhead, real, unwind, spans, go or sampled")?;
        let (benchmark, rounds, slice_ms) = match name.as_str() {
            "overhead" => (Benchmark::Overhead, 15, 400),
            "real" => (Benchmark::Real, 7, 400),
            // Many short measurements, so that a disturbance spoils only one of them.
            "unwind" => (Benchmark::Unwind, 25, 50),
            "spans" => (Benchmark::Spans, 15, 100),
            "go" => (Benchmark::Go, 50, 400),
            "sampled" => (Benchmark::Sampled, 7, 700),
            other => bail!("unknown benchmark {other:?}: use overhead, real, unwind, spans, go or sampled"),
        };
        let mut parsed = Self {
            benchmark,
            memtrace: PathBuf::new(),
            floor: PathBuf::new(),
            rounds,
            slice: Duration::from_millis(slice_ms),
            scale: 100,
            libc: None,
        };
        for pair in options.chunks(2) {
            let [name, value] = pair else { bail!("{:?} needs a value", pair[0]) };
            let number = || value.parse::<u64>().ok().filter(|&number| number > 0);
            let number = || number().with_context(|| format!("{name} needs a positive integer, not {value:?}"));
            match name.as_str() {
                "--memtrace" => parsed.memtrace = PathBuf::from(value),
                "--floor" => parsed.floor = PathBuf::from(value),
                "--rounds" => parsed.rounds = usize::try_from(number()?)?,
                "--slice-ms" => parsed.slice = Duration::from_millis(number()?),
                "--libc" => parsed.libc = Some(PathBuf::from(value)),
                "--scale" => parsed.scale = number()?.min(100),
                other => bail!("unknown option {other:?}: use --rounds, --slice-ms, --scale or --libc"),
            }
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options> {
        Options::parse(words.iter().map(OsString::from))
    }

    #[test]
    fn options_override_the_defaults() {
        let options =
            parse(&["real", "--memtrace", "/m", "--rounds", "3", "--scale", "200", "--slice-ms", "50"]).unwrap();
        assert_eq!((options.benchmark, options.rounds, options.scale), (Benchmark::Real, 3, 100));
        assert_eq!((options.memtrace, options.slice), (PathBuf::from("/m"), Duration::from_millis(50)));
    }

    #[test]
    fn invalid_command_lines_are_errors() {
        for words in [&[][..], &["fast"], &["real", "--rounds"], &["real", "--rounds", "0"], &["real", "--often", "3"]]
        {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
