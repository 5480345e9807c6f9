//! Lines of allocations and frees with given sums.

use std::io;

use crate::model::{Amount, Bytes, Profile, StackProfile};

/// Blocks of the same size and stack. Their index of a line `a`, and their number.
type Equal = (u64, u64);

/// Allocations and frees of all stacks.
pub(super) struct Blocks {
    /// Number of lines `a` so far.
    infos: u64,
    /// Number of freed blocks that are written as one.
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
        let usage = &stack.usage;
        let held = usage.live + usage.exit;
        // Decreases in a window of a recording.
        let is_negative = held.bytes.0.cast_signed() < 0 || held.count.cast_signed() < 0;
        let held = if is_negative { Amount::default() } else { held };
        let freed = usage.alloc.saturating_sub(held);
        let temporary = usage.temporary.lesser(freed);
        Self { temporary, freed: freed.saturating_sub(temporary), held }
    }
}

impl Blocks {
    /// Prepares the blocks of `profile`, of which at most about `max_freed` are freed.
    pub(super) fn new(profile: &Profile, max_freed: u64) -> Self {
        let freed_of = |stack| {
            let sums = Sums::of(stack);
            sums.freed.count.saturating_add(sums.temporary.count)
        };
        let freed = profile.stacks.iter().map(freed_of).fold(0, u64::saturating_add);
        let combined = freed.div_ceil(max_freed).max(1);
        Self { infos: 0, combined, temporary: Vec::new(), freed: Vec::new(), held: Vec::new() }
    }

    /// Returns the number of freed blocks that are written as one.
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
        let combined = |sum: Amount| Amount { count: sum.count.div_ceil(self.combined), ..sum };
        for (bytes, count) in equal_sizes(combined(sums.temporary)) {
            let info = self.info(bytes, trace, out)?;
            self.temporary.push((info, count));
        }
        let combined = |sum: Amount| Amount { count: sum.count.div_ceil(self.combined), ..sum };
        for (bytes, count) in equal_sizes(combined(sums.freed)) {
            let info = self.info(bytes, trace, out)?;
            self.info(bytes, trace, out)?;
            self.freed.push((info, count));
        }
        for (bytes, count) in equal_sizes(sums.held) {
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
        for &(block, count) in &self.held {
            repeat(&format!("+ {block:x}\n"), count, out)?;
        }
        // If it is the only block, it is temporary for heaptrack.
        if let Some(block) = last {
            writeln!(out, "- {block:x}")?;
        }
        Ok(())
    }
}

/// Returns sizes that differ by a byte, with the number of blocks of each, for a sum.
fn equal_sizes(sum: Amount) -> impl Iterator<Item = (Bytes, u64)> {
    let (size, larger) = match sum.count {
        0 => (0, 0),
        count => (sum.bytes.0 / count, sum.bytes.0 % count),
    };
    [(Bytes(size), sum.count - larger), (Bytes(size + 1), larger)].into_iter().filter(|(_, count)| *count > 0)
}

fn repeat(lines: &str, count: u64, out: &mut dyn io::Write) -> io::Result<()> {
    (0..count).try_for_each(|_| out.write_all(lines.as_bytes()))
}
