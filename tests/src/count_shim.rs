//! Totals of processes that do not count their own allocator calls. The preloaded `libcount_shim.so` counts the calls,
//! and keeps its totals in a mapped file.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::totals::{Totals, VictimTotals};
use crate::victim;

/// Number of words before the slots in `struct ledger` (ledger.h).
const WORDS: usize = 13;
const SLOT_BYTES: u64 = 24;
const SLOTS: u64 = 1 << 16;
/// Index of the word `max_size` in `struct ledger`.
const MAX_SIZE_WORD: u64 = 10;

/// File with the totals that the shim counts.
pub struct CountShim {
    file: File,
    path: PathBuf,
}

impl CountShim {
    /// Creates the file in `directory`. Calls count from [`CountShim::begin`] on.
    #[must_use]
    pub fn create(directory: &Path) -> Self {
        let path = directory.join("counts");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.expect("the scratch directory is writable");
        file.set_len(WORDS as u64 * 8 + SLOTS * SLOT_BYTES).expect("the file can be extended");
        let shim = Self { file, path };
        shim.put(MAX_SIZE_WORD, u64::MAX);
        shim
    }

    /// Starts counting. The process must be at its barrier or not yet started.
    pub fn begin(&self) {
        self.put(0, 1);
    }

    fn put(&self, word: u64, value: u64) {
        self.file.write_all_at(&value.to_ne_bytes(), word * 8).expect("the file can be written");
    }

    /// Returns the environment that makes the shim count the calls of a process.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, OsString); 2] {
        [
            ("LD_PRELOAD", victim::path("libcount_shim.so").into_os_string()),
            ("COUNT_SHIM_FILE", self.path.clone().into_os_string()),
        ]
    }

    /// Returns the totals. The process must wait at a barrier, or have ended.
    #[must_use]
    pub fn read(&self) -> VictimTotals {
        let mut bytes = [0; WORDS * 8];
        self.file.read_exact_at(&mut bytes, 0).expect("the file can be read");
        let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_ne_bytes(word)).collect();
        let [_, alloc_bytes, alloc_count, free_bytes, free_count, unmatched, filtered_bytes, filtered_count, peak, ..] =
            words[..]
        else {
            unreachable!("there are {WORDS} words");
        };
        assert_eq!(words[11], 0, "the shim's table of live blocks was full");
        let totals = Totals {
            live_bytes: alloc_bytes - free_bytes,
            live_count: alloc_count - free_count,
            alloc_bytes,
            alloc_count,
            free_bytes,
            free_count,
            ..Totals::default()
        };
        VictimTotals {
            totals,
            unmatched_frees: unmatched,
            filtered_bytes,
            filtered_count,
            peak_bytes: peak,
            sites: Vec::new(),
        }
    }
}
