//! What is asked for.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// Which benchmark is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Benchmark {
    /// Nanoseconds a pair of malloc and free.
    Overhead,
    /// The slowdown of programs that nobody here wrote.
    Real,
    /// Nanoseconds that a stack takes, by its depth.
    Unwind,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) benchmark: Benchmark,
    /// The program that is measured.
    pub(crate) memtrace: PathBuf,
    /// The object of programs that do next to nothing.
    pub(crate) floor: PathBuf,
    /// How often each variant is measured.
    pub(crate) rounds: usize,
    /// How long a variant works in each round, of those that can work as long as one likes.
    pub(crate) slice: Duration,
    /// The share of the work that programs of a fixed length are given, in percent.
    pub(crate) scale: u64,
}

impl Options {
    /// Reads the command line.
    pub(crate) fn read(words: impl Iterator<Item = OsString>) -> Result<Self> {
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        let (name, options) = words.split_first().context("which benchmark? overhead, real or unwind")?;
        let (benchmark, rounds, slice_ms) = match name.as_str() {
            "overhead" => (Benchmark::Overhead, 15, 400),
            "real" => (Benchmark::Real, 7, 400),
            // Many short turns: whatever disturbs one of them spoils none of the others.
            "unwind" => (Benchmark::Unwind, 25, 50),
            other => bail!("there is no benchmark {other:?}"),
        };
        let mut read = Self {
            benchmark,
            memtrace: PathBuf::new(),
            floor: PathBuf::new(),
            rounds,
            slice: Duration::from_millis(slice_ms),
            scale: 100,
        };
        for pair in options.chunks(2) {
            let [name, value] = pair else { bail!("{:?} needs a value", pair[0]) };
            let number = || value.parse::<u64>().ok().filter(|&number| number > 0);
            let number = || number().with_context(|| format!("{name} needs a whole number above 0, not {value:?}"));
            match name.as_str() {
                "--memtrace" => read.memtrace = PathBuf::from(value),
                "--floor" => read.floor = PathBuf::from(value),
                "--rounds" => read.rounds = usize::try_from(number()?)?,
                "--slice-ms" => read.slice = Duration::from_millis(number()?),
                "--scale" => read.scale = number()?.min(100),
                other => bail!("there is no option {other:?}; there are --rounds, --slice-ms and --scale"),
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Options> {
        Options::read(words.iter().map(OsString::from))
    }

    #[test]
    fn options_are_read_as_they_are_given() {
        let read = read(&["real", "--memtrace", "/m", "--rounds", "3", "--scale", "200", "--slice-ms", "50"]).unwrap();
        assert_eq!((read.benchmark, read.rounds, read.scale), (Benchmark::Real, 3, 100));
        assert_eq!((read.memtrace, read.slice), (PathBuf::from("/m"), Duration::from_millis(50)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for words in [&[][..], &["fast"], &["real", "--rounds"], &["real", "--rounds", "0"], &["real", "--often", "3"]]
        {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
