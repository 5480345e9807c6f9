//! Values of columns: names of variants, and texts that need not be UTF-8.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use crate::model::{
    AllocatorId, BuildId, CounterSource, ImageEnd, ImageStart, MappingKind, Partition, ReclaimKind, TagId, TaskState,
    Tick, Tid, Unnamed,
};

/// Returns a time in nanoseconds.
pub(super) fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns the time that [`nanoseconds`] stored.
pub(super) const fn duration(nanoseconds: i64) -> Duration {
    Duration::from_nanos(nanoseconds.cast_unsigned())
}

/// Returns a path as text, or as a blob if it is not UTF-8.
pub(super) fn path_value(path: &Path) -> ToSqlOutput<'_> {
    match path.to_str() {
        Some(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        None => ToSqlOutput::Borrowed(ValueRef::Blob(path.as_os_str().as_bytes())),
    }
}

/// Returns the path that [`path_value`] stored.
pub(super) fn path_of(value: ValueRef<'_>) -> Option<PathBuf> {
    let bytes = value.as_bytes().ok()?;
    Some(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// Returns a build ID as hexadecimal digits.
pub(super) fn build_id_text(build_id: &BuildId) -> String {
    build_id.to_string()
}

/// Returns the build ID with these hexadecimal digits.
pub(super) fn build_id_of(text: &str) -> Option<BuildId> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(BuildId(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()))
}

/// Returns the kind and the number or name of a part of a process.
pub(super) fn part_values(part: Partition) -> (Option<&'static str>, Value) {
    match part {
        Partition::Whole => (None, Value::Null),
        Partition::Thread(Tid(tid)) => (Some("thread"), Value::Integer(tid.into())),
        Partition::Allocator(AllocatorId(id)) => (Some("allocator"), Value::Integer(id.into())),
        Partition::ThreadAndAllocator(Tid(tid), AllocatorId(id)) => {
            (Some("thread_and_allocator"), Value::Integer(i64::from(tid) << u16::BITS | i64::from(id)))
        }
        Partition::Tag(TagId(id)) => (Some("tag"), Value::Integer(id.into())),
        Partition::ThreadAndTag(Tid(tid), TagId(id)) => {
            (Some("thread_and_tag"), Value::Integer(i64::from(tid) << u16::BITS | i64::from(id)))
        }
        Partition::AllocatorAndTag(AllocatorId(id), TagId(tag)) => {
            (Some("allocator_and_tag"), Value::Integer(i64::from(id) << u16::BITS | i64::from(tag)))
        }
        Partition::ThreadAllocatorAndTag(Tid(tid), AllocatorId(id), TagId(tag)) => {
            let number = u64::from(tid) << u32::BITS | u64::from(id) << u16::BITS | u64::from(tag);
            (Some("thread_allocator_and_tag"), Value::Integer(number.cast_signed()))
        }
        Partition::Memory(kind) => (Some("memory"), Value::Text(kind.name().to_owned())),
    }
}

/// Returns the part that [`part_values`] stored.
pub(super) fn part_of(kind: Option<&str>, part: ValueRef<'_>) -> Option<Partition> {
    let number = part.as_i64().ok();
    match kind {
        None => Some(Partition::Whole),
        Some("thread") => Some(Partition::Thread(Tid(u32::try_from(number?).ok()?))),
        Some("allocator") => Some(Partition::Allocator(AllocatorId(u16::try_from(number?).ok()?))),
        Some("thread_and_allocator") => {
            let number = number?;
            let tid = Tid(u32::try_from(number >> u16::BITS).ok()?);
            Some(Partition::ThreadAndAllocator(tid, AllocatorId(number.cast_unsigned() as u16)))
        }
        Some("tag") => Some(Partition::Tag(TagId(u16::try_from(number?).ok()?))),
        Some("thread_and_tag") => {
            let number = number?;
            let tid = Tid(u32::try_from(number >> u16::BITS).ok()?);
            Some(Partition::ThreadAndTag(tid, TagId(number.cast_unsigned() as u16)))
        }
        Some("allocator_and_tag") => {
            let number = u32::try_from(number?).ok()?;
            Some(Partition::AllocatorAndTag(AllocatorId((number >> u16::BITS) as u16), TagId(number as u16)))
        }
        Some("thread_allocator_and_tag") => {
            let number = number?.cast_unsigned();
            let (tid, ids) = (Tid((number >> u32::BITS) as u32), number as u32);
            let (id, tag) = (AllocatorId((ids >> u16::BITS) as u16), TagId(ids as u16));
            Some(Partition::ThreadAllocatorAndTag(tid, id, tag))
        }
        Some("memory") => {
            let name = part.as_str().ok()?;
            MappingKind::ALL.into_iter().find(|kind| kind.name() == name).map(Partition::Memory)
        }
        Some(_) => None,
    }
}

/// Returns the kind and the time of the start of an image.
pub(super) fn start_values(start: ImageStart) -> (Option<&'static str>, Option<i64>) {
    let kind = match start {
        ImageStart::Unseen => None,
        ImageStart::Fork(_) => Some("fork"),
        ImageStart::Exec(_) => Some("exec"),
    };
    (kind, start.tick().map(|tick| nanoseconds(tick.since_start())))
}

/// Returns the start that [`start_values`] stored.
pub(super) fn start_of(kind: Option<&str>, time: Option<i64>) -> ImageStart {
    match (kind, time) {
        (Some("fork"), Some(time)) => ImageStart::Fork(tick_of(time)),
        (Some("exec"), Some(time)) => ImageStart::Exec(tick_of(time)),
        _ => ImageStart::Unseen,
    }
}

/// Returns the name of the end of an image.
pub(super) const fn end_name(end: ImageEnd) -> &'static str {
    match end {
        ImageEnd::Exit => "exit",
        ImageEnd::OomKill => "oom_kill",
        ImageEnd::Exec => "exec",
    }
}

