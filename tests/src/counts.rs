//! The books of `count_shim`, in memory shared with a program that keeps none of its own.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::books::{Books, Numbers};
use crate::victim;

/// `struct ledger` of ledger.h: how many words come before the slots, and the size of all.
const WORDS: usize = 13;
const SLOT_BYTES: u64 = 24;
const SLOTS: u64 = 1 << 16;
const MAX_SIZE_WORD: u64 = 10;

/// The shared file that a shim books in.
pub struct Counts {
    file: File,
    path: PathBuf,
}

impl Counts {
    /// Lays the file into `directory`; nothing is booked before [`Counts::begin`].
    ///
    /// # Panics
    ///
    /// If the file can't be written.
    #[must_use]
    pub fn create(directory: &Path) -> Self {
        let path = directory.join("counts");
        let opened = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = opened.expect("the scratch directory is writable");
        file.set_len(WORDS as u64 * 8 + SLOTS * SLOT_BYTES).expect("the file can be made longer");
        let counts = Self { file, path };
        counts.put(MAX_SIZE_WORD, u64::MAX);
        counts
    }

    /// From now on, every call is booked. The program must not be running: blocked at its barrier, or not yet started.
    ///
    /// # Panics
    ///
    /// If the file can't be written.
    pub fn begin(&self) {
        self.put(0, 1);
    }

    fn put(&self, word: u64, value: u64) {
        self.file.write_all_at(&value.to_ne_bytes(), word * 8).expect("the counts can be written");
    }

    /// The environment that makes a program book here.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, OsString); 2] {
        [
            ("LD_PRELOAD", victim::path("libcount_shim.so").into_os_string()),
            ("COUNT_SHIM_FILE", self.path.clone().into_os_string()),
        ]
    }

    /// The books as they are now. The program must not be running.
    ///
    /// # Panics
    ///
    /// If the file can't be read, or there were more live blocks than the books can hold.
    #[must_use]
    pub fn read(&self) -> Books {
        let mut bytes = [0; WORDS * 8];
        self.file.read_exact_at(&mut bytes, 0).expect("the counts can be read");
        let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_ne_bytes(word)).collect();
        let [_, alloc_bytes, alloc_count, free_bytes, free_count, unmatched, filtered_bytes, filtered_count, peak, ..] =
            words[..]
        else {
            unreachable!("there are {WORDS} words");
        };
        assert_eq!(words[11], 0, "the shim's table of live blocks was full");
        let numbers = Numbers {
            live_bytes: alloc_bytes - free_bytes,
            live_count: alloc_count - free_count,
            alloc_bytes,
            alloc_count,
            free_bytes,
            free_count,
        };
        Books {
            numbers,
            unmatched_frees: unmatched,
            filtered_bytes,
            filtered_count,
            peak_bytes: peak,
            sites: Vec::new(),
        }
    }
}
