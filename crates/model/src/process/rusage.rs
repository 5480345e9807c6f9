//! Rusage: page faults and peak RSS as the kernel counts them, independent of tracing and sampling.

use crate::Bytes;

/// Page faults as the kernel counts them (`min_flt` and `maj_flt`, proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageFaults {
    /// Faults without I/O.
    pub minor: u64,
    /// Faults that waited for I/O.
    pub major: u64,
}

/// Rusage of a process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rusage {
    /// Page faults of all images of the process.
    pub faults: PageFaults,
    /// High-water mark of the RSS of all images of the process.
    pub peak_rss: Bytes,
}

/// Rusage of a process at the begin and the end of an image. The begin is the start of tracing if the image ran before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageRusage {
    /// Rusage of the process at the begin, if known.
    pub begin: Option<Rusage>,
    /// Rusage of the process at the end, if known.
    pub end: Option<Rusage>,
}

impl PageFaults {
    /// Returns the number of minor and major faults.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.minor.saturating_add(self.major)
    }
}

impl ImageRusage {
    /// Returns the page faults between begin and end. Returns `None` if one of them is not known, or if a count
    /// decreased, because they then belong to different processes.
    #[must_use]
    pub fn faults(&self) -> Option<PageFaults> {
        let (begin, end) = (self.begin?.faults, self.end?.faults);
        Some(PageFaults { minor: end.minor.checked_sub(begin.minor)?, major: end.major.checked_sub(begin.major)? })
    }

    /// Returns the high-water mark of the RSS, if known.
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
