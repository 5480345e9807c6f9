//! Makes lines of allocations and frees that add up to the sums of each stack.

use std::io;

use memtrace_model::{Amount, Bytes, Profile, StackProfile};

/// Blocks of the same size and stack: index of their description, and number of blocks.
type Equal = (usize, u64);

/// Allocations and frees of all stacks.
pub(super) struct Blocks {
    /// Descriptions (lines `a`): size of a block, and number of its trace.
    descriptions: Vec<(Bytes, u64)>,
    /// Number of blocks of a stack that are written as one block.
    combined: u64,
    temporary: Vec<Equal>,
    /// Blocks that were freed but are not temporary. Each description is in `descriptions` twice, with the copy for the
    /// second block of a pair after the original.
    freed: Vec<Equal>,
    held: Vec<Equal>,
}

/// Sums over the temporary, other freed, and held blocks of a stack.
struct Sums {
    temporary: Amount,
    freed: Amount,
    held: Amount,
}

impl Sums {
    fn of(stack: &StackProfile) -> Self {
        let held = (stack.usage.live() + stack.usage.exit()).increase();
        let freed = stack.usage.alloc().increase().saturating_sub(held);
        let temporary = stack.usage.temporary().increase().lesser(freed);
        Self { temporary, freed: freed.saturating_sub(temporary), held }
    }
}

impl Blocks {
    /// Returns a value without blocks. The number of combined blocks is chosen so that about `most` blocks of
    /// `profile` are written, but at least one for each stack with blocks.
    pub(super) fn new(profile: &Profile, most: u64) -> Self {
        let number_of = |stack| {
            let sums = Sums::of(stack);
            [sums.freed, sums.temporary, sums.held].iter().fold(0, |sum: u64, part| sum.saturating_add(part.count))
        };
        let number = profile.stacks.iter().map(number_of).fold(0, u64::saturating_add);
        let combined = number.div_ceil(most).max(1);
        let (descriptions, temporary, freed, held) = Default::default();
        Self { descriptions, combined, temporary, freed, held }
    }

    /// Returns the number of blocks of a stack that are written as one block.
    pub(super) const fn combined(&self) -> u64 {
        self.combined
    }

    /// Returns true if a stack has blocks.
    pub(super) fn has_any(stack: &StackProfile) -> bool {
        let Sums { temporary, freed, held } = Sums::of(stack);
        [temporary, freed, held].iter().any(|sum| sum.count > 0)
    }

    /// Adds the blocks of a stack. `trace`: number of the stack's line `t`.
    pub(super) fn add(&mut self, stack: &StackProfile, trace: u64) {
        let sums = Sums::of(stack);
        let combined = self.combined;
        let combine = |sum: Amount| equal_sizes(Amount { count: sum.count.div_ceil(combined), ..sum });
        for (bytes, count) in combine(sums.temporary) {
            let block = self.describe(bytes, trace);
            self.temporary.push((block, count));
        }
        for (bytes, count) in combine(sums.freed) {
            let block = self.describe(bytes, trace);
            self.describe(bytes, trace);
            self.freed.push((block, count));
        }
        for (bytes, count) in combine(sums.held) {
            let block = self.describe(bytes, trace);
            self.held.push((block, count));
        }
    }

    fn describe(&mut self, bytes: Bytes, trace: u64) -> usize {
        self.descriptions.push((bytes, trace));
        self.descriptions.len() - 1
    }

