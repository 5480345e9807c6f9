//! Objects, call paths and names.

use std::collections::BTreeMap;

use memtrace_model::{Frame, Location as SourceLocation, Name, VirtOffset};
use rusqlite::Row;

use super::Recording;
use super::query::Query;
use crate::file::error::Error;
use crate::file::text::{build_id_of, path_of, unnamed_of};
use crate::interval::{
    FramesByOffset, Location, Locations, ObjectNumber, PathNumber, PathRows, RecordedObject, RecordedPath,
};

pub(super) fn locations(recording: &Recording) -> Result<Locations, Error> {
    let objects = objects(recording)?;
    let symbols = symbols(recording, &objects)?;
    Ok(Locations { objects, paths: paths(recording)?, symbols })
}

fn objects(recording: &Recording) -> Result<BTreeMap<ObjectNumber, Location>, Error> {
    let mut objects = BTreeMap::new();
    recording.connection.each_row("SELECT id, kind, path, build_id FROM object", [], |row| {
        let RecordedObject { number, location } = object(row)?;
        objects.insert(number, location);
        Ok(())
    })?;
    Ok(objects)
}

fn paths(recording: &Recording) -> Result<PathRows, Error> {
    let mut paths = recording.connection.list_of_rows("path")?;
    let sql = "SELECT id, callers, object, offset, by_frame_pointer FROM path ORDER BY id";
    recording.connection.each_row(sql, [], |row| {
        let (number, callers) = (PathNumber(row.get(0)?), PathNumber(row.get(1)?));
        if callers >= number {
            return Err(Error::Damaged(format!("call path {} has no callers before it", number.0)));
        }
        let path = RecordedPath {
            number,
            callers,
            object: ObjectNumber(row.get(2)?),
            offset: row.get::<_, Option<i64>>(3)?.map(i64::cast_unsigned),
            by_frame_pointer: row.get(4)?,
        };
        paths.push(path);
        Ok(())
    })?;
    Ok(PathRows(paths))
}

fn symbols(recording: &Recording, objects: &BTreeMap<ObjectNumber, Location>) -> Result<FramesByOffset, Error> {
    let mut symbols: BTreeMap<_, Vec<Frame>> = BTreeMap::new();
    let sql = "SELECT object, offset, name, unnamed, address, file, line, inlined FROM symbol
        ORDER BY object, offset, depth";
    recording.connection.each_row(sql, [], |row| {
        let (object, offset): (_, i64) = (ObjectNumber(row.get(0)?), row.get(1)?);
        let offset = (offset != -1).then(|| offset.cast_unsigned());
        let name: Option<String> = row.get(2)?;
        let reason: Option<String> = row.get(3)?;
        let reason = reason.as_deref().and_then(unnamed_of);
        let name = match (name, reason) {
            (Some(name), _) => Ok(Name(name)),
            (None, Some(reason)) => Err(reason),
            (None, None) => return Err(Error::Damaged(String::from("a frame has neither a name nor a reason"))),
        };
        let object_name = objects.get(&object).and_then(Location::file_name);
        let line = row.get(6)?;
        let location = path_of(row.get_ref(5)?).map(|file| SourceLocation { file, line });
        symbols.entry((object, offset)).or_default().push(Frame {
            name,
            object: object_name,
            offset: row.get::<_, Option<i64>>(4)?.map(|address| VirtOffset(address.cast_unsigned())),
            address: None,
            location,
            inlined: row.get(7)?,
            by_frame_pointer: false,
        });
        Ok(())
    })?;
    Ok(symbols)
}

fn object(row: &Row<'_>) -> Result<RecordedObject, Error> {
    let kind: String = row.get(1)?;
    let build_id: Option<String> = row.get(3)?;
    let location = match kind.as_str() {
        "file" => {
            let path = path_of(row.get_ref(2)?);
            path.map(|path| Location::File { path, build_id: build_id.as_deref().and_then(build_id_of) })
        }
        "generated" => Some(Location::Generated),
        reason => unnamed_of(reason).map(Location::Outside),
    };
    let location = location.ok_or_else(|| Error::Damaged(String::from("an object has an unknown kind")))?;
    Ok(RecordedObject { number: ObjectNumber(row.get(0)?), location })
}
