//! Processes and OOM kills at a boundary.

use std::collections::BTreeMap;
use std::sync::Arc;

use memtrace_model::{Cgroup, CgroupId, Comm, Container, ImageId, OomKill, Pid, Tid, User};
use rusqlite::{Row, types::ValueRef};
use rustc_hash::FxHashMap;

use super::query::Query;
use super::{Recording, totals};
use crate::boundaries::Boundary;
use crate::file::error::Error;
use crate::file::text::{end_of, nanoseconds, path_of, start_of, tick_of};
use crate::interval::RecordedImage;

/// Container runtimes of control groups. Stored names are mapped to these static strings.
const RUNTIMES: [&str; 6] = ["docker", "containerd", "crio", "podman", "lxc", "nspawn"];

/// Returns the images that are known at a boundary. An image that ends later has no end yet; its name and other facts
/// are the last ones of the recording.
pub(super) fn images(recording: &Recording, at: Boundary) -> Result<BTreeMap<ImageId, RecordedImage>, Error> {
    let cgroups = cgroups(recording)?;
    let mut threads = threads(recording)?;
    let mut images = BTreeMap::new();
    let sql = "SELECT id, pid, ordinal, comm, exe, uid, user, cgroup, threads, start_kind, start_ns, end_kind, end_ns,
        member_of FROM image WHERE interval <= ?";
    let ids = totals::image_ids(recording)?;
    recording.connection.each_row(sql, [at.id], |row| {
        let thread_names = threads.remove(&row.get::<_, i64>(0)?).unwrap_or_default();
        let image = image(row, &cgroups, thread_names, &ids, at)?;
        images.insert(image.id, image);
        Ok(())
    })?;
    Ok(images)
}

fn cgroups(recording: &Recording) -> Result<FxHashMap<i64, Arc<Cgroup>>, Error> {
    let mut cgroups = FxHashMap::default();
    recording.connection.each_row("SELECT id, path, unit, runtime, container, pod FROM cgroup", [], |row| {
        let runtime: Option<String> = row.get(3)?;
        let runtime = runtime.and_then(|name| RUNTIMES.into_iter().find(|known| *known == name));
        let container = row.get::<_, Option<String>>(4)?.map(|id| Container { runtime, id });
        let cgroup = Cgroup { path: row.get(1)?, unit: row.get(2)?, container, pod: row.get(5)? };
        cgroups.insert(row.get(0)?, Arc::new(cgroup));
        Ok(())
    })?;
    Ok(cgroups)
}

fn threads(recording: &Recording) -> Result<FxHashMap<i64, BTreeMap<Tid, String>>, Error> {
    let mut threads: FxHashMap<i64, BTreeMap<Tid, String>> = FxHashMap::default();
    recording.connection.each_row("SELECT image, tid, name FROM thread", [], |row| {
        threads.entry(row.get(0)?).or_default().insert(Tid(row.get(1)?), row.get(2)?);
        Ok(())
    })?;
    Ok(threads)
}

/// Returns the OOM kills up to a boundary, in order of time.
pub(super) fn oom_kills(recording: &Recording, at: Boundary) -> Result<Vec<OomKill>, Error> {
    let mut kills = Vec::new();
    let sql = "SELECT at_ns, pid, ordinal, comm, by_pid, by_comm, cgroup_id, full_cgroup_id FROM oom_kill
        WHERE interval <= ? ORDER BY at_ns, id";
    recording.connection.each_row(sql, [at.id], |row| {
        kills.push(OomKill {
            at: tick_of(row.get(0)?),
            victim: ImageId { pid: Pid(row.get(1)?), ordinal: row.get(2)? },
            comm: row.get(3)?,
            by: Pid(row.get(4)?),
            by_comm: row.get(5)?,
            group: cgroup_id(row, 6)?,
            full: cgroup_id(row, 7)?,
        });
        Ok(())
    })?;
    Ok(kills)
}

fn image(
    row: &Row<'_>,
    cgroups: &FxHashMap<i64, Arc<Cgroup>>,
    thread_names: BTreeMap<Tid, String>,
    ids: &FxHashMap<i64, ImageId>,
    at: Boundary,
) -> Result<RecordedImage, Error> {
    let name: Option<String> = row.get(6)?;
    let (start_kind, end_kind): (Option<String>, Option<String>) = (row.get(9)?, row.get(11)?);
    let end: Option<i64> = row.get(12)?;
    let ended = end_kind.as_deref().and_then(end_of).zip(end).filter(|(_, end)| *end <= nanoseconds(at.at));
    let exe = match row.get_ref(4)? {
        ValueRef::Null => None,
        value => path_of(value),
    };
    Ok(RecordedImage {
        id: ImageId { pid: Pid(row.get(1)?), ordinal: row.get(2)? },
        comm: Comm::from(row.get::<_, Option<String>>(3)?.unwrap_or_default()),
        exe,
        user: row.get::<_, Option<u32>>(5)?.map(|uid| User { uid, name }),
        cgroup: row.get::<_, Option<i64>>(7)?.and_then(|id| cgroups.get(&id)).cloned(),
        threads: row.get(8)?,
        thread_names,
        start: start_of(start_kind.as_deref(), row.get(10)?),
        ended: ended.map(|(end, at)| (end, tick_of(at))),
        member_of: row.get::<_, Option<i64>>(13)?.and_then(|group| ids.get(&group)).copied(),
    })
}

fn cgroup_id(row: &Row<'_>, column: usize) -> Result<Option<CgroupId>, Error> {
    Ok(row.get::<_, Option<i64>>(column)?.and_then(|id| CgroupId::of(id.cast_unsigned())))
}
