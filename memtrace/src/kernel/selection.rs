//! Who is traced, as the programs are told.

use aya::Ebpf;
use aya::maps::{HashMap, MapData};
use memtrace_common::wire::{self, scope, selector, target};

use super::error::KernelError;
use crate::model::Pid;

/// Who is traced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// Whoever runs into a probe: each is placed for one process.
    #[default]
    Probed,
    /// The processes that are followed, whoever else runs into a probe or a tracepoint.
    Listed,
    /// The processes that are followed, and all whom they fork.
    Families,
    /// Whoever has one of the properties to be included, all where there is none of these, unless a property of theirs is
    /// to be excluded.
    Selected(Vec<Rule>),
}

/// Which processes are included or excluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What they have in common.
    pub property: Property,
    /// Whether they are excluded, whatever else.
    pub exclude: bool,
}

/// What processes can have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property {
    /// The name of the first thread; what is behind 15 bytes of it the kernel does not keep.
    Comm(String),
    /// The real user id.
    User(u32),
    /// The program's file: device, as `stat` has it, and inode.
    Exe {
        /// As `st_dev`.
        device: u64,
        /// As `st_ino`.
        inode: u64,
    },
    /// A control group (version 2) that they are in or below, by its id.
    Cgroup(u64),
}

/// A selector as the map takes it.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Plain(wire::Selector);

// SAFETY: `Selector` is `repr(C)`, made of integers only, and its asserted size leaves no padding.
unsafe impl aya::Pod for Plain {}

impl Selection {
    /// As the settings name it.
    pub(super) const fn scope(&self) -> u32 {
        match self {
            Self::Probed => scope::PROBED,
            Self::Listed => scope::LISTED,
            Self::Families => scope::FAMILIES,
            Self::Selected(_) => scope::SELECTED,
        }
    }

    /// Whether processes are traced that no rule is about.
    pub(super) fn by_default(&self) -> bool {
        self.rules().iter().all(|rule| rule.exclude)
    }

    /// Whether control groups matter.
    pub(super) fn by_cgroup(&self) -> bool {
        self.rules().iter().any(|rule| matches!(rule.property, Property::Cgroup(_)))
    }

    fn rules(&self) -> &[Rule] {
        match self {
            Self::Selected(rules) => rules,
            Self::Probed | Self::Listed | Self::Families => &[],
        }
    }

    /// Tells the programs; memtrace itself, `own`, is never traced.
    pub(super) fn tell(&self, ebpf: &mut Ebpf, own: Pid) -> Result<(), KernelError> {
        let failed = |error| KernelError::from_error("say who is traced", &error);
        let mut selectors: HashMap<&mut MapData, Plain, u32> = map(ebpf, "SELECTORS")?;
        let mut verdicts = std::collections::BTreeMap::new();
        for rule in self.rules() {
            let verdict = if rule.exclude { selector::EXCLUDE } else { selector::INCLUDE };
            *verdicts.entry(rule.property.selector()).or_insert(0) |= verdict;
        }
        for (selector, verdict) in verdicts {
            selectors.insert(Plain(selector), verdict, 0).map_err(failed)?;
        }
        list(ebpf, own, false)
    }
}

impl Property {
    fn selector(&self) -> wire::Selector {
        match self {
            Self::Comm(name) => {
                let mut bytes = [0; 16];
                let length = name.len().min(15);
                bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
                let (low, high) = bytes.split_at(8);
                let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
                wire::Selector { property: selector::COMM, value: [word(low), word(high)] }
            }
            Self::User(id) => wire::Selector { property: selector::USER, value: [u64::from(*id), 0] },
            Self::Exe { device, inode } => {
                let device = libc::major(*device) << 20 | libc::minor(*device);
                wire::Selector { property: selector::EXE, value: [*inode, u64::from(device)] }
            }
            Self::Cgroup(id) => wire::Selector { property: selector::CGROUP, value: [*id, 0] },
        }
    }
}

/// Says of one process whether it is traced, whatever it runs.
pub(super) fn list(ebpf: &mut Ebpf, pid: Pid, traced: bool) -> Result<(), KernelError> {
    let mut targets: HashMap<&mut MapData, u32, u32> = map(ebpf, "TARGETS")?;
    let value = target::FIXED | if traced { target::TRACED } else { 0 };
    targets.insert(pid.0, value, 0).map_err(|error| KernelError::from_error("say who is traced", &error))
}

fn map<'ebpf, K: aya::Pod>(
    ebpf: &'ebpf mut Ebpf,
    name: &str,
) -> Result<HashMap<&'ebpf mut MapData, K, u32>, KernelError> {
    let missing = || KernelError::Failed {
        action: format!("use {name}"),
        reason: String::from("the kernel half does not have it"),
    };
    let map = ebpf.map_mut(name).ok_or_else(missing)?;
    map.try_into().map_err(|error| KernelError::from_error("say who is traced", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_the_kernel_keeps_of_it() {
        let value = |name: &str| Property::Comm(name.to_owned()).selector().value;
        assert_eq!(value("bash"), [u64::from_ne_bytes(*b"bash\0\0\0\0"), 0]);
        assert_eq!(value("a-name-that-is-too-long"), value("a-name-that-is-"));
    }

    #[test]
    fn all_are_traced_unless_somebody_is_included() {
        let rule = |exclude| Rule { property: Property::User(0), exclude };
        assert!(Selection::Selected(vec![]).by_default());
        assert!(Selection::Selected(vec![rule(true)]).by_default());
        assert!(!Selection::Selected(vec![rule(true), rule(false)]).by_default());
    }

    #[test]
    fn a_device_is_counted_as_the_kernel_does() {
        let device = libc::makedev(254, 0x12345);
        let value = Property::Exe { device, inode: 7 }.selector().value;
        assert_eq!(value, [7, 254 << 20 | 0x12345]);
    }
}
