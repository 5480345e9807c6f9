//! Who is traced, as the programs are told.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::maps::{HashMap, MapData};
use memtrace_common::unwind::ObjectKey;
use memtrace_common::wire::{self, scope, selector, target};

use super::error::KernelError;
use super::load::Kernel;
use super::naming;
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
    /// The program's file.
    Exe {
        /// Where it is.
        path: PathBuf,
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

impl Kernel {
    /// `pid` is traced, whatever it runs, and its exec and exit are reported.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] where there are too many.
    pub fn follow(&mut self, pid: Pid) -> Result<(), KernelError> {
        list(self.ebpf(), pid, true)
    }

    /// `pid` is not traced, whatever it runs.
    ///
    /// # Errors
    ///
    /// As [`Kernel::follow`].
    pub fn leave_out(&mut self, pid: Pid) -> Result<(), KernelError> {
        list(self.ebpf(), pid, false)
    }
}

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
        let mut verdicts = std::collections::BTreeMap::new();
        for rule in self.rules() {
            let verdict = if rule.exclude { selector::EXCLUDE } else { selector::INCLUDE };
            let selector = rule.property.selector(|file| naming::opened(ebpf, file));
            *verdicts.entry(selector).or_insert(0) |= verdict;
        }
        let mut selectors: HashMap<&mut MapData, Plain, u32> = map(ebpf, "SELECTORS")?;
        for (selector, verdict) in verdicts {
            selectors.insert(Plain(selector), verdict, 0).map_err(failed)?;
        }
        list(ebpf, own, false)
    }
}

impl Property {
    /// As the programs see it; `known` tells how the kernel knows an open file.
    fn selector(&self, known: impl FnOnce(&File) -> Option<ObjectKey>) -> wire::Selector {
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
            Self::Exe { path, device, inode } => {
                // Only on file systems that lie over others, and on those of many volumes, is it another than `stat`'s.
                let stat = || ObjectKey { inode: *inode, device: encoded(*device), ..ObjectKey::default() };
                let ObjectKey { inode, device, .. } = at(path).and_then(|file| known(&file)).unwrap_or_else(stat);
                wire::Selector { property: selector::EXE, value: [inode, u64::from(device)] }
            }
            Self::Cgroup(id) => wire::Selector { property: selector::CGROUP, value: [*id, 0] },
        }
    }
}

/// The file, which is neither read nor waited for.
fn at(path: &Path) -> Option<File> {
    File::options().read(true).custom_flags(libc::O_PATH).open(path).ok()
}

/// A device as the kernel counts them; to user space it tells them otherwise (`new_encode_dev`, include/linux/kdev_t.h).
fn encoded(device: u64) -> u32 {
    libc::major(device) << 20 | libc::minor(device)
}

/// Says of one process whether it is traced, whatever it runs.
fn list(ebpf: &mut Ebpf, pid: Pid, traced: bool) -> Result<(), KernelError> {
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
        let value = |name: &str| Property::Comm(name.to_owned()).selector(|_| None).value;
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
        assert_eq!(encoded(libc::makedev(254, 0x12345)), 254 << 20 | 0x12345);
    }

    #[test]
    fn a_program_is_known_as_the_kernel_says_or_else_as_stat_does() {
        let exe = |path: &str| Property::Exe { path: PathBuf::from(path), device: libc::makedev(8, 1), inode: 7 };
        let told = |_: &File| Some(ObjectKey { inode: 9, device: 44, ..ObjectKey::default() });
        assert_eq!(exe("/proc/self/exe").selector(told).value, [9, 44]);
        assert_eq!(exe("/proc/self/exe").selector(|_| None).value, [7, 8 << 20 | 1]);
        assert_eq!(exe("/no/such/file").selector(told).value, [7, 8 << 20 | 1]);
    }
}
