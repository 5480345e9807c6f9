//! Changes of processes and of their mappings during tracing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{Cgroup, Mapping, Pid, ProcessImage, Tick, Tid, User};

/// A change of a process. Events of one process arrive in the order of the changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessEvent {
    /// Process id.
    pub pid: Pid,
    /// Kind of change.
    pub kind: ProcessEventKind,
}

/// Kind of change of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEventKind {
    /// The process was found running, with this state.
    Seen {
        /// Names and mappings of the process.
        image: ProcessImage,
        /// Time since tracing began. Mappings that differ from the recorded ones are assumed to have changed at this
        /// time.
        at: Duration,
    },
    /// The process was started by a fork.
    Forked {
        /// Parent process.
        parent: Pid,
        /// Time of the fork.
        at: Tick,
    },
    /// The process mapped executable memory.
    Mapped {
        /// The new mapping.
        mapping: Mapping,
        /// Time since tracing began. A tick is too coarse: a mapping can be replaced within a tick, and stacks before
        /// and after the replacement have different names.
        at: Duration,
    },
    /// The process called exec, which removes its old mappings.
    Exec {
        /// New short name.
        comm: String,
        /// Time of the exec.
        at: Tick,
    },
    /// The process changed its short name.
    Comm {
        /// New short name.
        comm: String,
    },
    /// The path of the executable became known.
    Exe {
        /// Path in the mount namespace of the process.
        exe: PathBuf,
    },
    /// User, control group and number of threads of the process became known.
    Belongs {
        /// User of the process; `None` if it is not known.
        user: Option<User>,
        /// Control group of the process; `None` if it is not known.
        cgroup: Option<Arc<Cgroup>>,
        /// Number of threads; `None` if it is not known.
        threads: Option<u32>,
    },
    /// A thread of the process was started. It has the name of its creator.
    ThreadStarted {
        /// New thread.
        tid: Tid,
        /// Thread that started the new thread.
        creator: Tid,
    },
    /// The name of a thread of the process became known, or has changed.
    Thread {
        /// Thread with the name.
        tid: Tid,
        /// Name of the thread.
        name: String,
    },
    /// The process exited. Its PID may be reused.
    Exited {
        /// Time of the exit.
        at: Tick,
    },
}