/// Returns the end with this name.
pub(super) fn end_of(name: &str) -> Option<ImageEnd> {
    [ImageEnd::Exit, ImageEnd::OomKill, ImageEnd::Exec].into_iter().find(|end| end_name(*end) == name)
}

/// Returns the state with this letter.
pub(super) fn state_of(text: &str) -> Option<TaskState> {
    text.chars().next().and_then(TaskState::of_letter)
}

/// Returns the source of heap counters with this name.
pub(super) fn source_of(name: &str) -> Option<CounterSource> {
    CounterSource::ALL.into_iter().find(|source| source.name() == name)
}

/// Returns the tick at a time in nanoseconds.
pub(super) fn tick_of(time: i64) -> Tick {
    Tick::at(duration(time))
}

/// Returns the kind of reclaim with this name.
pub(super) fn reclaim_of(name: &str) -> Option<ReclaimKind> {
    ReclaimKind::ALL.iter().copied().find(|kind| kind.name() == name)
}

/// Returns the reason with this name.
pub(super) fn unnamed_of(name: &str) -> Option<Unnamed> {
    Unnamed::ALL.into_iter().find(|reason| reason.name() == name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn values_are_read_as_they_were_stored() {
        let name = PathBuf::from(std::ffi::OsString::from_vec(vec![b'/', 0xff, b'a']));
        for path in [PathBuf::from("/usr/bin/ls"), name] {
            let ToSqlOutput::Borrowed(value) = path_value(&path) else { unreachable!("borrowed") };
            assert_eq!(path_of(value), Some(path.clone()));
        }
        let build_id = BuildId([0x0a, 0xff, 0].into());
        assert_eq!(build_id_of(&build_id_text(&build_id)), Some(build_id));
        assert_eq!((build_id_of("0"), build_id_of("zz")), (None, None));
        let kinds = MappingKind::ALL.map(Partition::Memory);
        let both = Partition::ThreadAndAllocator(Tid(u32::MAX), AllocatorId(u16::MAX));
        let all = Partition::ThreadAllocatorAndTag(Tid(u32::MAX), AllocatorId(3), TagId(u16::MAX));
        let of_tag = Partition::AllocatorAndTag(AllocatorId(u16::MAX), TagId(7));
        let parts =
            [Partition::Whole, Partition::Thread(Tid(7)), Partition::Allocator(AllocatorId(3)), both, all, of_tag];
        for part in parts.into_iter().chain(kinds) {
            let (kind, value) = part_values(part);
            assert_eq!(part_of(kind, ValueRef::from(&value)), Some(part));
        }
        for start in [ImageStart::Unseen, ImageStart::Fork(Tick(7)), ImageStart::Exec(Tick(u32::MAX))] {
            let (kind, time) = start_values(start);
            assert_eq!(start_of(kind, time), start);
        }
        for reason in Unnamed::ALL {
            assert_eq!(unnamed_of(reason.name()), Some(reason));
        }
    }
}
