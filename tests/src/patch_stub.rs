//! Stubs in the memory of a process: the code and the data to which patched functions jump.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use memtrace_object::overlay::layout::{CODE_SIZE, MAPS_PATH};

use crate::bytes_of_text::parse;

/// A stub of a process.
#[derive(Debug)]
pub struct PatchStub {
    memory: File,
    /// Address of the control page.
    data: u64,
    /// Link of the kernel to the file.
    file: PathBuf,
}

impl PatchStub {
    /// Returns the stub of process `pid`.
    ///
    /// # Panics
    ///
    /// If the process has none or several.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let mut stubs = Self::list(pid);
        assert_eq!(stubs.len(), 1, "{stubs:?}");
        stubs.remove(0)
    }

    /// Returns the stubs of process `pid`.
    ///
    /// # Panics
    ///
    /// If the process has ended.
    #[must_use]
    pub fn list(pid: u32) -> Vec<Self> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process runs");
        let of_stubs = maps.lines().filter_map(|line| parse(line, "x")).filter(|(path, _)| *path == MAPS_PATH);
        of_stubs
            .map(|(_, [start, end, _])| {
                assert_eq!(end - start, CODE_SIZE, "the mapping of a stub has another size");
                let memory = File::open(format!("/proc/{pid}/mem"));
                let file = format!("/proc/{pid}/map_files/{start:x}-{end:x}").into();
                Self { memory: memory.expect("the process runs and the test runs as root"), data: end, file }
            })
            .collect()
    }

    /// Locks the file for this process, as a memtrace does that samples the process. The lock ends with the returned file.
    ///
    /// # Panics
    ///
    /// If another process has locked it.
    #[must_use]
    pub fn lock(&self) -> File {
        let file = File::open(&self.file).expect("the file of the stub can be opened");
        file.try_lock().expect("no other process has locked the file of the stub");
        file
    }

    /// Returns the word at `offset` in the data. The process must run.
    ///
    /// # Panics
    ///
    /// If the process has ended.
    #[must_use]
    pub fn word(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, self.data + offset).expect("the data of the stub can be read");
        u64::from_le_bytes(bytes)
    }
}
