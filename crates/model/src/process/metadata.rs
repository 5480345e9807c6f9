//! Owner and placement of processes: user, control group, container.

use crate::plain;
use std::fmt;

use crate::{CgroupId, HIERARCHIES};

/// A user of the system.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct User {
    /// User ID in the root user namespace.
    pub uid: u32,
    /// Name of the user, if known.
    pub name: Option<String>,
}

impl fmt::Display for User {
    /// Writes the name, or the user ID if there is no name.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => out.pad(&plain(name)),
            None => out.pad(&self.uid.to_string()),
        }
    }
}

/// A control group, with the unit, container and pod in its path.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cgroup {
    /// Path from the root of the hierarchy: `/system.slice/cron.service`.
    pub path: String,
    /// Innermost systemd unit in the path: `cron.service`.
    pub unit: Option<String>,
    /// Innermost container in the path.
    pub container: Option<Container>,
    /// UID of the Kubernetes pod in the path, with dashes as Kubernetes writes it.
    pub pod: Option<String>,
}

/// User and control groups of a process at the end of an image, as the kernel reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// User ID in the root user namespace: the effective user at an exit, the real user at an exec.
    pub uid: u32,
    /// Real user ID, which process filters compare.
    pub real_uid: u32,
    /// Control group in each of the recorded hierarchies, if known.
    pub cgroups: [Option<CgroupId>; HIERARCHIES],
}

/// Container of a control group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Container {
    /// Container runtime, if the path names it: `docker`, `containerd`, `crio`, `podman`, `lxc`, `nspawn`.
    pub runtime: Option<&'static str>,
    /// Full ID of the container, or its name if it has no ID.
    pub id: String,
}
