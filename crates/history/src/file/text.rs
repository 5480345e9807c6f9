//! Conversion of column values: times, paths, build IDs, parts, and names of enum variants.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memtrace_model::{
    BuildId, CounterSource, ImageEnd, ImageStart, Part, PartKey, ReclaimKind, TaskState, Tick, Unnamed,
};
use rusqlite::Row;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};

/// Returns a time as columns store it, in nanoseconds.
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

/// Returns the values of the columns [`PART`](super::schema::PART): a name or a number for each key of the part, and
/// NULL for the other keys.
pub(super) fn part_values(part: Part) -> [Value; PartKey::ALL.len()] {
    PartKey::ALL.map(|PartKey { number, value_name, .. }| {
        let Some(number) = number(part) else { return Value::Null };
        value_name(number).map_or(Value::Integer(number.into()), |name| Value::Text(name.to_owned()))
    })
}

/// Returns the part that [`part_values`] stored in the columns from `first` on. `None` if a value is impossible.
pub(super) fn part_of(row: &Row<'_>, first: usize) -> Option<Part> {
    (first..).zip(PartKey::ALL).try_fold(Part::WHOLE, |part, (column, PartKey { with_number, value_name, .. })| {
        let number = match row.get_ref(column).ok()? {
            ValueRef::Null => return Some(part),
            ValueRef::Text(name) => (0..).map_while(value_name).zip(0..).find(|(known, _)| known.as_bytes() == name)?.1,
            value => value.as_i64().ok()?.try_into().ok()?,
        };
        with_number(part, number)
    })
}

/// Returns the kind of an image's start and the time of this start in nanoseconds, as columns store them.
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

    use memtrace_model::{AllocatorId, MappingKind, PartKeys, TagId, Tid};
    use rusqlite::{Connection, params_from_iter};

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
        for start in [ImageStart::Unseen, ImageStart::Fork(Tick(7)), ImageStart::Exec(Tick(u32::MAX))] {
            let (kind, time) = start_values(start);
            assert_eq!(start_of(kind, time), start);
        }
        for reason in Unnamed::ALL {
            assert_eq!(unnamed_of(reason.name()), Some(reason));
        }
    }

    #[test]
    fn parts_are_read_as_they_were_stored() {
        assert_eq!(PartKey::ALL.map(|key| key.name).join(", "), crate::file::schema::PART);
        let all = Part::WHOLE.with_thread(Tid(u32::MAX)).with_allocator(AllocatorId(3)).with_tag(TagId(u16::MAX));
        let of_keys = (0..1 << PartKey::ALL.len()).map(|bits| {
            let key = |number: usize| if bits >> number & 1 == 1 { PartKey::ALL[number].flag } else { PartKeys::NONE };
            let keys = (0..PartKey::ALL.len()).fold(PartKeys::NONE, |keys, number| keys.union(key(number)));
            all.with_memory(MappingKind::Shmem).restricted_to(keys)
        });
        let connection = Connection::open_in_memory().unwrap();
        let mut row = connection.prepare("SELECT 'first', ?, ?, ?, ?").unwrap();
        for part in of_keys.chain(MappingKind::ALL.map(|kind| Part::WHOLE.with_memory(kind))) {
            let read = row.query_one(params_from_iter(part_values(part)), |row| Ok(part_of(row, 1))).unwrap();
            assert_eq!(read, Some(part));
        }
        for values in [[Some("x"), None, None, None], [None, None, None, Some("unknown")]] {
            assert_eq!(row.query_one(params_from_iter(values), |row| Ok(part_of(row, 1))).unwrap(), None);
        }
        for [allocator, tag] in [[1 << 16, 0], [-1, 0], [0, 1 << 16]] {
            let values = [Value::Null, allocator.into(), tag.into(), Value::Null];
            assert_eq!(row.query_one(params_from_iter(values), |row| Ok(part_of(row, 1))).unwrap(), None);
        }
    }
}
