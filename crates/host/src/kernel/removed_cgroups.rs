//! Reader of the cgroups that were removed during a run.

use memtrace_common::wire::RemovedCgroupRecord;
use memtrace_model::CgroupId;

use super::bpf::Bpf;
use super::error::KernelError;
use super::mapped_ring::MappedRing;
use super::wire_type;

/// Cgroup that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedCgroup {
    /// Number of the cgroup's hierarchy.
    pub hierarchy: u32,
    /// Id of the cgroup within its hierarchy.
    pub id: CgroupId,
    /// Path from the root of the hierarchy.
    pub path: String,
}

/// Reader of the ring with removed cgroups.
pub struct RemovedCgroupReader(MappedRing);

impl RemovedCgroupReader {
    pub(super) fn take(bpf: &mut Bpf) -> Result<Self, KernelError> {
        bpf.take_ring("REMOVED_CGROUPS", "read the names of removed cgroups").map(Self)
    }

    /// Passes all unread records of removed cgroups to `sink`.
    pub fn drain(&mut self, mut sink: impl FnMut(RemovedCgroup)) {
        while let Some(record) = self.0.next_record() {
            if let Some(removed) = parse(&record) {
                sink(removed);
            }
        }
    }
}

/// Returns `None` for a record without an id or a path.
fn parse(record: &[u8]) -> Option<RemovedCgroup> {
    let RemovedCgroupRecord { id, hierarchy, length, path } = wire_type::read(record)?;
    let path = path.get(..(length as usize).checked_sub(1)?)?;
    Some(RemovedCgroup { hierarchy, id: CgroupId::of(id)?, path: String::from_utf8_lossy(path).into_owned() })
}

#[cfg(test)]
mod tests {
    use memtrace_common::wire::REMOVED_PATH;

    use super::*;

    fn record(id: u64, hierarchy: u32, path: &[u8]) -> Vec<u8> {
        let mut bytes = [&id.to_ne_bytes()[..], &hierarchy.to_ne_bytes(), &(path.len() as u32).to_ne_bytes()].concat();
        bytes.extend(path);
        bytes.resize(16 + REMOVED_PATH, b'?');
        bytes
    }

    #[test]
    fn path_ends_at_its_length() {
        let expected = RemovedCgroup { hierarchy: 4, id: CgroupId::of(77).unwrap(), path: "/jobs/a".into() };
        assert_eq!(parse(&record(77, 4, b"/jobs/a\0")), Some(expected));
    }

    #[test]
    fn record_without_path_or_id_is_ignored() {
        assert_eq!(parse(&record(77, 4, b"")), None);
        assert_eq!(parse(&record(0, 4, b"/\0")), None);
        assert_eq!(parse(&record(7, 4, b"/\0")[1..]), None);
    }
}
