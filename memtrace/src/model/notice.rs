//! What becomes known of processes and their mappings while they are traced.

use std::path::PathBuf;

use super::{Image, Mapping, Pid};

/// Something that became known of a process. Notices of one process come in the order in which things happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The process.
    pub pid: Pid,
    /// What became known.
    pub kind: NoticeKind,
}

/// What became known of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// The process was found running, and this is what it looked like.
    Seen {
        /// Its names and its mappings.
        image: Image,
    },
    /// The process began as a copy of another.
    Forked {
        /// The other process.
        parent: Pid,
    },
    /// The process mapped code.
    Mapped {
        /// Where, and whose code.
        mapping: Mapping,
    },
    /// The process runs a new program; its old mappings are gone.
    Exec {
        /// Its short name from now on.
        comm: String,
    },
    /// The process goes by another short name.
    Comm {
        /// The name.
        comm: String,
    },
    /// The path of the program that the process runs became known.
    Exe {
        /// The path as the process sees it.
        exe: PathBuf,
    },
    /// The process ended; its pid may come to name another.
    Exited,
}
