//! Buffered stack reads. A read of 1,024 bytes costs hardly more than a read of 8 bytes, and serves several frames.

use crate::{Machine, Memory, goroutine_sp};

/// Number of words per read.
pub const WINDOW_WORDS: usize = 128;

/// Buffer with words of the stack.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Window {
    /// Address of the first word, aligned.
    base: u64,
    /// Number of valid bytes: all or none.
    bytes: u64,
    words: [u64; WINDOW_WORDS],
}

/// Access to the memory of a process.
pub trait ReadMemory {
    /// Fills `into` with the words from `address` on. Returns true if all of them were read.
    fn read(&mut self, address: u64, into: &mut [u64]) -> bool;

    /// Returns the stack pointer of a goroutine, as [`goroutine_sp`] describes; `None` if a word is unreadable.
    fn goroutine_sp(&mut self, goroutine: u64, distance: u64) -> Option<u64> {
        goroutine_sp(goroutine, distance, |address| {
            let mut word = [0];
            self.read(address, &mut word).then_some(word[0])
        })
    }

    /// Returns the processor of the code.
    fn machine(&self) -> Machine {
        Machine::X86_64
    }
}

/// Memory read through a window.
#[derive(Debug)]
pub struct WindowedMemory<'window, R> {
    window: &'window mut Window,
    source: R,
}

impl Default for Window {
    fn default() -> Self {
        Self { base: 0, bytes: 0, words: [0; WINDOW_WORDS] }
    }
}

impl Window {
    /// Empties the buffer before the next walk, since the stack has changed.
    #[inline(always)]
    pub fn forget(&mut self) {
        self.bytes = 0;
    }

    /// Fills the buffer with the words from `address` on. If some of these words are unreadable, as near the end of the
    /// stack, it reads the first `least` words only. Words that were not read are arbitrary.
    #[inline(always)]
    pub fn fill(&mut self, address: u64, least: usize, source: &mut impl ReadMemory) {
        self.base = address;
        self.bytes = WINDOW_WORDS as u64 * 8;
        if address.is_multiple_of(8) && source.read(address, &mut self.words) {
            return;
        }
        self.bytes = 0;
        if let Some(first) = self.words.get_mut(..least) {
            source.read(address, first);
        }
    }

    /// Returns the words of the buffer.
    #[inline(always)]
    #[must_use]
    pub const fn words(&self) -> &[u64; WINDOW_WORDS] {
        &self.words
    }
}

impl<'window, R: ReadMemory> WindowedMemory<'window, R> {
    /// Returns memory that is read from `source` and buffered in `window`.
    #[inline(always)]
    pub fn new(window: &'window mut Window, source: R) -> Self {
        Self { window, source }
    }
}

impl<R: ReadMemory> Memory for WindowedMemory<'_, R> {
    #[inline(always)]
    fn word(&mut self, address: u64) -> Option<u64> {
        let window = &mut *self.window;
        if address.is_multiple_of(8) {
            let offset = address.wrapping_sub(window.base);
            if offset < window.bytes {
                // The mask changes nothing, but shows the bound to the verifier.
                return Some(window.words[(offset / 8) as usize & (WINDOW_WORDS - 1)]);
            }
            if self.source.read(address, &mut window.words) {
                window.base = address;
                window.bytes = WINDOW_WORDS as u64 * 8;
                return Some(window.words[0]);
            }
            // A failed read may have overwritten part of the words, so the window is empty. Near the end of the
            // stack, the word itself may still be readable.
            window.bytes = 0;
        }
        self.code(address)
    }

    /// Reads from the source, not through the window, so that the words of the stack stay in the window.
    #[inline(always)]
    fn code(&mut self, address: u64) -> Option<u64> {
        let mut word = [0];
        self.source.read(address, &mut word).then_some(word[0])
    }

    #[inline(always)]
    fn goroutine_sp(&mut self, goroutine: u64, distance: u64) -> Option<u64> {
        self.source.goroutine_sp(goroutine, distance)
    }

    #[inline(always)]
    fn machine(&self) -> Machine {
        self.source.machine()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack that starts at `base`. Each word holds its own address. Reads are counted.
    struct Stack {
        base: u64,
        words: u64,
        reads: usize,
    }

    impl ReadMemory for &mut Stack {
        fn read(&mut self, address: u64, into: &mut [u64]) -> bool {
            self.reads += 1;
            for (index, word) in (0..).zip(into.iter_mut()) {
                let place = address + index * 8;
                *word = if (self.base..self.base + self.words * 8).contains(&place) { place } else { 0 };
            }
            let end = address + into.len() as u64 * 8;
            address >= self.base && end <= self.base + self.words * 8
        }
    }

    #[test]
    fn adjacent_words_are_read_once() {
        let mut stack = Stack { base: 0x1000, words: 3 * WINDOW_WORDS as u64, reads: 0 };
        let mut window = Window::default();
        let mut memory = WindowedMemory::new(&mut window, &mut stack);
        for index in 0..2 * WINDOW_WORDS as u64 {
            assert_eq!(memory.word(0x1000 + index * 8), Some(0x1000 + index * 8));
        }
        assert_eq!(stack.reads, 2);
    }

    #[test]
    fn words_near_the_stack_end_are_read_one_by_one() {
        let mut stack = Stack { base: 0x1000, words: 40, reads: 0 };
        let mut window = Window::default();
        let mut memory = WindowedMemory::new(&mut window, &mut stack);
        for index in 30..40 {
            assert_eq!(memory.word(0x1000 + index * 8), Some(0x1000 + index * 8));
        }
        assert_eq!(memory.word(0x1000 + 40 * 8), None);
        assert_eq!(memory.word(0xff8), None);
        assert_eq!(memory.word(0x1000), Some(0x1000), "after an unreadable word");
        assert_eq!(memory.word(0x1008), Some(0x1008));
    }

    #[test]
    fn unaligned_word_bypasses_the_window() {
        let mut stack = Stack { base: 0x1000, words: 100, reads: 0 };
        let mut window = Window::default();
        let mut memory = WindowedMemory::new(&mut window, &mut stack);
        assert_eq!(memory.word(0x1000), Some(0x1000));
        assert_eq!(memory.word(0x1004), Some(0x1004));
        assert_eq!(memory.word(1), None);
    }

    #[test]
    fn a_window_is_filled_at_once_or_with_its_first_words() {
        let mut stack = Stack { base: 0x1000, words: WINDOW_WORDS as u64, reads: 0 };
        let mut window = Window::default();
        window.fill(0x1000, 8, &mut &mut stack);
        assert_eq!(window.words()[7], 0x1038);
        assert_eq!(WindowedMemory::new(&mut window, &mut stack).word(0x1040), Some(0x1040));
        assert_eq!(stack.reads, 1);
        // Near the end of the stack.
        window.fill(0x1008, 8, &mut &mut stack);
        assert_eq!(window.words()[7], 0x1040);
        assert_eq!(stack.reads, 3);
        assert_eq!(WindowedMemory::new(&mut window, &mut stack).word(0x1040), Some(0x1040));
        assert_eq!(stack.reads, 5, "a word of its own");
    }

    #[test]
    fn forget_forces_a_new_read() {
        let mut stack = Stack { base: 0x1000, words: WINDOW_WORDS as u64, reads: 0 };
        let mut window = Window::default();
        assert_eq!(WindowedMemory::new(&mut window, &mut stack).word(0x1000), Some(0x1000));
        window.forget();
        assert_eq!(WindowedMemory::new(&mut window, &mut stack).word(0x1000), Some(0x1000));
        assert_eq!(stack.reads, 2);
    }
}
