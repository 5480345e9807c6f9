//! Properties that process filters compare.

use crate::CgroupId;

/// Properties of a process that filters compare, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Short name.
    pub comm: Option<String>,
    /// Real user ID.
    pub user: Option<u32>,
    /// Device and inode of the executable, as in `stat`.
    pub exe: Option<(u64, u64)>,
    /// Its control groups and their ancestors, each with the number of its hierarchy.
    pub cgroups: Vec<(u32, CgroupId)>,
}
