//! Cgroups of a process. A process is in one cgroup of each mounted hierarchy.

use memtrace_common::wire::{HIERARCHIES, NO_HIERARCHY};

use crate::kernel::read_word;
use crate::settings;
use crate::settings::field;

/// Maximum number of links examined in a `css_set`. It exceeds the number of controllers, and thus the number of
/// hierarchies.
const MAX_LINKS: u32 = 24;

/// Returns the ids of the cgroups of `task` in the recorded hierarchies; 0 for a cgroup that is not known.
#[inline(always)]
pub fn ids(task: u64) -> [u64; HIERARCHIES] {
    let mut ids = [0; HIERARCHIES];
    for (hierarchy, id) in (0..).zip(&mut ids) {
        let group = cgroup_of(task, number(hierarchy));
        *id = if group == 0 { 0 } else { self::id(group) };
    }
    ids
}

/// Returns the kernel's id of the recorded hierarchy at index `hierarchy` of the settings.
#[inline(always)]
pub fn number(hierarchy: u32) -> u32 {
    match hierarchy {
        0 => field!(hierarchies[0]),
        1 => field!(hierarchies[1]),
        _ => field!(hierarchies[2]),
    }
}

/// Returns true if the hierarchy with this id is recorded.
#[inline(always)]
pub fn is_recorded(number: u32) -> bool {
    (0..HIERARCHIES as u32).any(|hierarchy| self::number(hierarchy) == number)
}

/// Returns the address of the cgroup of `task` in the hierarchy with the id `number`; 0 if the cgroup is not known. The
/// function is global, so that the verifier checks it once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn cgroup_of(task: u64, number: u32) -> u64 {
    if !settings::has_cgroups() || number == NO_HIERARCHY {
        return 0;
    }
    let set = read_word(task, field!(cgroup.task_cgroups));
    let head = set + field!(cgroup.css_set_links) as u64;
    let mut node = read_word(head, 0);
    // `read_word` returns 0 for memory that cannot be read.
    for _ in 0..MAX_LINKS {
        if node == head || node == 0 {
            break;
        }
        let group = read_word(node - field!(cgroup.link_node) as u64, field!(cgroup.link_cgroup));
        if group != 0 && hierarchy_of(group) == number {
            return group;
        }
        node = read_word(node, 0);
    }
    0
}

/// Returns the id of the cgroup at `group`: the inode of its directory.
#[inline(always)]
pub fn id(group: u64) -> u64 {
    read_word(read_word(group, field!(cgroup.cgroup_kn)), field!(cgroup.kernfs_id))
}

/// Returns the id of the hierarchy of the cgroup at `group`.
#[inline(always)]
pub fn hierarchy_of(group: u64) -> u32 {
    read_word(read_word(group, field!(cgroup.cgroup_root)), field!(cgroup.root_hierarchy_id)) as u32
}

/// Returns the address of the parent of the cgroup at `group`; 0 for a root.
#[inline(always)]
pub fn parent(group: u64) -> u64 {
    match read_word(group, field!(cgroup.cgroup_parent)) {
        0 => 0,
        parent => read_word(parent, field!(cgroup.css_cgroup)),
    }
}
