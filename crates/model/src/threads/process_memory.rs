//! The table of values of a process at a moment.

/// A value of a process at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum ProcessValue {
    /// Resident anonymous pages, in bytes.
    RssAnon,
    /// Resident pages of files, in bytes.
    RssFile,
    /// Resident pages of shared memory, in bytes.
    RssShmem,
    /// Swapped-out pages, in bytes.
    Swap,
    /// Number of open file descriptors.
    Descriptors,
    /// Number of threads.
    Threads,
}

impl ProcessValue {
    /// Number of values.
    pub const COUNT: usize = 6;

    /// All values, ordered like the columns.
    pub const ALL: [Self; Self::COUNT] =
        [Self::RssAnon, Self::RssFile, Self::RssShmem, Self::Swap, Self::Descriptors, Self::Threads];

    /// Returns the name in CSV, JSON and recordings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RssAnon => "rss_anon_bytes",
            Self::RssFile => "rss_file_bytes",
            Self::RssShmem => "rss_shmem_bytes",
            Self::Swap => "swap_bytes",
            Self::Descriptors => "descriptors",
            Self::Threads => "threads",
        }
    }
}

/// Values of a process at a moment. A value is `None` if it could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessValues([Option<u64>; ProcessValue::COUNT]);

impl ProcessValues {
    /// Returns a value.
    #[must_use]
    pub const fn get(&self, value: ProcessValue) -> Option<u64> {
        self.0[value as usize]
    }

    /// Sets a value.
    pub const fn set(&mut self, value: ProcessValue, number: Option<u64>) {
        self.0[value as usize] = number;
    }

    /// Returns the RSS in bytes: the sum of anonymous, file and shared pages.
    #[must_use]
    pub fn rss(&self) -> Option<u64> {
        [ProcessValue::RssAnon, ProcessValue::RssFile, ProcessValue::RssShmem]
            .into_iter()
            .map(|kind| self.get(kind))
            .sum()
    }
}
