//! Reasons for missing names of functions.

/// Reason for a missing name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unnamed {
    /// No mapping is known at the address.
    NoMapping,
    /// The address is in JIT code, and there is no perf map.
    Anonymous,
    /// The address is in code that the kernel maps, which has no file.
    KernelCode,
    /// The address is in JIT code, and the perf map belongs to another user.
    PerfMapNotOwned,
    /// The address is in JIT code, and the perf map or jitdump file has no function at the address.
    NotInPerfMap,
    /// The object's file could not be opened or read.
    ObjectUnreadable,
    /// The object's file was deleted. memtrace closed it before symbolization, because too many deleted files were
    /// open.
    ObjectClosed,
    /// The object has no symbol at the address.
    NoSymbol,
    /// The file system of the object did not answer.
    FileTimeout,
    /// The functions of the object were not found in time.
    NamesTimeout,
    /// The functions of the object were not found with the permitted memory.
    NamesMemory,
    /// The process that looked for the functions of the object crashed on the object's file.
    NamesCrashed,
    /// The user ended the run before the functions of the object were looked for.
    NamesSkipped,
}

impl Unnamed {
    /// All reasons.
    pub const ALL: [Self; 13] = [
        Self::NoMapping,
        Self::Anonymous,
        Self::KernelCode,
        Self::PerfMapNotOwned,
        Self::NotInPerfMap,
        Self::ObjectUnreadable,
        Self::ObjectClosed,
        Self::NoSymbol,
        Self::FileTimeout,
        Self::NamesTimeout,
        Self::NamesMemory,
        Self::NamesCrashed,
        Self::NamesSkipped,
    ];

    /// Reasons that a whole file has no names: a timeout, the memory limit, a crash, or a skip by the user.
    pub const LOST_NAMES: [Self; 5] =
        [Self::FileTimeout, Self::NamesTimeout, Self::NamesMemory, Self::NamesCrashed, Self::NamesSkipped];

    /// Returns the name in recordings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoMapping => "no_mapping",
            Self::Anonymous => "anonymous",
            Self::KernelCode => "kernel_code",
            Self::PerfMapNotOwned => "perf_map_not_owned",
            Self::NotInPerfMap => "not_in_perf_map",
            Self::ObjectUnreadable => "object_unreadable",
            Self::ObjectClosed => "object_closed",
            Self::NoSymbol => "no_symbol",
            Self::FileTimeout => "file_timeout",
            Self::NamesTimeout => "names_timeout",
            Self::NamesMemory => "names_memory",
            Self::NamesCrashed => "names_crashed",
            Self::NamesSkipped => "names_skipped",
        }
    }

    /// Returns the reason in words.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::NoMapping => "no mapping known at this address",
            Self::Anonymous => "code generated at run time",
            Self::KernelCode => "code of the kernel",
            Self::PerfMapNotOwned => "code generated at run time; its perf map belongs to another user",
            Self::NotInPerfMap => "code generated at run time, not in its perf map",
            Self::ObjectUnreadable => "the object could not be read",
            Self::ObjectClosed => "the object was deleted while too many deleted files were open",
            Self::NoSymbol => "the object has no symbol here",
            Self::FileTimeout => "the file system of the object did not answer",
            Self::NamesTimeout => "reading the names of the object took too long",
            Self::NamesMemory => "reading the names of the object took too much memory",
            Self::NamesCrashed => "reading the names of the object ended the process that read them",
            Self::NamesSkipped => "a second signal ended memtrace before the names of the object were read",
        }
    }
}
