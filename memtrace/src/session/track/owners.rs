//! Users and cgroups of the processes that have ended.

use std::collections::BTreeMap;

use super::cgroup_names::CgroupNames;
use super::tracker::ProcessTracker;
use crate::kernel::RemovedCgroupReader;
use crate::model::{ImageId, Owner};

impl ProcessTracker {
    /// Sets the source of the names of removed cgroups.
    pub(in crate::session) fn name_cgroups(&mut self, removed: RemovedCgroupReader) {
        self.cgroups = CgroupNames::from_reader(removed);
    }

    /// Sets the user and the cgroup of images that have ended to those at their end.
    pub(in crate::session) fn set_owners(&mut self, owners: BTreeMap<ImageId, Owner>) {
        if owners.values().any(|owner| !self.cgroup_resolver.knows(owner.cgroups)) {
            self.cgroup_resolver = self.cgroups.resolver();
        }
        for (&id, &Owner { uid, cgroups, .. }) in &owners {
            // A name that was read in the process's root directory is better.
            let known = self.registry.images().get(&id).and_then(|image| image.user.clone());
            let user = known.filter(|user| user.uid == uid).unwrap_or_else(|| self.metadata.user(uid));
            self.registry.set_owner(id, user, self.cgroup_resolver.cgroup(cgroups));
        }
        self.owners.extend(owners);
    }
}
