//! The program that allocates and frees in pairs, and times itself.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::child::{Child, Errors};
use crate::libc_copy::LibcCopy;

/// How many frames of the victim's own lie above malloc.
pub(crate) const FRAMES: usize = 5;

/// Where a program of `victims/` was built.
pub(crate) fn program(name: &str) -> PathBuf {
    Path::new(env!("OUT_DIR")).join(name)
}

/// The pid of a child that says `ready PID` first.
pub(crate) fn ready(child: &mut Child) -> Result<u32> {
    let line = child.line()?;
    let pid = line.strip_prefix("ready ").and_then(|pid| pid.parse().ok());
    pid.with_context(|| format!("not ready, but {line:?}"))
}

/// A victim that waits for work.
pub(crate) struct Victim {
    child: Child,
    pid: u32,
}

/// What it says of its work.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Work {
    pairs: u64,
    ns: u64,
    /// How many of its threads ran at a time.
    processors: u64,
}

impl Work {
    /// Nanoseconds of a processor's time that a pair took.
    pub(crate) fn ns_a_pair(&self) -> f64 {
        (self.ns * self.processors) as f64 / self.pairs.max(1) as f64
    }

    /// How many pairs go into that time.
    pub(crate) fn pairs_in(&self, time: Duration) -> u64 {
        let pairs = time.as_nanos() * u128::from(self.pairs) / u128::from(self.ns.max(1));
        u64::try_from(pairs).unwrap_or(u64::MAX)
    }
}

impl Victim {
    /// Starts it, with some variables in its environment.
    pub(crate) fn start(
        libc: &LibcCopy,
        mode: &str,
        processors: &str,
        environment: &[(&str, OsString)],
    ) -> Result<Self> {
        let mut command = libc.command(&program("pairs"));
        command.args([mode, processors]).envs(environment.iter().map(|(name, value)| (name, value)));
        let mut child = Child::start(&mut command, Errors::Shown)?;
        let pid = ready(&mut child)?;
        Ok(Self { child, pid })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Has it do so many pairs.
    pub(crate) fn work(&mut self, pairs: u64) -> Result<Work> {
        self.child.tell(&pairs.to_string())?;
        serde_json::from_str(&self.child.line()?).context("the victim speaks in riddles")
    }

    /// Ends it.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.child.close_input();
        self.child.wait()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_takes_its_share_of_all_processors_that_worked() {
        let work = Work { pairs: 1000, ns: 50_000, processors: 4 };
        assert!((work.ns_a_pair() - 200.0).abs() < f64::EPSILON);
        assert_eq!(work.pairs_in(Duration::from_micros(100)), 2000);
    }
}
