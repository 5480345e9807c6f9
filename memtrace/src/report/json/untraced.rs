//! Processes in scope that are not traced.

use serde::{Serialize, Serializer};

use crate::model::{ProcessMemory, Untraced, UntracedProcess, UntracedReason};

#[derive(Serialize)]
pub(super) struct UntracedFields<'a> {
    #[serde(flatten)]
    total: Memory,
    #[serde(serialize_with = "by_reason")]
    reasons: &'a Untraced,
    processes: Vec<Process<'a>>,
}

#[derive(Serialize)]
struct Memory {
    count: u64,
    rss_bytes: u64,
}

#[derive(Serialize)]
struct Process<'a> {
    pid: u32,
    comm: &'a str,
    exe: Option<String>,
    reason: &'static str,
    rss_bytes: Option<u64>,
}

impl<'a> From<&'a Untraced> for UntracedFields<'a> {
    fn from(untraced: &'a Untraced) -> Self {
        Self {
            total: untraced.total().into(),
            reasons: untraced,
            processes: untraced.listed().iter().map(Process::from).collect(),
        }
    }
}

impl From<ProcessMemory> for Memory {
    fn from(memory: ProcessMemory) -> Self {
        Self { count: memory.processes, rss_bytes: memory.rss.0 }
    }
}

impl<'a> From<&'a UntracedProcess> for Process<'a> {
    fn from(process: &'a UntracedProcess) -> Self {
        Self {
            pid: process.pid.0,
            comm: process.comm.raw(),
            exe: process.exe.as_ref().map(|path| path.to_string_lossy().into_owned()),
            reason: process.reason.name(),
            rss_bytes: process.rss.map(|rss| rss.0),
        }
    }
}

fn by_reason<S: Serializer>(untraced: &Untraced, serializer: S) -> Result<S::Ok, S::Error> {
    let memory = |reason: UntracedReason| (reason.name(), Memory::from(untraced.with_reason(reason)));
    serializer.collect_map(UntracedReason::ALL.into_iter().map(memory))
}
