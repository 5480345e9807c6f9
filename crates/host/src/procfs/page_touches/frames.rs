//! Page frames of a process, and the kernel's folios that contain them.

use std::io;

use memtrace_model::AbsAddr;

use super::page_flags::{self, Frame, PageFlags};

/// Number of pages of a batch. The data of a batch take 4 MiB.
const PAGES: usize = 1 << 16;
/// Number of frames that are read at once to find the first frame of a folio.
const BEFORE: u64 = 512;
/// Maximum number of frames of a folio: 1 GiB.
const LARGEST: u64 = 1 << 18;

/// Pages of a process, at most [`PAGES`].
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Pages ordered by address, until [`Batch::folios`] sorts them by frame.
    pages: Vec<(Frame, AbsAddr)>,
}

/// Folio: a page, or several contiguous pages that the kernel manages as one. It has one idle flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Folio {
    /// First frame of the folio.
    pub(super) head: Frame,
    /// True if the folio has several frames.
    pub(super) is_large: bool,
    /// Flags of the first frame.
    flags: u64,
}

impl Folio {
    /// Returns true if the folio is on an LRU list. The kernel keeps no idle flags of other folios
    /// (`page_idle_get_folio`, mm/page_idle.c).
    pub(super) const fn is_tracked(&self) -> bool {
        self.flags & page_flags::LRU != 0
    }

    /// Returns true if the folio is locked in memory.
    pub(super) const fn is_locked(&self) -> bool {
        self.flags & page_flags::MLOCKED != 0
    }
}

impl Batch {
    pub(super) fn add(&mut self, address: AbsAddr, frame: Frame) {
        self.pages.push((frame, address));
    }

    pub(super) fn is_full(&self) -> bool {
        self.pages.len() >= PAGES
    }

    /// Returns the addresses of the pages. After [`Batch::folios`], they have the order of its result.
    pub(super) fn addresses(&self) -> impl Iterator<Item = AbsAddr> {
        self.pages.iter().map(|(_, address)| *address)
    }

    /// Sorts the pages by their frames, and returns the folio of each page.
    pub(super) fn folios(&mut self, flags: &PageFlags) -> io::Result<Vec<Folio>> {
        self.pages.sort_unstable();
        let frames: Vec<Frame> = self.pages.iter().map(|(frame, _)| *frame).collect();
        let of_frames = flags.of(&frames)?;
        let mut folios: Vec<Folio> = Vec::with_capacity(frames.len());
        for (index, (&frame, &own)) in frames.iter().zip(&of_frames).enumerate() {
            let is_tail = own & page_flags::COMPOUND_TAIL != 0;
            let before = folios.last().filter(|_| index > 0 && frames[index - 1].0 + 1 >= frame.0);
            let folio = match before {
                Some(folio) if is_tail && folio.is_large => *folio,
                // The frame is the same as the previous one if a page is mapped twice.
                Some(folio) if frames[index - 1] == frame => *folio,
                _ if is_tail => head_before(frame, flags)?,
                _ => Folio { head: frame, is_large: own & page_flags::COMPOUND_HEAD != 0, flags: own },
            };
            folios.push(folio);
        }
        Ok(folios)
    }
}

/// Returns the folio that contains `frame`, which is not its first frame.
fn head_before(frame: Frame, flags: &PageFlags) -> io::Result<Folio> {
    let mut end = frame.0;
    while end > 0 && frame.0 - end < LARGEST {
        let begin = end.saturating_sub(BEFORE);
        let frames: Vec<Frame> = (begin..end).map(Frame).collect();
        let before = flags.of(&frames)?;
        let head = frames.iter().zip(before).rev().find(|(_, flags)| flags & page_flags::COMPOUND_TAIL == 0);
        if let Some((&head, flags)) = head {
            return Ok(Folio { head, is_large: true, flags });
        }
        end = begin;
    }
    // The kernel has split the folio since the flags were read.
    Ok(Folio { head: frame, is_large: false, flags: 0 })
}
