//! Whose a process is: its user, and the control group that it lives in.

use std::fmt;

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct User {
    /// The number, as the root user namespace counts.
    pub uid: u32,
    /// The name, where one is known.
    pub name: Option<String>,
}

impl fmt::Display for User {
    /// Writes the name, or else the number.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => out.pad(name),
            None => out.pad(&self.uid.to_string()),
        }
    }
}

/// A control group, and what its path says of who made it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cgroup {
    /// The path from the root of its hierarchy, as in `/system.slice/cron.service`.
    pub path: String,
    /// The innermost unit of systemd: `cron.service`.
    pub unit: Option<String>,
    /// The innermost container.
    pub container: Option<Container>,
    /// The uid of the Kubernetes pod, with dashes as Kubernetes writes it.
    pub pod: Option<String>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Container {
    /// Who runs it, where the path says so: `docker`, `containerd`, `crio`, `podman`, `lxc`, `nspawn`.
    pub runtime: Option<&'static str>,
    /// Its id, in full; its name where it has no other.
    pub id: String,
}
