//! Traits of processes that filters compare. They come from procfs while a process runs, and from the registry after
//! its end.

use memtrace_host::procfs::{self, Hierarchies};
use memtrace_host::target_files::facts_at;
use memtrace_model::{ImageId, ProcessImage, Traits};

use super::tracker::ProcessTracker;

/// Returns the present traits of an image that runs, or the recorded traits of an image that has ended. `hierarchies`:
/// the cgroup hierarchies, if the filter compares cgroups.
pub(crate) fn of(tracker: &ProcessTracker, id: ImageId, hierarchies: Option<&Hierarchies>) -> Traits {
    let Some(image) = tracker.images().get(&id) else {
        return procfs::traits(id.pid, hierarchies).unwrap_or_default();
    };
    // The pid of an ended image can belong to another process.
    let runs = image.ended.is_none() && tracker.registry.is_latest(id);
    let present = if runs { procfs::traits(id.pid, hierarchies) } else { None };
    present.unwrap_or_else(|| recorded(tracker, id, image, hierarchies))
}

/// Returns the traits of an image at its end.
fn recorded(tracker: &ProcessTracker, id: ImageId, image: &ProcessImage, hierarchies: Option<&Hierarchies>) -> Traits {
    let owner = tracker.owners.get(id);
    Traits {
        comm: Some(image.comm.raw().to_owned()),
        user: owner.map(|owner| owner.real_uid).or_else(|| image.user.as_ref().map(|user| user.uid)),
        exe: executable(image),
        cgroups: hierarchies.map(|all| tracker.owners.cgroups_of(id, image, all)).unwrap_or_default(),
    }
}

/// Returns the device number and the inode number of the executable; `None` if memtrace could not open the file.
fn executable(image: &ProcessImage) -> Option<(u64, u64)> {
    let path = image.exe.as_ref()?;
    let mut objects = image.objects();
    let handle = objects.find(|object| object.path == *path)?.handle.as_ref()?;
    let facts = facts_at(handle).ok()?;
    Some((facts.device, facts.inode))
}
