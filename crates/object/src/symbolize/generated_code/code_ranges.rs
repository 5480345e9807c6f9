//! Named address ranges, each valid from a time on.

/// Maximum number of ranges of a file that are kept. A process has far fewer functions.
pub(super) const MAX_RANGES: usize = 1 << 20;
/// Maximum number of bytes of all names of a file.
pub(super) const MAX_NAME_BYTES: usize = 64 << 20;
/// Maximum length in bytes of a name that is kept. V8 writes at most 4 KiB (`kUtf8BufferSize`, src/logging/log.cc).
pub(super) const MAX_NAME: usize = 4096;
/// Maximum length of a range in bytes.
const MAX_CODE_BYTES: u64 = 1 << 30;
/// Maximum number of ranges that are examined for an address. Only a hostile file needs more: functions do not
/// overlap, and an address is not reused this often.
const MAX_EXAMINED: usize = 4096;

/// Named address ranges. A range is valid from its time on, until a later range covers it.
#[derive(Debug, Default)]
pub(super) struct CodeRanges {
    /// Ranges, which [`CodeRanges::finish`] orders by start, then by time.
    ranges: Vec<Range>,
    /// For each range, the highest end among this range and the ranges before it.
    highest_end: Vec<u64>,
    names: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    start: u64,
    end: u64,
    /// Start of the range's validity: time in nanoseconds, or position of the range in a file without times.
    from: u64,
    name: (u32, u32),
}

/// Position and length of a name in [`CodeRanges`].
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredName((u32, u32));

impl CodeRanges {
    /// Stores a name. Returns `None` if there is no space, or if the name is empty.
    pub(super) fn store(&mut self, name: &[u8]) -> Option<StoredName> {
        let name = &name[..name.len().min(MAX_NAME)];
        if name.is_empty() || self.names.len() + name.len() > MAX_NAME_BYTES {
            return None;
        }
        let start = self.names.len() as u32;
        self.names.extend_from_slice(name);
        Some(StoredName((start, name.len() as u32)))
    }

    /// Adds a range of `bytes` bytes from the address `start` on. `from` is its time. Returns false if there is no
    /// space. A range that cannot be code is ignored.
    pub(super) fn add(&mut self, start: u64, bytes: u64, from: u64, name: StoredName) -> bool {
        if self.ranges.len() >= MAX_RANGES {
            return false;
        }
        if bytes != 0
            && bytes <= MAX_CODE_BYTES
            && let Some(end) = start.checked_add(bytes)
        {
            self.ranges.push(Range { start, end, from, name: name.0 });
        }
        true
    }

    /// Orders the ranges for [`CodeRanges::find`].
    pub(super) fn finish(mut self) -> Self {
        self.ranges.sort_by_key(|range| (range.start, range.from));
        let mut highest = 0;
        let ends = self.ranges.iter().map(|range| {
            highest = range.end.max(highest);
            highest
        });
        self.highest_end = ends.collect();
        self
    }

    /// Returns the name of `address` at the time `at`. It is the name of the last range before this time, or else of
    /// the first range after it.
    pub(super) fn find(&self, address: u64, at: u64) -> Option<&[u8]> {
        let begun = self.ranges.partition_point(|range| range.start <= address);
        let (mut before, mut after): (Option<&Range>, Option<&Range>) = (None, None);
        for index in (0..begun).rev().take(MAX_EXAMINED) {
            if self.highest_end[index] <= address {
                break;
            }
            let range = &self.ranges[index];
            if range.end <= address {
                continue;
            }
            if range.from <= at {
                before = before.filter(|found| found.from >= range.from).or(Some(range));
            } else {
                after = after.filter(|found| found.from <= range.from).or(Some(range));
            }
        }
        let (start, length) = before.or(after)?.name;
        self.names.get(start as usize..(start + length) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(all: &[(u64, u64, u64, &str)]) -> CodeRanges {
        let mut ranges = CodeRanges::default();
        for &(start, bytes, from, name) in all {
            let name = ranges.store(name.as_bytes()).unwrap();
            assert!(ranges.add(start, bytes, from, name));
        }
        ranges.finish()
    }

    fn name(ranges: &CodeRanges, address: u64, at: u64) -> Option<&str> {
        ranges.find(address, at).map(|name| std::str::from_utf8(name).unwrap())
    }

    #[test]
    fn last_range_before_the_time_has_the_name() {
        let ranges = ranges(&[(100, 50, 5, "first"), (100, 20, 9, "second"), (110, 50, 7, "between")]);
        let names = |address| [0, 5, 7, 8, 9, 99].map(|at| name(&ranges, address, at).unwrap_or("-"));
        assert_eq!(names(99), ["-"; 6]);
        assert_eq!(names(100), ["first", "first", "first", "first", "second", "second"]);
        assert_eq!(names(110), ["first", "first", "between", "between", "second", "second"]);
        assert_eq!(names(120), ["first", "first", "between", "between", "between", "between"]);
        assert_eq!(names(155), ["between"; 6]);
        assert_eq!(names(160), ["-"; 6]);
    }

    #[test]
    fn impossible_ranges_are_ignored() {
        let ranges = ranges(&[(100, 0, 1, "empty"), (u64::MAX - 5, 10, 1, "wraps"), (0, u64::MAX, 1, "everything")]);
        assert_eq!(name(&ranges, 100, 9), None);
        assert_eq!(name(&ranges, u64::MAX - 1, 9), None);
    }

    #[test]
    fn long_names_are_cut_and_empty_ones_refused() {
        let mut ranges = CodeRanges::default();
        assert!(ranges.store(b"").is_none());
        let name = ranges.store(&[b'x'; MAX_NAME + 9]).unwrap();
        assert!(ranges.add(1, 1, 0, name));
        assert_eq!(ranges.finish().find(1, 0).map(<[u8]>::len), Some(MAX_NAME));
    }
}
