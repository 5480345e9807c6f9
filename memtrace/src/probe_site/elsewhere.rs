//! Other code of the object that may jump behind a function's entry.

use crate::elf::Machine;

/// Addresses that nothing may jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Window {
    /// Whether `address` is one of them.
    pub(crate) fn holds(self, address: u64) -> bool {
        (self.first..=self.last).contains(&address)
    }
}

impl Machine {
    /// How many bytes it takes at most until readings of the same code have fallen in step, but for code that was made to
    /// be read in two ways.
    pub(crate) const PRELUDE: u64 = 128;

    /// Tells `found` which of `windows` something in `code`, which lies at `address`, may jump into, and from where. It is
    /// looked at from every byte, so that nothing depends on where instructions really begin: a far branch is not missed, and data that
    /// looks like one only costs a better probe.
    pub(crate) fn far_jump_into(
        self,
        code: &[u8],
        address: u64,
        windows: &[Window],
        mut found: impl FnMut(usize, u64),
    ) {
        let (Some(first), Some(last)) =
            (windows.iter().map(|window| window.first).min(), windows.iter().map(|window| window.last).max())
        else {
            return;
        };
        self.branches(code, address, |at, target| {
            if (first..=last).contains(&target) {
                for (place, _) in windows.iter().enumerate().filter(|(_, window)| window.holds(target)) {
                    found(place, at);
                }
            }
        });
    }

    /// The address of an instruction in `code`, which lies at `address`, that branches into `window`.
    ///
    /// Where in `code` the first instruction begins need not be known: it is read from each byte on at which that may be,
    /// so that one of the readings is the true one. The others fall in step with it within a few instructions; so what
    /// matters should lie [`Machine::PRELUDE`] bytes behind the beginning.
    pub(crate) fn jump_into(self, code: &[u8], address: u64, window: Window) -> Option<u64> {
        (0..=self.overlap()).find_map(|start| self.read(code, address, start, window))
    }

    /// As [`Machine::jump_into`], where the first instruction begins at `start`.
    fn read(self, code: &[u8], address: u64, start: usize, window: Window) -> Option<u64> {
        let mut at = start;
        while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
            let here = address.wrapping_add(at as u64);
            match self.decode(rest, here) {
                Some(found) if found.flow.target().is_some_and(|target| window.holds(target)) => return Some(here),
                Some(found) => at += found.length,
                None => at += self.alignment(),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { first: 0x1001, last: 0x1004 };

    fn far(code: &[u8], address: u64) -> Vec<(usize, u64)> {
        let mut found = Vec::new();
        Machine::X86_64.far_jump_into(code, address, &[WINDOW], |place, at| found.push((place, at)));
        found
    }

    #[test]
    fn a_far_jump_behind_the_entry_is_found_and_one_to_the_entry_is_not() {
        // jmp 0x1003, seen from 0x2000; then one to 0x1000 and one to 0x1005.
        let jump = |to: i32| [&[0xe9][..], &(to - 0x2005).to_le_bytes()].concat();
        assert_eq!(far(&jump(0x1003), 0x2000), [(0, 0x2000)]);
        assert_eq!(far(&jump(0x1000), 0x2000), []);
        assert_eq!(far(&jump(0x1005), 0x2000), []);
    }

    fn near(code: &[u8], address: u64) -> Option<u64> {
        Machine::X86_64.jump_into(code, address, WINDOW)
    }

    #[test]
    fn a_short_jump_from_beside_the_function_is_found() {
        // nop; jmp 0x1002 from before, from behind, and to the entry.
        assert_eq!(near(&[0x90, 0xeb, 0x0f], 0xff0), Some(0xff1));
        assert_eq!(near(&[0x75, 0xf0], 0x1010), Some(0x1010));
        assert_eq!(near(&[0xeb, 0x0e], 0xff0), None);
        // Undecodable bytes are passed over.
        assert_eq!(near(&[0x06, 0x75, 0xef], 0x1010), Some(0x1011));
    }

    #[test]
    fn a_number_that_looks_like_a_jump_is_none_where_the_code_before_it_is_long_enough() {
        // mov $0x000002e9,%eax and more of it: e9 02 00 00 00 seen from inside is a jump.
        let number = [0xb8, 0xe9, 0x02, 0x00, 0x00, 0x00];
        let window = Window { first: 0x1087, last: 0x1088 };
        let code = [&[0x90; 128][..], &number].concat();
        let mut far = Vec::new();
        Machine::X86_64.far_jump_into(&code, 0x1000, &[window], |_, at| far.push(at));
        assert_eq!(far, [0x1081]);
        assert_eq!(Machine::X86_64.jump_into(&code, 0x1000, window), None);
        // Without it, nobody knows.
        assert_eq!(Machine::X86_64.jump_into(&number, 0x1080, window), Some(0x1081));
        // And a true one is seen in whatever step the reading begins, with a prefix too.
        let code = [&[0x48, 0x89, 0xf8].repeat(43)[1..], &[0xf2, 0xe9, 0x02, 0x00, 0x00, 0x00]].concat();
        assert_eq!(Machine::X86_64.jump_into(&code, 0x1000, Window { first: 0x1088, last: 0x1088 }), Some(0x1080));
    }
}
