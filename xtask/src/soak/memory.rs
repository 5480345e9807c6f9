//! Samples of memtrace's memory.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// RSS at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Time since the programs started.
    pub(super) at: Duration,
    pub(super) rss: u64,
}

/// Returns the RSS in bytes from the content of `/proc/PID/status` (proc_pid_status(5)).
pub(super) fn rss(status: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("memtrace has no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS is not a number")?;
    Ok(kib * 1024)
}

/// Returns the growth in bytes per second since `settle`, by linear regression (least squares). It is 0 for fewer than
/// two samples.
pub(super) fn slope(samples: &[Sample], settle: Duration) -> f64 {
    let points = || samples.iter().filter(|one| one.at >= settle).map(|one| (one.at.as_secs_f64(), one.rss as f64));
    let count = points().count() as f64;
    let (mean_at, mean_rss) =
        (points().map(|one| one.0).sum::<f64>() / count, points().map(|one| one.1).sum::<f64>() / count);
    let spread: f64 = points().map(|(at, _)| (at - mean_at).powi(2)).sum();
    if spread > 0.0 { points().map(|(at, rss)| (at - mean_at) * (rss - mean_rss)).sum::<f64>() / spread } else { 0.0 }
}

/// Returns the samples as comma-separated values.
pub(super) fn csv(samples: &[Sample]) -> String {
    let mut text = String::from("seconds,rss_bytes\n");
    for Sample { at, rss } in samples {
        let _ = writeln!(text, "{:.1},{rss}", at.as_secs_f64());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rss: &[u64]) -> Vec<Sample> {
        let at = |index| Duration::from_secs(5 * index as u64);
        rss.iter().enumerate().map(|(index, &rss)| Sample { at: at(index), rss }).collect()
    }

    #[test]
    fn growth_before_settling_does_not_count() {
        let grown = samples(&[0, 900, 1000, 1000, 1000]);
        assert!(slope(&grown, Duration::ZERO) > 0.0);
        assert!(slope(&grown, Duration::from_secs(10)).abs() < 1e-9);
    }

    #[test]
    fn slope_of_steady_growth_is_its_rate() {
        assert!((slope(&samples(&[100, 600, 1100, 1600]), Duration::ZERO) - 100.0).abs() < 1e-9);
        // Worked out by hand: times 0, 5, 10 have mean 5; Σ(t−5)(r−m) = −5·(0−10) + 5·(30−10) = 150; Σ(t−5)² = 50.
        assert!((slope(&samples(&[0, 0, 30]), Duration::ZERO) - 3.0).abs() < 1e-9);
        assert!(slope(&samples(&[7]), Duration::ZERO).abs() < 1e-9);
    }

    #[test]
    fn rss_is_read_from_status() {
        assert_eq!(rss("Name:\tmemtrace\nVmRSS:\t   1024 kB\nRssAnon:\t 1 kB\n").unwrap(), 1 << 20);
        assert!(rss("Name:\tmemtrace\n").is_err());
    }
}
