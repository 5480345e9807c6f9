//! Ordinals of process images by pid.

use memtrace_model::{ImageId, Pid};

/// Ordinal of the current image of each pid. An entry outlives its image, so that the next image of the pid gets
/// another id.
///
/// The memory depends on `kernel.pid_max`, not on the number of processes over time. Tables of 4,096 ordinals are
/// created on first use. A table has one byte for each ordinal, and four bytes as soon as one ordinal exceeds 255. With
/// the kernel's maximum of four million pids, the tables take 4 MiB, or 16 MiB if all of them have four bytes for each
/// ordinal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ordinals {
    pages: Vec<Page>,
}

#[derive(Clone, Debug, Default)]
enum Page {
    #[default]
    Zero,
    Narrow(Box<[u8]>),
    Wide(Box<[u32]>),
}

/// Number of pids in a table.
const PAGE_PIDS: usize = 4096;

impl Ordinals {
    /// Returns true if the kernel can assign `pid` to a process.
    pub(crate) const fn is_valid(pid: Pid) -> bool {
        pid.0 < Pid::LIMIT
    }

    /// Returns the id of the current image of `pid`.
    pub(crate) fn current(&self, pid: Pid) -> ImageId {
        let (page, index) = position(pid);
        let ordinal = match self.pages.get(page) {
            Some(Page::Narrow(numbers)) => numbers.get(index).map_or(0, |&number| u32::from(number)),
            Some(Page::Wide(numbers)) => numbers.get(index).copied().unwrap_or(0),
            Some(Page::Zero) | None => 0,
        };
        ImageId { pid, ordinal }
    }

    /// Ends the current image of `pid`, and returns the id of this image. The ids of an invalid pid are all equal.
    pub(crate) fn advance(&mut self, pid: Pid) -> ImageId {
        let id = self.current(pid);
        self.set(pid, id.ordinal.saturating_add(1));
        id
    }

    /// Sets the ordinal of the current image of `pid`, unless the pid is invalid.
    pub(crate) fn set(&mut self, pid: Pid, ordinal: u32) {
        if !Self::is_valid(pid) {
            return;
        }
        let (page, index) = position(pid);
        if self.pages.len() <= page {
            self.pages.resize(page + 1, Page::Zero);
        }
        self.pages[page].set(index, ordinal);
    }
}

impl Page {
    fn set(&mut self, index: usize, number: u32) {
        match (&mut *self, u8::try_from(number)) {
            (Self::Zero, Ok(0)) => {}
            (Self::Zero, Ok(narrow)) => {
                let mut numbers = vec![0; PAGE_PIDS].into_boxed_slice();
                numbers[index] = narrow;
                *self = Self::Narrow(numbers);
            }
            (Self::Narrow(numbers), Ok(narrow)) => numbers[index] = narrow,
            (Self::Wide(numbers), _) => numbers[index] = number,
            (Self::Zero | Self::Narrow(_), Err(_)) => {
                let mut numbers: Box<[u32]> = match self {
                    Self::Narrow(numbers) => numbers.iter().map(|&number| u32::from(number)).collect(),
                    Self::Zero | Self::Wide(_) => vec![0; PAGE_PIDS].into(),
                };
                numbers[index] = number;
                *self = Self::Wide(numbers);
            }
        }
    }
}

/// Returns the index of the table with `pid`, and the index of `pid` in the table.
const fn position(pid: Pid) -> (usize, usize) {
    (pid.0 as usize / PAGE_PIDS, pid.0 as usize % PAGE_PIDS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ordinals_equal_those_of_a_map(
            steps in prop::collection::vec(
                (prop::sample::select(vec![0, 1, 4095, 4096, Pid::LIMIT - 1]), 0..400_u32),
                0..60,
            ),
        ) {
            let (mut ordinals, mut map) = (Ordinals::default(), BTreeMap::new());
            for (pid, number) in steps {
                ordinals.set(Pid(pid), number);
                map.insert(pid, number);
                prop_assert_eq!(ordinals.advance(Pid(pid)).ordinal, number);
                *map.get_mut(&pid).unwrap() += 1;
                for (&pid, &ordinal) in &map {
                    prop_assert_eq!(ordinals.current(Pid(pid)), ImageId { pid: Pid(pid), ordinal });
                }
            }
        }
    }

    #[test]
    fn a_process_costs_a_byte() {
        let mut ordinals = Ordinals::default();
        for pid in 0..Pid::LIMIT {
            ordinals.advance(Pid(pid));
        }
        assert!(ordinals.pages.iter().all(|page| matches!(page, Page::Narrow(numbers) if numbers.len() == PAGE_PIDS)));
        assert_eq!(ordinals.pages.len() * PAGE_PIDS, 4 << 20);
    }

    #[test]
    fn an_invalid_pid_needs_no_memory() {
        let mut ordinals = Ordinals::default();
        assert_eq!(ordinals.advance(Pid(u32::MAX)), ordinals.advance(Pid(u32::MAX)));
        assert!(ordinals.pages.is_empty());
    }
}
