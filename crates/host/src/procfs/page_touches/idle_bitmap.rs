//! Idle bitmap: a bit for each page frame (Documentation/admin-guide/mm/idle_page_tracking.rst).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use super::page_flags::Frame;
use crate::procfs::kernel_files;

const PATH: &str = "/sys/kernel/mm/page_idle/bitmap";

const WORD: usize = 8;
/// Number of frames in a word.
const FRAMES: u64 = 64;
/// Maximum number of words in a system call: sysfs passes on one page at a time.
const WORDS: usize = 512;

/// Idle flags of the page frames.
#[derive(Debug)]
pub struct IdleBitmap {
    file: File,
}

/// Contiguous words of the bitmap.
struct Run {
    first: u64,
    words: Vec<u64>,
}

impl IdleBitmap {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { file: File::options().read(true).write(true).open(PATH)? })
    }

    /// Marks frames in ascending order as idle. Other frames keep their flags: the kernel ignores bits that are 0.
    pub(super) fn mark(&self, frames: impl Iterator<Item = Frame>) -> io::Result<()> {
        for run in runs(frames) {
            let bytes: Vec<u8> = run.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            // The kernel may write fewer words: it leaves out an incomplete last word of the bitmap.
            self.file.write_at(&bytes, run.first * WORD as u64)?;
        }
        Ok(())
    }

    /// Returns true for each frame that is still idle. `frames` are in ascending order. Returns `None` for the frames
    /// of an incomplete last word of the bitmap, which cannot be read (`page_idle_bitmap_read`, mm/page_idle.c).
    pub(super) fn idle(&self, frames: impl Iterator<Item = Frame> + Clone) -> io::Result<Vec<Option<bool>>> {
        let mut idle = Vec::new();
        let mut remaining = frames.clone().peekable();
        let mut bytes = [0; WORDS * WORD];
        for run in runs(frames) {
            let end = run.first + run.words.len() as u64;
            let read = self.file.read_at(&mut bytes[..run.words.len() * WORD], run.first * WORD as u64)?;
            let (words, _) = bytes[..read].as_chunks::<WORD>();
            while let Some(frame) = remaining.next_if(|frame| frame.0 / FRAMES < end) {
                let word = words.get((frame.0 / FRAMES - run.first) as usize);
                idle.push(word.map(|word| u64::from_ne_bytes(*word) & 1 << (frame.0 % FRAMES) != 0));
            }
        }
        Ok(idle)
    }
}

/// Returns runs of words with the bits of frames in ascending order.
fn runs(frames: impl Iterator<Item = Frame>) -> impl Iterator<Item = Run> {
    let mut frames = frames.peekable();
    std::iter::from_fn(move || {
        let first = frames.peek()?.0 / FRAMES;
        let mut words = Vec::new();
        while let Some(frame) = frames.next_if(|frame| {
            let index = (frame.0 / FRAMES - first) as usize;
            index < WORDS && index <= words.len()
        }) {
            let index = (frame.0 / FRAMES - first) as usize;
            words.resize(words.len().max(index + 1), 0);
            words[index] |= 1 << (frame.0 % FRAMES);
        }
        Some(Run { first, words })
    })
}

/// Makes the kernel put the pages in its per-CPU lists on the LRU lists. Otherwise, up to 31 pages of each CPU have no
/// idle flag.
///
/// The kernel drains the lists when `POSIX_FADV_DONTNEED` cannot remove a page of a file (`generic_fadvise`,
/// mm/fadvise.c), such as a mapped page of memtrace's executable. Errors are ignored: the state of pages without an
/// idle flag is unknown.
pub(super) fn drain_lru_lists() {
    let Ok(program) = kernel_files::open("/proc/self/exe") else { return };
    // SAFETY: the call has integers only, and the descriptor is open.
    unsafe { libc::posix_fadvise(program.as_raw_fd(), 0, 1 << 20, libc::POSIX_FADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_grouped_into_runs_of_words() {
        let runs_of = |frames: &[u64]| {
            runs(frames.iter().copied().map(Frame)).map(|run| (run.first, run.words)).collect::<Vec<_>>()
        };
        assert_eq!(runs_of(&[]), []);
        // A frame that occurs twice, as for two pages of a folio.
        assert_eq!(runs_of(&[1, 1, 63, 64, 200]), [(0, vec![1 << 1 | 1 << 63, 1]), (3, vec![1 << 8])]);
        let long: Vec<u64> = (0..40_000).collect();
        let runs = runs_of(&long);
        assert_eq!(runs.iter().map(|(first, words)| (*first, words.len())).collect::<Vec<_>>(), [(0, 512), (512, 113)]);
        assert!(runs.iter().flat_map(|(_, words)| words).all(|word| *word == u64::MAX));
    }
}
