//! Fields of control groups with stalls.

use serde::Serialize;

use super::reclaim::{PressureFields, Stalls, assessment, stalls};
use crate::model::{CgroupId, MemcgMemory, MemcgProfile};

#[derive(Serialize)]
pub(super) struct Group<'a> {
    id: Option<u64>,
    path: Option<&'a str>,
    stalls: Stalls,
    memory: Option<MemoryFields>,
}

impl<'a> From<&'a MemcgProfile> for Group<'a> {
    fn from(group: &'a MemcgProfile) -> Self {
        Self {
            id: group.id.map(CgroupId::number),
            path: group.path.as_deref(),
            stalls: stalls(&group.stalls),
            memory: group.memory.as_ref().map(MemoryFields::from),
        }
    }
}

#[derive(Serialize)]
struct MemoryFields {
    version: u32,
    limit_bytes: Option<u64>,
    high_bytes: Option<u64>,
    current_bytes: Option<u64>,
    watched_s: f64,
    refaulted_pages: Option<u64>,
    pressure: Option<PressureFields>,
    seconds: u64,
    scanning_seconds: u64,
    paging_seconds: Option<u64>,
    assessment: &'static str,
}

impl From<&MemcgMemory> for MemoryFields {
    fn from(memory: &MemcgMemory) -> Self {
        Self {
            version: if memory.version_2 { 2 } else { 1 },
            limit_bytes: memory.limit.map(|limit| limit.0),
            high_bytes: memory.high.map(|high| high.0),
            current_bytes: memory.current.map(|current| current.0),
            watched_s: memory.watched.as_secs_f64(),
            refaulted_pages: memory.refaults,
            pressure: memory.pressure.map(PressureFields::from),
            seconds: memory.seconds.all,
            scanning_seconds: memory.seconds.scanning,
            paging_seconds: memory.refaults.map(|_| memory.seconds.paging),
            assessment: assessment(memory.seconds),
        }
    }
}