    /// Writes the lines `a`, `+` and `-`. For heaptrack, a block is temporary if the line after its allocation frees
    /// it, or if its number is 0 and the line before its free is another free.
    pub(super) fn write(mut self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut lines =
            Lines { descriptions: &self.descriptions, numbers: vec![None; self.descriptions.len()], next: 0, out };
        let freed = self.freed.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        if freed == 1 && self.temporary.is_empty() {
            lines.allocate(self.freed[0].0)?;
            take_one(&mut self.held).map_or(Ok(()), |block| lines.allocate(block))?;
            lines.free(self.freed[0].0)?;
        } else {
            // If there is a held or a temporary block, it gets the number 0.
            if let Some(block) = take_one(&mut self.held) {
                lines.allocate(block)?;
            } else if let Some(block) = take_one(&mut self.temporary) {
                lines.allocate_and_free(&[block], 1)?;
            }
            let mut single: Vec<_> =
                self.freed.iter().filter(|(_, count)| count % 2 == 1).map(|(block, _)| *block).collect();
            let mut last = if single.len() % 2 == 1 { single.pop() } else { None };
            let of_singles = single.chunks_exact(2).map(|pair| (pair[0], pair[1], 1));
            let of_equal = self.freed.iter().map(|(block, count)| (*block, *block + 1, count / 2));
            for (one, other, times) in of_singles.chain(of_equal).filter(|(.., times)| *times > 0) {
                // A block without a partner is allocated and freed together with the first pair.
                let together = last.take().map(|last| lines.allocate_and_free(&[one, other, last + 1], 1));
                let times = times - u64::from(together.is_some());
                together.unwrap_or(Ok(()))?;
                lines.allocate_and_free(&[one, other], times)?;
            }
            last.map_or(Ok(()), |block| lines.allocate(block))?;
            for (block, count) in self.temporary {
                lines.allocate_and_free(&[block], count)?;
            }
            last.map_or(Ok(()), |block| lines.free(block))?;
        }
        self.held.into_iter().try_for_each(|(block, count)| (0..count).try_for_each(|_| lines.allocate(block)))
    }
}

/// Removes one block from the first entry, and returns the index of its description.
fn take_one(blocks: &mut Vec<Equal>) -> Option<usize> {
    let (block, count) = blocks.first_mut()?;
    let block = *block;
    *count -= 1;
    if *count == 0 {
        blocks.remove(0);
    }
    Some(block)
}

/// Writer of lines. `heaptrack_gui` needs descriptions in the order of their first use.
struct Lines<'a> {
    descriptions: &'a [(Bytes, u64)],
    /// Number of each description; `None` until it is written.
    numbers: Vec<Option<u64>>,
    next: u64,
    out: &'a mut dyn io::Write,
}

impl Lines<'_> {
    fn number(&mut self, block: usize) -> io::Result<u64> {
        if let Some(number) = self.numbers[block] {
            return Ok(number);
        }
        let (bytes, trace) = self.descriptions[block];
        writeln!(self.out, "a {:x} {trace:x}", bytes.0)?;
        let number = self.next;
        self.numbers[block] = Some(number);
        self.next += 1;
        Ok(number)
    }

    fn allocate(&mut self, block: usize) -> io::Result<()> {
        let number = self.number(block)?;
        writeln!(self.out, "+ {number:x}")
    }

    fn free(&mut self, block: usize) -> io::Result<()> {
        let number = self.number(block)?;
        writeln!(self.out, "- {number:x}")
    }

    /// Allocates blocks and frees them in the same order, `times` times.
    fn allocate_and_free(&mut self, blocks: &[usize], times: u64) -> io::Result<()> {
        for _ in 0..times {
            blocks.iter().try_for_each(|block| self.allocate(*block))?;
            blocks.iter().try_for_each(|block| self.free(*block))?;
        }
        Ok(())
    }
}

