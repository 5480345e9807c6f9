//! Bounded reads of tables and texts in the memory of a target. The target may have written anything there.

use memtrace_host::procfs::MemoryReader;
use memtrace_model::AbsAddr;

/// Size in bytes of the words that are read at a place.
pub(super) const PAIR: u64 = 16;

/// Maximum length of a text in bytes, with its terminating zero.
const MAX_TEXT: usize = 64;

/// Memory of a process.
pub(super) trait TargetMemory {
    /// Returns the two words at each of `places`; `None` for unreadable places.
    fn pairs(&self, places: &[AbsAddr]) -> Vec<Option<[u64; 2]>>;
}

impl TargetMemory for MemoryReader {
    fn pairs(&self, places: &[AbsAddr]) -> Vec<Option<[u64; 2]>> {
        // The method of the type takes precedence over the method of the trait.
        self.pairs(places)
    }
}

/// Reason that a table of names cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TableError {
    /// The process has ended, holds a lock of its memory, or may not be read.
    #[error("the memory of the program cannot be read")]
    Unreadable,
    /// The symbol table is stripped, or the program has no such variable.
    #[error("the program has no symbol of its table of names")]
    NoSymbol,
    /// The program has not filled the table.
    #[error("the table of names in the program is empty")]
    Empty,
    /// The words do not fit the known structure.
    #[error("the table of names in the program has another layout than the known ones")]
    Layout,
}

/// Returns the two words at `place`.
pub(super) fn pair(memory: &impl TargetMemory, place: AbsAddr) -> Option<[u64; 2]> {
    memory.pairs(&[place]).pop().flatten()
}

/// Returns the bytes at each of `starts`, `pairs` times [`PAIR`], or fewer if some cannot be read.
pub(super) fn bytes(memory: &impl TargetMemory, starts: &[AbsAddr], pairs: usize) -> Vec<Vec<u8>> {
    let places_at = |start: &AbsAddr| {
        let AbsAddr(start) = *start;
        (0..pairs as u64).map(move |number| AbsAddr(start.wrapping_add(PAIR * number)))
    };
    let places: Vec<_> = starts.iter().flat_map(places_at).collect();
    let words = memory.pairs(&places);
    let readable = |all: &[Option<[u64; 2]>]| -> Vec<u8> {
        all.iter().map_while(|pair| *pair).flatten().flat_map(u64::to_ne_bytes).collect()
    };
    words.chunks(pairs).map(readable).collect()
}

/// Returns the text at each of `places`; `None` for a text that cannot be read, is too long, or is no printable ASCII.
pub(super) fn texts(memory: &impl TargetMemory, places: &[AbsAddr]) -> Vec<Option<String>> {
    // Reads from aligned addresses, because aligned pairs of words cross no page.
    let starts: Vec<_> = places.iter().map(|place| AbsAddr(place.0 - place.0 % PAIR)).collect();
    let read = bytes(memory, &starts, MAX_TEXT / PAIR as usize + 1);
    let text = |(place, bytes): (&AbsAddr, Vec<u8>)| {
        let rest = bytes.get((place.0 % PAIR) as usize..)?;
        let length = rest.iter().take(MAX_TEXT).position(|byte| *byte == 0)?;
        printable_text(&rest[..length])
    };
    places.iter().zip(read).map(text).collect()
}

/// Returns the bytes as a text; `None` if there are no bytes, or if one is not printable ASCII.
pub(super) fn printable_text(bytes: &[u8]) -> Option<String> {
    let is_printable = |byte: &u8| matches!(byte, b' '..=b'~');
    let is_text = !bytes.is_empty() && bytes.iter().all(is_printable);
    is_text.then(|| String::from_utf8_lossy(bytes).into_owned())
}

/// Returns the number of 32 bits at an offset.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..offset + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Returns the number of 64 bits at an offset.
pub(super) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..offset + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Memory with the given bytes. All other addresses cannot be read.
    #[derive(Default)]
    pub(in crate::trace::tag_presets) struct FakeMemory(BTreeMap<u64, u8>);

    impl FakeMemory {
        pub(in crate::trace::tag_presets) fn write(&mut self, address: u64, bytes: &[u8]) {
            self.0.extend((address..).zip(bytes.iter().copied()));
        }

        pub(in crate::trace::tag_presets) fn write_u32(&mut self, address: u64, number: u32) {
            self.write(address, &number.to_ne_bytes());
        }

        pub(in crate::trace::tag_presets) fn write_u64(&mut self, address: u64, number: u64) {
            self.write(address, &number.to_ne_bytes());
        }

        /// Writes a text with its terminating zero, up to the end of its last pair of words.
        pub(in crate::trace::tag_presets) fn write_text(&mut self, address: u64, text: &str) {
            let end = (address + text.len() as u64 + 1).next_multiple_of(PAIR);
            let start = address - address % PAIR;
            self.write(start, &vec![0; (end - start) as usize]);
            self.write(address, text.as_bytes());
        }
    }

    impl TargetMemory for FakeMemory {
        fn pairs(&self, places: &[AbsAddr]) -> Vec<Option<[u64; 2]>> {
            let word = |address: u64| -> Option<u64> {
                let bytes: Option<Vec<u8>> =
                    (0..8).map(|byte| self.0.get(&address.wrapping_add(byte)).copied()).collect();
                bytes?.try_into().ok().map(u64::from_ne_bytes)
            };
            places.iter().map(|place| Some([word(place.0)?, word(place.0.wrapping_add(8))?])).collect()
        }
    }

    #[test]
    fn texts_end_at_a_zero() {
        let mut memory = FakeMemory::default();
        memory.write_text(0x100b, "network");
        memory.write_text(0x2000, &"x".repeat(MAX_TEXT - 1));
        memory.write_text(0x3001, &"x".repeat(MAX_TEXT));
        memory.write_text(0x4000, "a\u{1b}[2J");
        memory.write_text(0x5000, "");
        // The text goes on in memory that cannot be read.
        memory.write(0x6000, &[b'x'; 32]);
        let places = [0x100b, 0x2000, 0x3001, 0x4000, 0x5000, 0x6000, 0x7000, u64::MAX, 0].map(AbsAddr);
        let expected = [Some(String::from("network")), Some("x".repeat(MAX_TEXT - 1))];
        let expected: Vec<_> = expected.into_iter().chain(std::iter::repeat_n(None, 7)).collect();
        assert_eq!(texts(&memory, &places), expected);
    }

    #[test]
    fn bytes_end_at_an_unreadable_pair() {
        let mut memory = FakeMemory::default();
        memory.write(0x1000, &[1; 32]);
        memory.write(0x1030, &[2; 16]);
        let read = bytes(&memory, &[AbsAddr(0x1000), AbsAddr(0x1030), AbsAddr(u64::MAX - 15)], 4);
        assert_eq!(read.iter().map(Vec::len).collect::<Vec<_>>(), [32, 16, 0]);
        assert_eq!(bytes(&memory, &[], 4), Vec::<Vec<u8>>::new());
        assert_eq!([u32_at(&read[0], 28), u32_at(&read[0], 29)], [Some(0x0101_0101), None]);
        assert_eq!([u64_at(&read[1], 8), u64_at(&read[1], 9)], [Some(0x0202_0202_0202_0202), None]);
        assert_eq!(pair(&memory, AbsAddr(0x1010)), Some([0x0101_0101_0101_0101; 2]));
        assert_eq!(pair(&memory, AbsAddr(0x1020)), None);
    }
}
