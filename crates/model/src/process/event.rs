//! Changes of processes and of their mappings during tracing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{Cgroup, Mapping, Pid, ProcessImage, Tick, Tid, User};

/// A change of a process. Events of one process arrive in the order in which the changes happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessEvent {
    /// The process.
    pub pid: Pid,
    /// Kind of change.
    pub kind: ProcessEventKind,
}

/// Kind of change of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEventKind {
    /// The process was found running, with this state.
    Seen {
        /// Names and mappings.
        image: ProcessImage,
        /// Time since tracing began. Mappings that differ from the recorded ones are assumed to have changed at this
        /// time.
        at: Duration,
    },
    /// The process was forked.
    Forked {
        /// Parent process.
        parent: Pid,
        /// When.
        at: Tick,
    },
    /// The process mapped executable memory.
    Mapped {
        /// The mapping.
        mapping: Mapping,
        /// Time since tracing began, in full resolution: mappings can be replaced within a tick, and stacks are
        /// distinguished by them.
        at: Duration,
    },
    /// The process called exec; its old mappings are gone.
    Exec {
        /// New short name.
        comm: String,
        /// When.
        at: Tick,
    },
    /// The process changed its short name.
    Comm {
        /// The name.
        comm: String,
    },
    /// The path of the executable became known.
    Exe {
        /// Path in the mount namespace of the process.
        exe: PathBuf,
    },
    /// User, control group and threads of the process became known.
    Belongs {
        /// User of the process; `None` if it is not known.
        user: Option<User>,
        /// Control group of the process; `None` if it is not known.
        cgroup: Option<Arc<Cgroup>>,
        /// Number of threads; `None` if it is not known.
        threads: Option<u32>,
    },
    /// A thread of the process was started, with the name of its creator.
    ThreadStarted {
        /// The thread.
        tid: Tid,
        /// The thread that started it.
        creator: Tid,
    },
    /// A thread of the process has a name.
    Thread {
        /// The thread.
        tid: Tid,
        /// The name.
        name: String,
    },
    /// The process exited; its PID may be reused.
    Exited {
        /// When.
        at: Tick,
    },
}
