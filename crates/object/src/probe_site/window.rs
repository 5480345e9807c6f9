//! Search for jumps from other code of an object into a window: the addresses between a function's entry and its
//! probe site.

use crate::elf::Machine;

/// Range of addresses, with both ends, that must not be jump targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub first: u64,
    pub last: u64,
}

impl Window {
    pub fn contains(self, address: u64) -> bool {
        (self.first..=self.last).contains(&address)
    }
}

/// Number of bytes until decodings of the same code from different offsets have synchronized. Only code that was written to be
/// decoded in two ways needs more bytes.
pub(crate) const PRELUDE: u64 = 128;

/// Searches `code`, which lies at `address`, for byte sequences that may be far branches into one of the windows.
/// Calls `on_jump` with the index of the window and the address of the sequence. Instruction boundaries are ignored,
/// so no far branch is missed. Data that looks like a branch only prevents a better probe site.
pub(crate) fn far_jump_into(
    machine: Machine,
    code: &[u8],
    address: u64,
    windows: &[Window],
    mut on_jump: impl FnMut(usize, u64),
) {
    let (Some(first), Some(last)) =
        (windows.iter().map(|window| window.first).min(), windows.iter().map(|window| window.last).max())
    else {
        return;
    };
    machine.branches(code, address, |at, target| {
        if (first..=last).contains(&target) {
            for (index, _) in windows.iter().enumerate().filter(|(_, window)| window.contains(target)) {
                on_jump(index, at);
            }
        }
    });
}

/// Returns the address of an instruction in `code` that branches into `window`. `code` lies at `address`. Ignores instructions
/// at addresses that `is_other` rejects.
///
/// The offset of the first instruction in `code` need not be known: decoding starts at every possible offset, so one
/// of the decodings is correct. The others synchronize with it within a few instructions. So the code of interest
/// should lie [`PRELUDE`] bytes after the start.
pub(crate) fn jump_into(
    machine: Machine,
    code: &[u8],
    address: u64,
    window: Window,
    is_other: impl Fn(u64) -> bool,
) -> Option<u64> {
    (0..=machine.overlap()).find_map(|start| jump_into_from(machine, code, address, start, window, &is_other))
}

/// Same as [`jump_into`], but decoding starts at offset `start` only.
fn jump_into_from(
    machine: Machine,
    code: &[u8],
    address: u64,
    start: usize,
    window: Window,
    is_other: impl Fn(u64) -> bool,
) -> Option<u64> {
    let is_jump =
        |here: u64, target: Option<u64>| target.is_some_and(|target| window.contains(target)) && is_other(here);
    let mut at = start;
    while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
        let here = address.wrapping_add(at as u64);
        match machine.decode(rest, here) {
            Some(decoded) if is_jump(here, decoded.flow.target()) => return Some(here),
            Some(decoded) => at += decoded.length,
            None => at += machine.alignment(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { first: 0x1001, last: 0x1004 };

    fn far(code: &[u8], address: u64) -> Vec<(usize, u64)> {
        let mut found = Vec::new();
        far_jump_into(Machine::X86_64, code, address, &[WINDOW], |index, at| found.push((index, at)));
        found
    }

    #[test]
    fn far_jumps_into_the_window_are_found() {
        // At 0x2000: jmp 0x1003, then jmp 0x1000 and jmp 0x1005.
        let jump = |to: i32| [&[0xe9][..], &(to - 0x2005).to_le_bytes()].concat();
        assert_eq!(far(&jump(0x1003), 0x2000), [(0, 0x2000)]);
        assert_eq!(far(&jump(0x1000), 0x2000), []);
        assert_eq!(far(&jump(0x1005), 0x2000), []);
    }

    fn near(code: &[u8], address: u64) -> Option<u64> {
        jump_into(Machine::X86_64, code, address, WINDOW, |_| true)
    }

    #[test]
    fn short_jumps_from_neighbouring_code_are_found() {
        // A jump to 0x1002 from a lower address, a jump from a higher one, and a jump to the entry.
        assert_eq!(near(&[0x90, 0xeb, 0x0f], 0xff0), Some(0xff1));
        assert_eq!(near(&[0x75, 0xf0], 0x1010), Some(0x1010));
        assert_eq!(near(&[0xeb, 0x0e], 0xff0), None);
        // Invalid bytes are skipped.
        assert_eq!(near(&[0x06, 0x75, 0xef], 0x1010), Some(0x1011));
    }

    #[test]
    fn the_prelude_excludes_jumps_hidden_in_immediates() {
        // mov $0x2e9,%eax: decoded from its second byte, e9 02 00 00 00 is a jump.
        let number = [0xb8, 0xe9, 0x02, 0x00, 0x00, 0x00];
        let window = Window { first: 0x1087, last: 0x1088 };
        let code = [&[0x90; 128][..], &number].concat();
        let mut far = Vec::new();
        far_jump_into(Machine::X86_64, &code, 0x1000, &[window], |_, at| far.push(at));
        assert_eq!(far, [0x1081]);
        assert_eq!(jump_into(Machine::X86_64, &code, 0x1000, window, |_| true), None);
        // Without the prelude, the jump cannot be excluded.
        assert_eq!(jump_into(Machine::X86_64, &number, 0x1080, window, |_| true), Some(0x1081));
        // A real jump is found from any start offset, with a prefix too.
        let code = [&[0x48, 0x89, 0xf8].repeat(43)[1..], &[0xf2, 0xe9, 0x02, 0x00, 0x00, 0x00]].concat();
        assert_eq!(
            jump_into(Machine::X86_64, &code, 0x1000, Window { first: 0x1088, last: 0x1088 }, |_| true),
            Some(0x1080)
        );
    }
}
