//! Code that descriptions cover.

/// Ranges of code in order, without overlap. Offsets are relative to the table's origin.
#[derive(Debug)]
pub(super) struct Coverage(Vec<(u32, u32)>);

impl Coverage {
    /// Returns the coverage of `ranges`. A range has a begin and an exclusive end.
    pub(super) fn new(ranges: impl Iterator<Item = (u32, u32)>) -> Self {
        let mut ranges: Vec<_> = ranges.collect();
        ranges.sort_unstable();
        let mut disjoint: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (begin, end) in ranges {
            match disjoint.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => disjoint.push((begin, end)),
            }
        }
        Self(disjoint)
    }

    /// Returns true if a part of the range is covered.
    pub(super) fn overlaps(&self, begin: u32, end: u32) -> bool {
        let after = self.0.partition_point(|range| range.0 < end);
        after.checked_sub(1).is_some_and(|last| self.0[last].1 > begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_found_at_the_borders_of_ranges() {
        let coverage = Coverage::new([(0x40, 0x50), (0x10, 0x20), (0x18, 0x30)].into_iter());
        for (begin, end, expected) in [
            (0, 0x10, false),
            (0, 0x11, true),
            (0x28, 0x2c, true),
            (0x2f, 0x40, true),
            (0x30, 0x40, false),
            (0x35, 0x41, true),
            (0x50, 0x60, false),
            (0, 0x100, true),
        ] {
            assert_eq!(coverage.overlaps(begin, end), expected, "{begin:#x}");
        }
        assert!(!Coverage::new(std::iter::empty()).overlaps(0, u32::MAX));
    }
}
