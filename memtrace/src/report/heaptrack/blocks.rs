//! Lines of allocations and frees with given sums.

use std::io;

use crate::model::{Amount, Bytes, Profile, StackProfile};
use crate::report::metrics::increase_of;

/// Blocks of the same size and stack. Their index of a line `a`, and their number.
type Equal = (u64, u64);

/// Allocations and frees of all stacks.
pub(super) struct Blocks {
    /// Number of lines `a` so far.
    infos: u64,
    /// Number of blocks that are written as one.
    combined: u64,
    temporary: Vec<Equal>,
    /// Freed, but not temporary. Two successive lines `a` describe the same block.
    freed: Vec<Equal>,
    held: Vec<Equal>,
}

/// Sums of a stack.
struct Sums {
    temporary: Amount,
    freed: Amount,
    held: Amount,
}

impl Sums {
    fn of(stack: &StackProfile) -> Self {
        let held = increase_of(stack.usage.live + stack.usage.exit);
        let freed = increase_of(stack.usage.alloc).saturating_sub(held);
        let temporary = increase_of(stack.usage.temporary).lesser(freed);
        Self { temporary, freed: freed.saturating_sub(temporary), held }
    }
}

impl Blocks {
    /// Prepares the blocks of `profile`, which are combined to about `most`, or one for each stack.
    pub(super) fn new(profile: &Profile, most: u64) -> Self {
        let number_of = |stack| {
            let sums = Sums::of(stack);
            [sums.freed, sums.temporary, sums.held].iter().fold(0, |sum: u64, part| sum.saturating_add(part.count))
        };
        let number = profile.stacks.iter().map(number_of).fold(0, u64::saturating_add);
        let combined = number.div_ceil(most).max(1);
        Self { infos: 0, combined, temporary: Vec::new(), freed: Vec::new(), held: Vec::new() }
    }

    /// Returns the number of blocks that are written as one.
    pub(super) const fn combined(&self) -> u64 {
        self.combined
    }

    /// Returns true if a stack has blocks.
    pub(super) fn has_any(stack: &StackProfile) -> bool {
        let Sums { temporary, freed, held } = Sums::of(stack);
        [temporary, freed, held].iter().any(|sum| sum.count > 0)
    }

    /// Writes the lines `a` of a stack with the number `trace`.
    pub(super) fn add(&mut self, stack: &StackProfile, trace: u64, out: &mut dyn io::Write) -> io::Result<()> {
        let sums = Sums::of(stack);
        let combined = self.combined;
        let combine = |sum: Amount| equal_sizes(Amount { count: sum.count.div_ceil(combined), ..sum });
        for (bytes, count) in combine(sums.temporary) {
            let info = self.info(bytes, trace, out)?;
            self.temporary.push((info, count));
        }
        for (bytes, count) in combine(sums.freed) {
            let info = self.info(bytes, trace, out)?;
            self.info(bytes, trace, out)?;
            self.freed.push((info, count));
        }
        for (bytes, count) in combine(sums.held) {
            let info = self.info(bytes, trace, out)?;
            self.held.push((info, count));
        }
        Ok(())
    }

    fn info(&mut self, bytes: Bytes, trace: u64, out: &mut dyn io::Write) -> io::Result<u64> {
        // heaptrack also takes index 0 for "no allocation before this free".
        if self.infos == 0 {
            writeln!(out, "a 0 {trace:x}")?;
            self.infos = 1;
        }
        writeln!(out, "a {:x} {trace:x}", bytes.0)?;
        self.infos += 1;
        Ok(self.infos - 1)
    }

