//! Options of `cargo xtask soak`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::tier::Tier;

/// Initial time that memory may grow, because programs, libraries and stacks occur for the first time. In a run of half an
/// hour, the slope was 2.3 MiB per 10 minutes from the fifth minute on, 0.6 from the tenth, and -0.2 from the 15th.
const SETTLE: Duration = Duration::from_secs(10 * 60);

/// Duration in the short tier of `cargo xtask test`.
const SHORT: Duration = Duration::from_secs(60);

/// Duration in the long tier. In shorter runs, the slope of all samples is not compared with a limit, because it is
/// inaccurate. The RSS rises and falls by some 10 MiB. So the standard error of the slope is about 10 MiB per 10
/// minutes in a run of 3 minutes, and 0.4 in a run of 25 minutes.
pub(super) const LONG: Duration = Duration::from_secs(30 * 60);

/// Measured values that are compared with limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limited {
    /// Memory and losses. The other values depend on the build, on the machine and on the duration.
    MemoryAndLosses,
    All,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) duration: Duration,
    pub(super) limited: Limited,
    /// Path of the memtrace to run; `None` to build it.
    pub(super) memtrace: Option<PathBuf>,
    /// Further arguments of memtrace.
    pub(super) arguments: Vec<String>,
}

impl Options {
    pub(super) fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self::all_limits(Duration::from_secs(3600));
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--minutes" => options.duration = minutes(value()?)?,
                "--memtrace" => options.memtrace = Some(PathBuf::from(value()?)),
                "--" => options.arguments = words.by_ref().cloned().collect(),
                _ => bail!("unknown option {word}; there are --minutes N, --memtrace FILE and -- OPTION…"),
            }
        }
        Ok(options)
    }

    /// Returns the options for a tier of `cargo xtask test`. The short tier runs `memtrace`, the build of the tests.
    pub(super) fn of_tier(tier: Tier, memtrace: PathBuf) -> Self {
        match tier {
            Tier::Short => {
                Self { limited: Limited::MemoryAndLosses, memtrace: Some(memtrace), ..Self::all_limits(SHORT) }
            }
            Tier::Long => Self::all_limits(LONG),
        }
    }

    const fn all_limits(duration: Duration) -> Self {
        Self { duration, limited: Limited::All, memtrace: None, arguments: Vec::new() }
    }

    /// Returns the time at the start that the slope of the RSS leaves out: ten minutes, or two fifths of a short run.
    pub(super) fn settle(&self) -> Duration {
        SETTLE.min(self.duration * 2 / 5)
    }
}

fn minutes(text: &str) -> Result<Duration> {
    let minutes: f64 = text.parse().with_context(|| format!("{text} is not a number of minutes"))?;
    Duration::try_from_secs_f64(minutes * 60.0).with_context(|| format!("{text} is not a duration in minutes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options> {
        Options::parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn an_hour_is_the_default() {
        let options = parse(&[]).unwrap();
        assert_eq!((options.duration.as_secs(), options.settle().as_secs()), (3600, 600));
    }

    #[test]
    fn short_runs_settle_for_two_fifths() {
        let options = parse(&["--minutes", "1.5", "--memtrace", "m", "--", "--shards", "2"]).unwrap();
        assert_eq!((options.duration.as_secs(), options.settle().as_secs()), (90, 36));
        assert_eq!((options.memtrace, options.arguments.len()), (Some(PathBuf::from("m")), 2));
    }

    #[test]
    fn short_tier_runs_the_build_of_the_tests_for_a_minute() {
        let short = Options::of_tier(Tier::Short, PathBuf::from("m"));
        assert_eq!((short.duration.as_secs(), short.limited), (60, Limited::MemoryAndLosses));
        assert_eq!(short.memtrace, Some(PathBuf::from("m")));
    }

    #[test]
    fn long_tier_has_all_limits() {
        let long = Options::of_tier(Tier::Long, PathBuf::from("m"));
        assert_eq!((long.duration.as_secs(), long.limited, long.memtrace), (1800, Limited::All, None));
    }

    #[test]
    fn invalid_options_are_named() {
        for (words, expected) in [
            (&["--minutes"][..], "needs a value"),
            (&["--minutes", "-1"], "not a duration"),
            (&["--x"], "unknown option"),
        ] {
            assert!(parse(words).unwrap_err().to_string().contains(expected), "{words:?}");
        }
    }
}
