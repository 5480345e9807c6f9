//! What becomes known of processes and their mappings while they are traced.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{Cgroup, Mapping, Pid, ProcessImage, Tick, Tid, User};

/// Something that became known of a process. Notices of one process come in the order in which things happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessEvent {
    /// The process.
    pub pid: Pid,
    /// What became known.
    pub kind: ProcessEventKind,
}

/// What became known of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEventKind {
    /// The process was found running, and this is what it looked like.
    Seen {
        /// Its names and its mappings.
        image: ProcessImage,
        /// When, since tracing began. What it has mapped otherwise than was known is taken to have changed then.
        at: Duration,
    },
    /// The process began as a copy of another.
    Forked {
        /// The other process.
        parent: Pid,
        /// When.
        at: Tick,
    },
    /// The process mapped code.
    Mapped {
        /// Where, and whose code.
        mapping: Mapping,
        /// When, since tracing began: stacks are told apart by this, and code can be replaced within a tick.
        at: Duration,
    },
    /// The process runs a new program; its old mappings are gone.
    Exec {
        /// Its short name from now on.
        comm: String,
        /// When.
        at: Tick,
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
    /// Whose the process is became known.
    Belongs {
        /// The user that it runs as.
        user: Option<User>,
        /// The control group that it is in.
        cgroup: Option<Arc<Cgroup>>,
        /// How many threads it has.
        threads: Option<u32>,
    },
    /// A thread of the process goes by a name.
    Thread {
        /// The thread.
        tid: Tid,
        /// The name.
        name: String,
    },
    /// The process ended; its pid may come to name another.
    Exited {
        /// When.
        at: Tick,
    },
}