/// Divides a sum into blocks with sizes that differ by at most one byte. Returns each size with its number of blocks.
fn equal_sizes(sum: Amount) -> impl Iterator<Item = (Bytes, u64)> {
    let (size, larger) = match sum.count {
        0 => (0, 0),
        count => (sum.bytes.0 / count, sum.bytes.0 % count),
    };
    [(Bytes(size), sum.count - larger), (Bytes(size.saturating_add(1)), larger)]
        .into_iter()
        .filter(|(_, count)| *count > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use memtrace_model::{Part, Quantities, Quantity, StackEnd};
    use proptest::prelude::*;

    use super::*;

    /// Sums that heaptrack computes from the lines.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Found {
        allocated: Amount,
        held: Amount,
        temporary: u64,
    }

    /// Reads lines as heaptrack 1.4 does. heaptrack_gui needs the first allocations in the order of the descriptions
    /// (src/analyze/gui/parser.cpp, `handleAllocation`).
    fn read(lines: &str) -> Found {
        let mut sizes = Vec::new();
        let mut used = 0;
        let mut found = Found::default();
        let mut last = 0;
        for line in lines.lines() {
            let (kind, rest) = line.split_once(' ').unwrap();
            let number = u64::from_str_radix(rest.split(' ').next().unwrap(), 16).unwrap();
            let block = |sizes: &[u64]| Amount::one(Bytes(sizes[number as usize]));
            match kind {
                "a" => sizes.push(number),
                "+" => {
                    assert!(number <= used, "{number} is allocated before {used}: {lines}");
                    used = used.max(number + 1);
                    found.allocated += block(&sizes);
                    found.held += block(&sizes);
                    last = number;
                }
                _ => {
                    found.held -= block(&sizes);
                    found.temporary += u64::from(last == number);
                    last = 0;
                }
            }
        }
        found
    }

    fn profile(usages: &[Quantities]) -> Profile {
        let stack = |usage: &Quantities| StackProfile {
            usage: *usage,
            ..StackProfile::new(0, Part::WHOLE, Arc::from([]), StackEnd::Complete)
        };
        Profile { stacks: usages.iter().map(stack).collect(), ..Profile::default() }
    }

    fn written(profile: &Profile, most: u64) -> String {
        let mut blocks = Blocks::new(profile, most);
        for (number, stack) in profile.stacks.iter().enumerate() {
            blocks.add(stack, number as u64 + 1);
        }
        let mut out = Vec::new();
        blocks.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn usage(held: (u64, u64), freed: (u64, u64), temporary: (u64, u64)) -> Quantities {
        let amount = |(count, bytes): (u64, u64)| Amount { count, bytes: Bytes(if count > 0 { bytes } else { 0 }) };
        let (held, freed, temporary) = (amount(held), amount(freed), amount(temporary));
        Quantities::ZERO
            .with_amount(Quantity::LiveBytes, held)
            .with_amount(Quantity::AllocBytes, held + freed + temporary)
            .with_amount(Quantity::TemporaryBytes, temporary)
            .with_free(freed + temporary)
    }

    fn amounts() -> impl Strategy<Value = (u64, u64)> {
        (0..6_u64, 0..1000_u64)
    }

    proptest! {
        #[test]
        fn heaptrack_finds_the_sums(
            usages in prop::collection::vec((amounts(), amounts(), amounts()), 1..6),
        ) {
            let usages: Vec<_> = usages.into_iter().map(|(held, freed, temporary)| usage(held, freed, temporary)).collect();
            let sum = usages.iter().fold(Quantities::default(), |mut sum, usage| { sum += *usage; sum });
            let found = read(&written(&profile(&usages), u64::MAX));
            // If the file has one freed block, at most one temporary block and nothing else, the freed block is
            // temporary too.
            let has_others = sum.live().count > 0 || sum.temporary().count > 1 || sum.alloc().count > sum.temporary().count + 1;
            let temporary = if has_others { sum.temporary().count } else { sum.alloc().count };
            prop_assert_eq!(found, Found { allocated: sum.alloc(), held: sum.live(), temporary });
        }
    }

    #[test]
    fn many_blocks_are_combined_without_a_change_of_bytes() {
        let usages = [usage((1 << 40, 1 << 50), (1 << 41, 7 << 50), (0, 0)), usage((3, 70), (1, 5), (2, 9))];
        let profile = profile(&usages);
        let text = written(&profile, 1000);
        assert!(text.lines().count() < 2100, "{}", text.lines().count());
        let found = read(&text);
        assert_eq!(found.allocated.bytes, Bytes((8 << 50) + 84));
        assert_eq!(found.held.bytes, Bytes((1 << 50) + 70));
        assert!(Blocks::new(&profile, 1000).combined() > 1 << 31);
    }

    #[test]
    fn decreases_in_a_window_are_left_out() {
        let negative = Amount { bytes: Bytes(0_u64.wrapping_sub(50)), count: 0_u64.wrapping_sub(2) };
        let window = Quantities::ZERO
            .with_amount(Quantity::LiveBytes, negative)
            .with_amount(Quantity::AllocBytes, Amount { bytes: Bytes(10), count: 1 });
        let merged = Quantities::ZERO
            .with_amount(Quantity::LiveBytes, negative)
            .with_amount(Quantity::AllocBytes, negative)
            .with_amount(Quantity::TemporaryBytes, negative);
        let found = read(&written(&profile(&[window, merged]), u64::MAX));
        assert_eq!((found.allocated, found.held), (Amount { bytes: Bytes(10), count: 1 }, Amount::default()));
    }
}
