//! Resource usage that the kernel counts for processes, independent of tracing and sampling.

use crate::Bytes;

/// Page faults as the kernel counts them (`min_flt` and `maj_flt`, proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageFaults {
    /// Faults without I/O.
    pub minor: u64,
    /// Faults that waited for I/O.
    pub major: u64,
}

/// Resource usage of a process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rusage {
    /// Page faults.
    pub faults: PageFaults,
    /// High-water mark of the RSS, over all programs that the process ran.
    pub peak_rss: Bytes,
}

/// Resource usage of a process at the start of an image, or of tracing, and at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageRusage {
    /// At the start, if known.
    pub begin: Option<Rusage>,
    /// At the end, if known.
    pub end: Option<Rusage>,
}

impl PageFaults {
    /// Returns the sum of both kinds.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.minor.saturating_add(self.major)
    }
}

impl ImageRusage {
    /// Returns the page faults between start and end.
    #[must_use]
    pub fn faults(&self) -> Option<PageFaults> {
        let (begin, end) = (self.begin?.faults, self.end?.faults);
        Some(PageFaults { minor: end.minor.checked_sub(begin.minor)?, major: end.major.checked_sub(begin.major)? })
    }

    /// Returns the high-water mark of the RSS.
    #[must_use]
    pub fn peak_rss(&self) -> Option<Bytes> {
        [self.begin, self.end]
            .into_iter()
            .flatten()
            .map(|counts| counts.peak_rss)
            .max()
            .filter(|peak| *peak != Bytes(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_need_both_ends() {
        let counts = |minor, major, peak| Some(Rusage { faults: PageFaults { minor, major }, peak_rss: Bytes(peak) });
        let both = ImageRusage { begin: counts(10, 1, 4096), end: counts(17, 3, 0) };
        assert_eq!(both.faults(), Some(PageFaults { minor: 7, major: 2 }));
        assert_eq!(both.peak_rss(), Some(Bytes(4096)));
        assert_eq!(ImageRusage { begin: None, ..both }.faults(), None);
        assert_eq!(ImageRusage { end: None, ..both }.faults(), None);
        assert_eq!(ImageRusage { begin: both.end, end: both.begin }.faults(), None, "of another process");
        assert_eq!(ImageRusage { begin: None, end: counts(1, 0, 0) }.peak_rss(), None);
    }
}
