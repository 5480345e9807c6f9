//! Address ranges.

use memtrace_model::{AbsAddr, Bytes};

/// Addresses from `start` up to, but not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: AbsAddr,
    pub(super) end: AbsAddr,
}

impl Span {
    pub(super) const fn length(self) -> Bytes {
        Bytes(self.end.0.saturating_sub(self.start.0))
    }

    pub(super) fn holds(self, address: AbsAddr) -> bool {
        self.start <= address && address < self.end
    }

    /// Returns the intersection; `None` if it is empty.
    pub(super) fn shared_with(self, other: Self) -> Option<Self> {
        let both = Self { start: self.start.max(other.start), end: self.end.min(other.end) };
        (both.start < both.end).then_some(both)
    }

    /// Returns the ranges of this span that are outside of `taken`. The spans of `taken` are ordered by address, and do
    /// not overlap.
    pub(super) fn without(self, taken: &[Self]) -> Vec<Self> {
        let mut left = Vec::new();
        let mut start = self.start;
        for part in taken.iter().filter_map(|part| self.shared_with(*part)) {
            left.extend(Self { start, end: part.start }.shared_with(self));
            start = start.max(part.end);
        }
        left.extend(Self { start, end: self.end }.shared_with(self));
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn span(start: u64, end: u64) -> Span {
        Span { start: AbsAddr(start), end: AbsAddr(end) }
    }

    #[test]
    fn without_returns_the_remaining_parts() {
        let whole = span(10, 20);
        assert_eq!(whole.without(&[]), [whole]);
        assert_eq!(whole.without(&[span(0, 12), span(14, 16), span(19, 30)]), [span(12, 14), span(16, 19)]);
        assert_eq!(whole.without(&[span(10, 12), span(12, 20)]), []);
        assert_eq!(whole.without(&[span(0, 5), span(20, 25)]), [whole]);
        assert_eq!(whole.without(&[span(0, 50)]), []);
    }

    #[test]
    fn a_span_contains_its_start_not_its_end() {
        let whole = span(10, 20);
        assert_eq!([9, 10, 19, 20].map(|at| whole.holds(AbsAddr(at))), [false, true, true, false]);
        assert_eq!((whole.length(), whole.shared_with(span(20, 30))), (Bytes(10), None));
    }
}
