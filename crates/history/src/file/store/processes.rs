//! Rows of processes.

use memtrace_model::{Cgroup, CgroupId, ImageId, OomKill};
use rusqlite::{OptionalExtension, Result, Transaction, params};

use crate::file::numbers::Numbers;
use crate::file::text::{end_name, nanoseconds, path_value, start_values};
use crate::interval::RecordedImage;

/// Returns the row number of an image. If the image has no row, creates a row without facts.
pub(super) fn image_number(
    transaction: &Transaction<'_>,
    interval: i64,
    id: ImageId,
    images: &mut Numbers<ImageId>,
) -> Result<i64> {
    let (number, is_new) = images.number(&id);
    if !is_new {
        return Ok(number);
    }
    // The row number of a finished image was forgotten, but the row may still exist.
    if let Some(known) = stored_number(transaction, id)? {
        images.set(&id, known);
        return Ok(known);
    }
    transaction
        .prepare_cached("INSERT INTO image (id, interval, pid, ordinal) VALUES (?, ?, ?, ?)")?
        .execute(params![number, interval, id.pid.0, id.ordinal])?;
    Ok(number)
}

/// Returns the row number of an image, if it has a row.
pub(super) fn known_number(
    transaction: &Transaction<'_>,
    id: ImageId,
    images: &Numbers<ImageId>,
) -> Result<Option<i64>> {
    match images.get(&id) {
        Some(number) => Ok(Some(number)),
        None => stored_number(transaction, id),
    }
}

fn stored_number(transaction: &Transaction<'_>, id: ImageId) -> Result<Option<i64>> {
    let mut row = transaction.prepare_cached("SELECT id FROM image WHERE pid = ? AND ordinal = ?")?;
    row.query_row(params![id.pid.0, id.ordinal], |row| row.get(0)).optional()
}

/// Stores the facts of an image.
pub(super) fn write_image(
    transaction: &Transaction<'_>,
    interval: i64,
    image: &RecordedImage,
    images: &mut Numbers<ImageId>,
    cgroups: &mut Numbers<Cgroup>,
) -> Result<()> {
    let number = image_number(transaction, interval, image.id, images)?;
    let cgroup = image.cgroup.as_deref().map(|cgroup| write_cgroup(transaction, cgroup, cgroups)).transpose()?;
    let group = image.member_of.map(|group| image_number(transaction, interval, group, images)).transpose()?;
    let (start_kind, start) = start_values(image.start);
    let end_kind = image.ended.map(|(end, _)| end_name(end));
    let end = image.ended.map(|(_, at)| nanoseconds(at.since_start()));
    let (uid, user) = (image.user.as_ref().map(|user| user.uid), image.user.as_ref().map(|user| user.name.as_deref()));
    transaction
        .prepare_cached(
            "UPDATE image SET comm = ?, exe = ?, uid = ?, user = ?, cgroup = ?, threads = ?, start_kind = ?, start_ns = ?,
                end_kind = ?, end_ns = ?, member_of = coalesce(?, member_of) WHERE id = ?",
        )?
        .execute(params![
            image.comm.raw(),
            image.exe.as_deref().map(path_value),
            uid,
            user.flatten(),
            cgroup,
            image.threads,
            start_kind,
            start,
            end_kind,
            end,
            group,
            number
        ])?;
    let mut row = transaction.prepare_cached("INSERT OR REPLACE INTO thread VALUES (?, ?, ?)")?;
    for (tid, name) in &image.thread_names {
        row.execute(params![number, tid.0, name])?;
    }
    Ok(())
}

fn write_cgroup(transaction: &Transaction<'_>, cgroup: &Cgroup, cgroups: &mut Numbers<Cgroup>) -> Result<i64> {
    let (number, is_new) = cgroups.number(cgroup);
    if is_new {
        let Cgroup { path, unit, container, pod } = cgroup;
        let runtime = container.as_ref().and_then(|container| container.runtime);
        let container = container.as_ref().map(|container| &container.id);
        transaction
            .prepare_cached("INSERT INTO cgroup VALUES (?, ?, ?, ?, ?, ?)")?
            .execute(params![number, path, unit, runtime, container, pod])?;
    }
    Ok(number)
}

/// Stores an OOM kill.
pub(super) fn write_oom_kill(transaction: &Transaction<'_>, interval: i64, kill: &OomKill) -> Result<()> {
    let cgroup = |id: Option<CgroupId>| id.map(|id| id.number().cast_signed());
    transaction
        .prepare_cached(
            "INSERT INTO oom_kill (interval, at_ns, pid, ordinal, comm, by_pid, by_comm, cgroup_id, full_cgroup_id)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            interval,
            nanoseconds(kill.at.since_start()),
            kill.victim.pid.0,
            kill.victim.ordinal,
            kill.comm,
            kill.by.0,
            kill.by_comm,
            cgroup(kill.group),
            cgroup(kill.full)
        ])?;
    Ok(())
}
