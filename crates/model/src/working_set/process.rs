//! Working set of a process.

use std::iter::Sum;
use std::ops::{AddAssign, Range};
use std::time::Duration;

use crate::Comm;
use crate::memory::MappingKind;
use crate::process::Pid;
use crate::units::{Bytes, PAGE};

/// Resident memory and referenced memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReferencedMemory {
    /// Resident bytes.
    pub resident: Bytes,
    /// Proportional set size: resident bytes, with each page divided by the number of processes that map it.
    pub pss: Bytes,
    /// Resident bytes of pages that are mapped more than once, by one process or several.
    pub shared: Bytes,
    /// Bytes of pages with a reference. This is an upper bound, because a huge page counts as a whole.
    pub referenced: Bytes,
    /// Lower bound of the referenced bytes. It counts one small page for each referenced huge page, and no page without
    /// tracked references.
    pub least_referenced: Bytes,
    /// Resident bytes in huge pages.
    pub huge: Bytes,
    /// Bytes that are swapped out. They are not resident.
    pub swap: Bytes,
}

impl ReferencedMemory {
    /// Returns the memory of a mapping with `huge` bytes in huge pages of `huge_page` bytes.
    ///
    /// The kernel reports the referenced bytes of a mapping, but not the referenced bytes in huge pages. The number of
    /// referenced huge pages is at most the number that fits into the referenced bytes.
    #[must_use]
    pub fn of_mapping(resident: Bytes, pss: Bytes, referenced: Bytes, huge: Bytes, huge_page: Bytes) -> Self {
        let most_huge = referenced.0.min(huge.0).checked_div(huge_page.0).unwrap_or(0);
        let untouched = huge_page.0.saturating_sub(PAGE.0).saturating_mul(most_huge);
        let least_referenced = Bytes(referenced.0.saturating_sub(untouched));
        Self { resident, pss, referenced, least_referenced, huge, ..Self::default() }
    }

    /// Returns the referenced share of the resident memory, from 0 to 1; `None` without resident memory.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.resident.0 > 0).then(|| self.referenced.0 as f64 / self.resident.0 as f64)
    }
}

impl AddAssign for ReferencedMemory {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in [
            (&mut self.resident, other.resident),
            (&mut self.pss, other.pss),
            (&mut self.shared, other.shared),
            (&mut self.referenced, other.referenced),
            (&mut self.least_referenced, other.least_referenced),
            (&mut self.huge, other.huge),
            (&mut self.swap, other.swap),
        ] {
            sum.0 = sum.0.saturating_add(more.0);
        }
    }
}

impl Sum for ReferencedMemory {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |mut sum, part| {
            sum += part;
            sum
        })
    }
}

/// Working set of a process. Times are since the start of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessWorkingSet {
    /// Process id.
    pub pid: Pid,
    /// Short name of the process when the references were cleared.
    pub comm: Comm,
    /// Begin and end of clearing the references.
    pub cleared: Range<Duration>,
    /// Begin and end of reading the references.
    pub read: Range<Duration>,
    /// Kinds of memory with pages that are resident or swapped out, ordered like [`MappingKind::ALL`].
    pub kinds: Vec<(MappingKind, ReferencedMemory)>,
    /// Size of the hugetlbfs pages. They are not part of the RSS, and the kernel does not report their references.
    pub hugetlb: Bytes,
    /// Resident bytes that are locked in memory (`mlock`); `None` if the method does not determine them.
    pub locked: Option<Bytes>,
    /// True if the process was frozen during clearing and during reading.
    pub paused: bool,
    /// Duration of reading the sizes of the mappings after the references; 0 for methods that read sizes and references together.
    pub sizes_time: Duration,
}

impl ProcessWorkingSet {
    /// Returns the estimated length of the period with counted references: from the middle of clearing to the middle of
    /// reading. A page in the middle of the address space is cleared and read at about these times. Pages with entries
    /// in a TLB count from the end of clearing on, so the error is at most half of the clearing time. A frozen process
    /// touches nothing during clearing and reading.
    #[must_use]
    pub fn duration(&self) -> Duration {
        if self.paused {
            return self.read.start.saturating_sub(self.cleared.end);
        }
        middle(&self.read).saturating_sub(middle(&self.cleared))
    }

    /// Returns the duration of clearing.
    #[must_use]
    pub fn clear_time(&self) -> Duration {
        length(&self.cleared)
    }

    /// Returns the duration of reading.
    #[must_use]
    pub fn read_time(&self) -> Duration {
        length(&self.read)
    }

    /// Returns the sum of all kinds.
    #[must_use]
    pub fn total(&self) -> ReferencedMemory {
        self.kinds.iter().map(|(_, memory)| *memory).sum()
    }

    /// Returns the memory of one kind; zeros if the process has none.
    #[must_use]
    pub fn of_kind(&self, kind: MappingKind) -> ReferencedMemory {
        self.kinds.iter().find(|(other, _)| *other == kind).map(|(_, memory)| *memory).unwrap_or_default()
    }
}

fn middle(span: &Range<Duration>) -> Duration {
    span.start + length(span) / 2
}

fn length(span: &Range<Duration>) -> Duration {
    span.end.saturating_sub(span.start)
}
