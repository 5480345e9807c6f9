//! Traits of processes that filters compare: from procfs while a process runs, after that from what was recorded.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::tracker::ProcessTracker;
use crate::model::{CgroupId, ImageId, Owner, ProcessImage, Traits};
use crate::procfs::{self, Hierarchies};

impl ProcessTracker {
    /// Returns the present traits of an image that runs, or those at its end, as far as they are known. Cgroups are looked
    /// up in `hierarchies`, if given.
    pub(in crate::session) fn traits(&self, id: ImageId, hierarchies: Option<&Hierarchies>) -> Traits {
        let Some(image) = self.images().get(&id) else {
            return procfs::traits(id.pid, hierarchies).unwrap_or_default();
        };
        // A pid can be reused.
        let runs = image.ended.is_none() && self.registry.is_latest(id);
        let present = if runs { procfs::traits(id.pid, hierarchies) } else { None };
        present.unwrap_or_else(|| self.recorded_traits(id, image, hierarchies))
    }

    /// Returns the traits of an image at its end.
    fn recorded_traits(&self, id: ImageId, image: &ProcessImage, hierarchies: Option<&Hierarchies>) -> Traits {
        let owner = self.owners.get(&id);
        Traits {
            comm: Some(image.comm.raw().to_owned()),
            user: owner.map(|owner| owner.real_uid).or_else(|| image.user.as_ref().map(|user| user.uid)),
            exe: executable(image),
            cgroups: hierarchies.map(|all| self.recorded_cgroups(owner, image, all)).unwrap_or_default(),
        }
    }

    /// Returns the cgroups of an image at its end. If the kernel did not report them, or a path is not known, those that
    /// were read last are added.
    fn recorded_cgroups(
        &self,
        owner: Option<&Owner>,
        image: &ProcessImage,
        hierarchies: &Hierarchies,
    ) -> Vec<(u32, CgroupId)> {
        let resolver = &self.cgroup_resolver;
        let mut groups = owner.map(|owner| resolver.with_ancestors(owner.cgroups)).unwrap_or_default();
        if owner.is_none_or(|owner| resolver.paths(owner.cgroups).is_none()) {
            groups.extend(image.cgroup.iter().flat_map(|cgroup| hierarchies.at_path(&cgroup.path)));
        }
        groups
    }
}

/// Returns device and inode of the executable; `None` if memtrace could not open it.
fn executable(image: &ProcessImage) -> Option<(u64, u64)> {
    let path = image.exe.as_ref()?;
    let mut objects = image.objects();
    let handle = objects.find(|object| object.path == *path)?.handle.as_ref()?;
    let file = fs::metadata(handle).ok()?;
    Some((file.dev(), file.ino()))
}
