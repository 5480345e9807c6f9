//! Users and cgroups of processes that have ended.

use std::collections::BTreeMap;

use memtrace_history::registry::Registry;
use memtrace_host::kernel::RemovedCgroupReader;
use memtrace_host::procfs::{Hierarchies, MetadataReader};
use memtrace_model::{CgroupId, ImageId, Owner, ProcessImage};

use super::cgroup_names::{CgroupNames, CgroupResolver};

/// Owners of images that have ended, with the names of their cgroups.
#[derive(Default)]
pub(crate) struct Owners {
    images: BTreeMap<ImageId, Owner>,
    cgroups: CgroupNames,
    resolver: CgroupResolver,
}

impl Owners {
    /// Sets the reader that reports the paths of removed cgroups.
    pub(crate) fn name_cgroups(&mut self, removed: RemovedCgroupReader) {
        self.cgroups = CgroupNames::from_reader(removed);
    }

    /// Sets the user and the cgroup of ended images to the ones that the kernel reported at their
    /// end.
    pub(super) fn add(&mut self, owners: BTreeMap<ImageId, Owner>, registry: &mut Registry, metadata: &MetadataReader) {
        if owners.values().any(|owner| !self.resolver.knows(owner.cgroups)) {
            self.resolver = self.cgroups.resolver();
        }
        for (&id, &Owner { uid, cgroups, .. }) in &owners {
            // A user name that was read in the process's root directory is kept, because the host
            // can have another name for this ID.
            let known = registry.images().get(&id).and_then(|image| image.user.clone());
            let user = known.filter(|user| user.uid == uid).unwrap_or_else(|| metadata.user(uid));
            registry.set_owner(id, user, self.resolver.cgroup(cgroups));
        }
        self.images.extend(owners);
    }

    /// Reads the paths of the cgroups that were removed since the last call.
    pub(super) fn update(&mut self) {
        self.cgroups.update();
    }

    /// Returns the owner of an image at its end, if the kernel has reported it.
    pub(super) fn get(&self, id: ImageId) -> Option<&Owner> {
        self.images.get(&id)
    }

    /// Forgets the owner of an image.
    pub(super) fn remove(&mut self, id: ImageId) {
        self.images.remove(&id);
    }

    /// Returns the cgroups of an image at its end, with their ancestors. If the kernel did not report the cgroups, or if one of
    /// their paths is not known, adds the cgroups at the last path that was read while the image ran.
    pub(super) fn cgroups_of(
        &self,
        id: ImageId,
        image: &ProcessImage,
        hierarchies: &Hierarchies,
    ) -> Vec<(u32, CgroupId)> {
        let (owner, resolver) = (self.get(id), &self.resolver);
        let mut groups = owner.map(|owner| resolver.with_ancestors(owner.cgroups)).unwrap_or_default();
        if owner.is_none_or(|owner| resolver.paths(owner.cgroups).is_none()) {
            groups.extend(image.cgroup.iter().flat_map(|cgroup| hierarchies.at_path(&cgroup.path)));
        }
        groups
    }
}
