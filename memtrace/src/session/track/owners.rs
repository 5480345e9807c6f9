//! Users and cgroups of the processes that have ended.

use super::cgroup_names::CgroupNames;
use super::tracker::ProcessTracker;
use crate::kernel::RemovedCgroupReader;
use crate::model::{Owner, Snapshots};

impl ProcessTracker {
    /// Sets the source of the names of removed cgroups.
    pub(in crate::session) fn name_cgroups(&mut self, removed: RemovedCgroupReader) {
        self.cgroups = CgroupNames::from_reader(removed);
    }

    /// Sets the user and the cgroup of the images that ended to those at their end.
    pub(in crate::session) fn set_owners(&mut self, snapshots: &Snapshots) {
        // Every class has the same owners.
        let owners = snapshots.0.values().map(|snapshot| &snapshot.owners).max_by_key(|owners| owners.len());
        let Some(owners) = owners.filter(|owners| !owners.is_empty()) else { return };
        let mut resolver = self.cgroups.resolver();
        for (&id, &Owner { uid, cgroups, .. }) in owners {
            // A name that was read in the process's root directory is better.
            let known = self.registry.images().get(&id).and_then(|image| image.user.clone());
            let user = known.filter(|user| user.uid == uid).unwrap_or_else(|| self.metadata.user(uid));
            self.registry.set_owner(id, user, resolver.cgroup(cgroups));
        }
        self.owners.clone_from(owners);
        self.cgroup_resolver = resolver;
    }
}
