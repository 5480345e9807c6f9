//! A value for each pid.

use memtrace_model::Pid;

/// Number of values in a block.
const PAGE_ENTRIES: usize = 1024;

/// A value for each pid, in blocks that are allocated on first use. The memory depends on `kernel.pid_max`, not on the
/// number of processes over time. With values of 4 bytes, it is at most 128 KiB for the default of `kernel.pid_max`,
/// and at most 16 MiB for its limit.
#[derive(Clone, Debug, Default)]
pub(super) struct PidTable<T> {
    pages: Vec<Option<Box<[T]>>>,
}

impl<T: Copy + Default> PidTable<T> {
    /// Returns the value of `pid`, or the default if no value was set.
    pub(super) fn get(&self, pid: Pid) -> T {
        let (page, entry) = position(pid);
        let page = self.pages.get(page).and_then(Option::as_ref);
        page.and_then(|page| page.get(entry)).copied().unwrap_or_default()
    }

    /// Sets the value of `pid`, unless the kernel cannot assign this number to a process.
    pub(super) fn set(&mut self, pid: Pid, value: T) {
        let (page, entry) = position(pid);
        if pid.0 >= Pid::LIMIT {
            return;
        }
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages.get_mut(page).map(|page| page.get_or_insert_with(|| [T::default(); PAGE_ENTRIES].into()));
        if let Some(slot) = page.and_then(|page| page.get_mut(entry)) {
            *slot = value;
        }
    }
}

const fn position(pid: Pid) -> (usize, usize) {
    (pid.0 as usize / PAGE_ENTRIES, pid.0 as usize % PAGE_ENTRIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_keeps_its_value_and_others_the_default() {
        let mut table = PidTable::default();
        for pid in [0, 1023, 1024, Pid::LIMIT - 1] {
            table.set(Pid(pid), pid + 7);
        }
        for pid in [0, 1023, 1024, Pid::LIMIT - 1] {
            assert_eq!(table.get(Pid(pid)), pid + 7);
        }
        assert_eq!([1, 1025, Pid::LIMIT, u32::MAX].map(|pid| table.get(Pid(pid))), [0; 4]);
    }

    #[test]
    fn memory_is_that_of_the_pages_in_use() {
        let mut table = PidTable::<u32>::default();
        for pid in [5, 6, Pid::LIMIT - 1, Pid::LIMIT, u32::MAX] {
            table.set(Pid(pid), 1);
        }
        assert_eq!(table.pages.iter().flatten().count(), 2);
        assert_eq!(table.pages.len(), Pid::LIMIT as usize / PAGE_ENTRIES);
        assert_eq!(table.get(Pid(u32::MAX)), 0, "no process has this pid");
    }
}
