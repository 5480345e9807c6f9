//! Samples of memtrace's memory.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// RSS of memtrace at a moment, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Time since the start of the workload.
    pub(super) at: Duration,
    pub(super) rss: u64,
}

/// Returns the RSS in bytes from the content of `/proc/PID/status` (proc_pid_status(5)).
pub(super) fn rss(status: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("memtrace has no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS is not a number")?;
    Ok(kib * 1024)
}

/// Returns the growth of the RSS after `settle`, in bytes per second, by linear regression (least squares). It is 0 for
/// fewer than two samples.
pub(super) fn slope(samples: &[Sample], settle: Duration) -> f64 {
    let points = || samples.iter().filter(|one| one.at >= settle).map(|one| (one.at.as_secs_f64(), one.rss as f64));
    let count = points().count() as f64;
    let (mean_at, mean_rss) =
        (points().map(|one| one.0).sum::<f64>() / count, points().map(|one| one.1).sum::<f64>() / count);
    let spread: f64 = points().map(|(at, _)| (at - mean_at).powi(2)).sum();
    if spread > 0.0 { points().map(|(at, rss)| (at - mean_at) * (rss - mean_rss)).sum::<f64>() / spread } else { 0.0 }
}

/// Length of the time blocks in [`certain_growth`]. memtrace merges ended processes every few seconds, so its RSS rises
/// and falls by a tenth. The RSS is lowest after a merge. The lowest RSS in a time block is therefore the memory that
/// stays.
const BLOCK: Duration = Duration::from_secs(20);

/// Value that a standard normal variable exceeds with a probability of 1 %.
const DEVIATE: f64 = 2.326;

/// Returns a lower bound of the growth of the RSS after `settle`, in bytes per second, with a confidence of 99 %;
/// `None` for fewer than six time blocks.
///
/// The bound is the lower confidence limit of Sen's slope, the median of the slopes between all pairs of blocks (Sen,
/// "Estimates of the Regression Coefficient Based on Kendall's Tau", 1968). No distribution of the RSS is assumed, and
/// single outliers have no influence.
pub(super) fn certain_growth(samples: &[Sample], settle: Duration) -> Option<f64> {
    let mut lowest: BTreeMap<u64, u64> = BTreeMap::new();
    for Sample { at, rss } in samples.iter().filter(|one| one.at >= settle) {
        let block = (*at - settle).as_secs() / BLOCK.as_secs();
        lowest.entry(block).and_modify(|least| *least = (*least).min(*rss)).or_insert(*rss);
    }
    let points: Vec<_> = lowest.iter().map(|(&block, &rss)| (block as f64 * BLOCK.as_secs_f64(), rss as f64)).collect();
    let pairs =
        points.iter().enumerate().flat_map(|(nth, one)| points[nth + 1..].iter().map(move |other| (one, other)));
    let mut slopes: Vec<f64> = pairs.map(|(one, other)| (other.1 - one.1) / (other.0 - one.0)).collect();
    slopes.sort_by(f64::total_cmp);
    let blocks = points.len() as f64;
    // If there is no trend, this is the variance of the difference between the numbers of rising and of falling pairs (Kendall).
    let variance = blocks * (blocks - 1.0) * 2.0f64.mul_add(blocks, 5.0) / 18.0;
    let rank = (slopes.len() as f64 - DEVIATE * variance.sqrt()) / 2.0;
    slopes.into_iter().zip(1..).take_while(|&(_, nth)| f64::from(nth) <= rank).last().map(|(slope, _)| slope)
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
        // Computed by hand: times 0, 5, 10 have mean 5; Σ(t−5)(r−m) = −5·(0−10) + 5·(30−10) = 150; Σ(t−5)² = 50.
        assert!((slope(&samples(&[0, 0, 30]), Duration::ZERO) - 3.0).abs() < 1e-9);
        assert!(slope(&samples(&[7]), Duration::ZERO).abs() < 1e-9);
    }

    /// Returns a sample for each second: a growth in bytes per second, and a sawtooth with a period of 10 s, as merges
    /// of ended processes cause it.
    fn sawtooth(seconds: u64, growth: u64) -> Vec<Sample> {
        const MIB: u64 = 1 << 20;
        let rss = |second: u64| 160 * MIB + second * 7 % 10 * 2 * MIB + growth * second;
        (0..seconds).map(|second| Sample { at: Duration::from_secs(second), rss: rss(second) }).collect()
    }

    #[test]
    fn sawtooth_is_no_growth() {
        let growth = |rate| certain_growth(&sawtooth(300, rate), Duration::from_secs(120)).unwrap();
        assert!(growth(0).abs() < 1e-9);
        assert!((growth(1000) - 1000.0).abs() < 1e-9);
    }

    #[test]
    fn growth_of_few_blocks_is_unknown() {
        assert!(certain_growth(&sawtooth(120, 1000), Duration::ZERO).is_some());
        assert_eq!(certain_growth(&sawtooth(100, 1000), Duration::ZERO), None);
        assert_eq!(certain_growth(&[], Duration::ZERO), None);
    }

    #[test]
    fn growth_that_one_block_contradicts_is_not_certain() {
        let growth = |lowest: [u64; 6]| {
            let at = |block: usize| Duration::from_secs(20 * block as u64);
            let samples = lowest.iter().enumerate().map(|(block, &rss)| Sample { at: at(block), rss });
            certain_growth(&samples.collect::<Vec<_>>(), Duration::ZERO).unwrap()
        };
        // Computed by hand: the rank among the 15 slopes is (15 - 2.326 * sqrt(6 * 5 * 17 / 18)) / 2 = 1.3, the lowest.
        assert!((growth([0, 20, 40, 60, 80, 200]) - 1.0).abs() < 1e-9);
        assert!((growth([0, 20, 40, 60, 80, 60]) + 1.0).abs() < 1e-9);
        assert!(growth([100, 100, 100, 100, 100, 900]).abs() < 1e-9);
    }

    #[test]
    fn rss_is_read_from_status() {
        assert_eq!(rss("Name:\tmemtrace\nVmRSS:\t   1024 kB\nRssAnon:\t 1 kB\n").unwrap(), 1 << 20);
        assert!(rss("Name:\tmemtrace\n").is_err());
    }
}
