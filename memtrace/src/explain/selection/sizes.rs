//! Sizes of a process, from `smaps_rollup`.

use memtrace_host::procfs::Sizes;
use memtrace_model::{Bytes, ProcessSizes, Returnable};

/// Returns the sizes of a process. `rollup`: sums of its VMAs.
pub(super) fn of_process(rollup: Sizes, page_tables: Bytes) -> ProcessSizes {
    // Before Linux 6.0, the kernel does not divide the modified pages among the processes.
    let clean = if rollup.pss_dirty.0 > 0 { rollup.pss.0.saturating_sub(rollup.pss_dirty.0) } else { rollup.clean.0 };
    // A forked process shares pages that its parent freed before. The kernel does not divide them (`smaps_account`,
    // fs/proc/task_mmu.c), but they are unmodified.
    let lazy_free = rollup.lazy_free.min(rollup.pss_anonymous).min(Bytes(clean));
    // Pages that were swapped in, and pages of shared memory, can be unmodified too. Locked pages can be of any kind,
    // so all of them are subtracted.
    let clean_file = clean.saturating_sub(lazy_free.0).min(rollup.pss_file.0).saturating_sub(rollup.locked.0);
    ProcessSizes {
        pss: rollup.pss,
        anonymous: rollup.pss_anonymous,
        file: rollup.pss_file,
        shmem: rollup.pss_shmem,
        private: rollup.private,
        resident: rollup.resident,
        swap: rollup.swap_pss,
        hugetlb: rollup.hugetlb,
        page_tables,
        returnable: Returnable { heap: Bytes(0), lazy_free, clean_file: Bytes(clean_file) },
    }
}

/// Returns the PSS of `bytes` of resident memory. Assumes that these pages are shared like all pages of their kind. `pss` and
/// `rss`: sizes of all pages of this kind.
pub(super) fn proportional(bytes: Bytes, pss: Bytes, rss: Bytes) -> Bytes {
    if rss.0 == 0 {
        return Bytes(0);
    }
    let part = u128::from(bytes.0) * u128::from(pss.0) / u128::from(rss.0);
    Bytes(u64::try_from(part).unwrap_or(u64::MAX)).min(pss)
}

#[cfg(test)]
mod tests {
    use memtrace_host::procfs::read_vmas;

    use super::*;

    /// Sums of a worker of a preforking server. Two thirds of its anonymous pages are shared with the other workers.
    const ROLLUP: &str = "\
55d0c0a00000-7ffd3b5f2000 ---p 00000000 00:00 0                          [rollup]
Rss:               60000 kB
Pss:               21000 kB
Pss_Dirty:         17000 kB
Pss_Anon:          15000 kB
Pss_File:           5500 kB
Pss_Shmem:           500 kB
Shared_Clean:      12000 kB
Shared_Dirty:      34000 kB
Private_Clean:      1000 kB
Private_Dirty:     13000 kB
Referenced:        59000 kB
Anonymous:         45000 kB
LazyFree:            600 kB
Shared_Hugetlb:     2048 kB
Private_Hugetlb:       0 kB
Swap:                 96 kB
SwapPss:              24 kB
Locked:                0 kB
";

    const fn kib(number: u64) -> Bytes {
        Bytes(number << 10)
    }

    fn parsed(text: &str) -> ProcessSizes {
        let mut sums = Vec::new();
        read_vmas(text.as_bytes(), |sum| sums.push(sum.sizes)).unwrap();
        of_process(sums.remove(0), kib(120))
    }

    #[test]
    fn returnable_pages_count_as_in_the_pss() {
        let returnable = Returnable { heap: Bytes(0), lazy_free: kib(600), clean_file: kib(3400) };
        let expected = ProcessSizes {
            pss: kib(21_000),
            anonymous: kib(15_000),
            file: kib(5500),
            shmem: kib(500),
            private: kib(14_000),
            resident: kib(60_000),
            swap: kib(24),
            hugetlb: kib(2048),
            page_tables: kib(120),
            returnable,
        };
        assert_eq!(parsed(ROLLUP), expected);
    }

    #[test]
    fn without_modified_pages_of_the_pss_the_file_pages_are_the_bound() {
        let old = ROLLUP.replace("Pss_Dirty:         17000 kB\n", "");
        assert_eq!(parsed(&old).returnable.clean_file, kib(5500));
    }

    #[test]
    fn freed_pages_of_several_processes_are_in_the_unmodified_part_of_the_pss() {
        let forked = ROLLUP.replace("LazyFree:            600 kB", "LazyFree:           9000 kB");
        let returnable = parsed(&forked).returnable;
        assert_eq!((returnable.lazy_free, returnable.clean_file), (kib(4000), Bytes(0)));
    }

    #[test]
    fn locked_pages_are_not_returnable() {
        let locked = ROLLUP.replace("Locked:                0 kB", "Locked:             3000 kB");
        assert_eq!(parsed(&locked).returnable.clean_file, kib(400));
        let locked = ROLLUP.replace("Locked:                0 kB", "Locked:            21000 kB");
        assert_eq!(parsed(&locked).returnable.clean_file, Bytes(0));
    }

    #[test]
    fn a_part_does_not_exceed_the_pss() {
        let huge = Bytes(u64::MAX);
        assert_eq!(proportional(huge, huge, huge), huge);
        assert_eq!(proportional(huge, Bytes(5), Bytes(1)), Bytes(5), "the counters contradict each other");
        assert_eq!(proportional(Bytes(6), Bytes(5), Bytes(10)), Bytes(3));
        assert_eq!(proportional(Bytes(6), Bytes(5), Bytes(0)), Bytes(0));
    }
}