    /// Writes the lines `+` and `-`. A block is temporary for heaptrack if the line after its allocation frees it.
    pub(super) fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut unpaired: Vec<_> =
            self.freed.iter().filter(|(_, count)| count % 2 == 1).map(|(info, _)| *info).collect();
        let last = if unpaired.len() % 2 == 1 { unpaired.pop() } else { None };
        if let Some(block) = last {
            writeln!(out, "+ {block:x}")?;
        }
        for pair in unpaired.chunks_exact(2) {
            let [one, other] = [pair[0], pair[1]];
            writeln!(out, "+ {one:x}\n+ {other:x}\n- {one:x}\n- {other:x}")?;
        }
        for &(one, count) in &self.freed {
            let other = one + 1;
            repeat(&format!("+ {one:x}\n+ {other:x}\n- {one:x}\n- {other:x}\n"), count / 2, out)?;
        }
        for &(block, count) in &self.temporary {
            repeat(&format!("+ {block:x}\n- {block:x}\n"), count, out)?;
        }
        // It is freed after another block, so that it is not temporary for heaptrack, unless it is the only one.
        let has_others = self.freed.iter().map(|(_, count)| count).sum::<u64>() > 1 || !self.temporary.is_empty();
        let mut held = self.held.iter().copied();
        if !has_others && let Some((block, count)) = held.next() {
            writeln!(out, "+ {block:x}")?;
            last.iter().try_for_each(|block| writeln!(out, "- {block:x}"))?;
            repeat(&format!("+ {block:x}\n"), count - 1, out)?;
        } else {
            last.iter().try_for_each(|block| writeln!(out, "- {block:x}"))?;
        }
        held.try_for_each(|(block, count)| repeat(&format!("+ {block:x}\n"), count, out))
    }
}

/// Returns sizes that differ by a byte, with the number of blocks of each, for a sum.
fn equal_sizes(sum: Amount) -> impl Iterator<Item = (Bytes, u64)> {
    let (size, larger) = match sum.count {
        0 => (0, 0),
        count => (sum.bytes.0 / count, sum.bytes.0 % count),
    };
    [(Bytes(size), sum.count - larger), (Bytes(size.saturating_add(1)), larger)]
        .into_iter()
        .filter(|(_, count)| *count > 0)
}

fn repeat(lines: &str, count: u64, out: &mut dyn io::Write) -> io::Result<()> {
    (0..count).try_for_each(|_| out.write_all(lines.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::model::{Partition, StackEnd, Usage};

    /// Sums that heaptrack finds.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Found {
        allocated: Amount,
        held: Amount,
        temporary: u64,
    }

    /// Reads lines as heaptrack 1.4 does.
    fn read(lines: &str) -> Found {
        let mut sizes = Vec::new();
        let mut found = Found::default();
        let mut last = 0;
        for line in lines.lines() {
            let (kind, rest) = line.split_once(' ').unwrap();
            let number = u64::from_str_radix(rest.split(' ').next().unwrap(), 16).unwrap();
            let block = |sizes: &[u64]| Amount::one(Bytes(sizes[number as usize]));
            match kind {
                "a" => sizes.push(number),
                "+" => {
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

    fn profile(usages: &[Usage]) -> Profile {
        let stack = |usage: &Usage| StackProfile {
            usage: *usage,
            ..StackProfile::new(0, Partition::Whole, Arc::from([]), StackEnd::Complete)
        };
        Profile { stacks: usages.iter().map(stack).collect(), ..Profile::default() }
    }

    fn written(profile: &Profile, most: u64) -> String {
        let mut blocks = Blocks::new(profile, most);
        let mut out = Vec::new();
        for (number, stack) in profile.stacks.iter().enumerate() {
            blocks.add(stack, number as u64 + 1, &mut out).unwrap();
        }
        blocks.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn usage(held: (u64, u64), freed: (u64, u64), temporary: (u64, u64)) -> Usage {
        let amount = |(count, bytes): (u64, u64)| Amount { count, bytes: Bytes(if count > 0 { bytes } else { 0 }) };
        let (held, freed, temporary) = (amount(held), amount(freed), amount(temporary));
        Usage { live: held, alloc: held + freed + temporary, free: freed + temporary, temporary, ..Usage::default() }
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
            let sum = usages.iter().fold(Usage::default(), |mut sum, usage| { sum += *usage; sum });
            let found = read(&written(&profile(&usages), u64::MAX));
            // A single block that is freed before anything else happens is temporary.
            let is_single = sum.alloc.count == 1 && sum.free.count == 1;
            let temporary = if is_single { 1 } else { sum.temporary.count };
            prop_assert_eq!(found, Found { allocated: sum.alloc, held: sum.live, temporary });
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
        let window = Usage { live: negative, alloc: Amount { bytes: Bytes(10), count: 1 }, ..Usage::default() };
        let merged = Usage { live: negative, alloc: negative, temporary: negative, ..Usage::default() };
        let found = read(&written(&profile(&[window, merged]), u64::MAX));
        assert_eq!((found.allocated, found.held), (Amount { bytes: Bytes(10), count: 1 }, Amount::default()));
    }
}
