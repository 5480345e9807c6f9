//! Process filter: the rules that select the processes to trace. The BPF programs read them from maps.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use aya::maps::{HashMap, MapData, MapError};
use memtrace_common::unwind::ObjectKey;
use memtrace_common::wire::{
    self, Decision, decision, filter_action, filter_key, filter_mode, thread_filter, tracer_value,
};
use memtrace_model::{CgroupId, FilterRule, Pid, ProcessAttribute, Traits};

use super::bpf::Bpf;
use super::error::KernelError;
use super::file_id;
use super::memtraces::{MemtraceExecutable, MemtraceProcess, Memtraces, is_of_memtrace};
use super::wire_type::MapEntry;
use crate::procfs::{self, Hierarchies};
use crate::target_files::known_facts;

/// Selects the processes to trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProcessFilter {
    /// Every process that hits a probe. Each probe is attached to a single process.
    #[default]
    Probed,
    /// Processes passed to [`super::Kernel::follow`].
    Listed,
    /// Processes passed to [`super::Kernel::follow`], and their descendants.
    Families,
    /// Processes that match an including condition and no excluding condition. Without an including condition, all
    /// processes are included.
    Matching(Vec<Condition>),
}

/// Selects threads by their names at an allocation. Only the allocations of selected threads are recorded. The default is all
/// threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadFilter {
    /// Names of threads to include; if empty, all threads are included.
    pub included: Vec<String>,
    /// Names of threads to exclude.
    pub excluded: Vec<String>,
}

impl ThreadFilter {
    /// Returns the value of `Settings::thread_filter`.
    pub(super) const fn mode(&self) -> u32 {
        match (self.included.is_empty(), self.excluded.is_empty()) {
            (true, true) => thread_filter::ALL,
            (false, _) => thread_filter::INCLUDED,
            (true, false) => thread_filter::NOT_EXCLUDED,
        }
    }

    /// Writes the names into the map that the BPF programs read.
    pub(super) fn write(&self, bpf: &mut Bpf) -> Result<(), KernelError> {
        let mut filters: HashMap<&mut MapData, MapEntry<wire::FilterKey>, u32> = map(bpf, "FILTERS")?;
        let included = self.included.iter().map(|name| (name, filter_action::INCLUDE));
        // An exclusion overrides an inclusion of the same name, so exclusions are written last.
        let excluded = self.excluded.iter().map(|name| (name, filter_action::EXCLUDE));
        for (name, action) in included.chain(excluded) {
            let key = wire::FilterKey { property: filter_key::THREAD, ..by_comm(name) };
            filters.insert(MapEntry(key), action, 0).map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

/// Filter rule with the id of its user, executable or control group, or a rule that leaves out processes of memtrace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    subject: Subject,
    key: wire::FilterKey,
}

/// Processes that a condition selects or leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Rule(FilterRule),
    /// Processes of memtrace that run this executable. They are left out.
    Memtrace(MemtraceExecutable),
    /// A running process of memtrace. It is left out until its next exec.
    MemtraceProcess(MemtraceProcess),
}

impl Condition {
    /// Looks up the ids of the rule's user, executable or control group.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such user, file or group; other errors of the lookup.
    pub fn resolve(rule: FilterRule) -> io::Result<Self> {
        let key = match &rule.attribute {
            ProcessAttribute::Comm(name) => by_comm(name),
            ProcessAttribute::Exe(path) => {
                let file = fs::metadata(path)?;
                by_exe(file.ino(), encoded(file.dev()))
            }
            ProcessAttribute::Cgroup(path) => {
                let (hierarchy, id) = Hierarchies::read()?.find(path)?;
                by_cgroup(hierarchy, id)
            }
            ProcessAttribute::User(user) => {
                by_user(procfs::user_id(user)?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?)
            }
            ProcessAttribute::Pid(_) => NO_KEY,
        };
        Ok(Self { subject: Subject::Rule(rule), key })
    }

    /// Returns the conditions that leave out the processes of memtraces.
    pub fn of_memtraces(memtraces: &Memtraces) -> impl Iterator<Item = Self> + '_ {
        let executables = memtraces.executables().iter().map(|executable| {
            let (device, inode) = executable.file;
            let key = by_tracer(inode, encoded(device), executable.user);
            Self { subject: Subject::Memtrace(executable.clone()), key }
        });
        let processes = memtraces.processes().iter();
        let processes =
            processes.map(|process| Self { subject: Subject::MemtraceProcess(process.clone()), key: NO_KEY });
        executables.chain(processes)
    }

    /// Returns true if the condition leaves out the processes that match it.
    fn excludes(&self) -> bool {
        match &self.subject {
            Subject::Rule(rule) => rule.exclude,
            Subject::Memtrace(_) | Subject::MemtraceProcess(_) => true,
        }
    }

    /// Returns true if process `pid`, which has these traits, matches the condition. An unknown trait matches no rule.
    fn matches(&self, pid: Pid, traits: &Traits) -> bool {
        let rule = match &self.subject {
            Subject::Rule(rule) => rule,
            Subject::Memtrace(MemtraceExecutable { file, user, needs_parent, .. }) => {
                let is_run = traits.exe == Some(*file) && traits.user == Some(*user);
                return is_run && is_of_memtrace(pid, *file, *needs_parent);
            }
            Subject::MemtraceProcess(process) => {
                let is_same = traits.exe.is_none_or(|exe| exe == process.file);
                return process.pid == pid && is_same && process.is_latest();
            }
        };
        match &rule.attribute {
            ProcessAttribute::Pid(excluded) => *excluded == pid,
            ProcessAttribute::Comm(_) => traits.comm.as_deref().is_some_and(|comm| by_comm(comm) == self.key),
            ProcessAttribute::User(_) => traits.user.is_some_and(|user| by_user(user) == self.key),
            ProcessAttribute::Exe(_) => {
                traits.exe.is_some_and(|(device, inode)| by_exe(inode, encoded(device)) == self.key)
            }
            ProcessAttribute::Cgroup(_) => {
                traits.cgroups.iter().any(|&(hierarchy, id)| by_cgroup(hierarchy, id) == self.key)
            }
        }
    }
}

impl ProcessFilter {
    /// Returns the value of `Settings::filter_mode`.
    pub(super) const fn mode(&self) -> u32 {
        match self {
            Self::Probed => filter_mode::ATTACHED,
            Self::Listed => filter_mode::LISTED,
            Self::Families => filter_mode::TREES,
            Self::Matching(_) => filter_mode::MATCHING,
        }
    }

    /// Returns true if processes that match no condition are traced.
    pub(super) fn by_default(&self) -> bool {
        self.conditions().iter().all(Condition::excludes)
    }

    /// Returns true if a condition is about `property`, a constant of [`filter_key`].
    pub(super) fn is_by(&self, property: u64) -> bool {
        self.conditions().iter().any(|condition| condition.key.property == property)
    }

    /// Returns true if a condition is about cgroups.
    #[must_use]
    pub fn is_by_cgroup(&self) -> bool {
        self.is_by(filter_key::CGROUP)
    }

    /// Returns true if the BPF programs select process `pid` while it has these traits. `traits` is called only if the
    /// filter has conditions.
    #[must_use]
    pub fn selects(&self, pid: Pid, traits: impl FnOnce() -> Traits) -> bool {
        let Self::Matching(conditions) = self else { return true };
        let traits = traits();
        let mut matching = conditions.iter().filter(|condition| condition.matches(pid, &traits));
        let is_included = self.by_default() || matching.clone().any(|condition| !condition.excludes());
        is_included && !matching.any(Condition::excludes)
    }

    /// Returns true if the filter selects process `pid`, or could select it because its executable is unknown. `traits` is
    /// called only if the filter has conditions.
    #[must_use]
    pub fn can_select(&self, pid: Pid, traits: impl FnOnce() -> Traits) -> bool {
        let Self::Matching(conditions) = self else { return true };
        let traits = traits();
        let excludes = |condition: &Condition| condition.excludes() && condition.matches(pid, &traits);
        let can_include = |condition: &Condition| {
            !condition.excludes() && traits.exe.is_none() && condition.key.property == filter_key::EXE
        };
        conditions.iter().any(can_include) && !conditions.iter().any(excludes) || self.selects(pid, || traits.clone())
    }

    fn conditions(&self) -> &[Condition] {
        match self {
            Self::Matching(conditions) => conditions,
            Self::Probed | Self::Listed | Self::Families => &[],
        }
    }

    /// Writes the filter to the maps of the BPF programs. memtrace itself, `own`, is never traced.
    pub(super) fn write(&self, bpf: &mut Bpf, own: Pid) -> Result<(), KernelError> {
        let mut verdicts = BTreeMap::new();
        for Condition { subject, key } in self.conditions() {
            let (key, verdict) = match subject {
                Subject::Rule(rule) => {
                    let key = match &rule.attribute {
                        ProcessAttribute::Pid(pid) => {
                            decide(bpf, *pid, false)?;
                            continue;
                        }
                        ProcessAttribute::Exe(path) => {
                            let file_id = |file: &File| file_id::of_open_file(bpf, file);
                            kernel_key(path, *key, file_id, |id| by_exe(id.inode, id.device))
                        }
                        _ => *key,
                    };
                    (key, if rule.exclude { filter_action::EXCLUDE } else { filter_action::INCLUDE })
                }
                Subject::Memtrace(MemtraceExecutable { path, file, user, needs_parent }) => {
                    // The path can contain a pid, which a later process can get. So the opened file must be the expected one.
                    let is_same =
                        |opened: &File| known_facts(opened).is_ok_and(|facts| (facts.device, facts.inode) == *file);
                    let file_id = |opened: &File| file_id::of_open_file(bpf, opened).filter(|_| is_same(opened));
                    let key = kernel_key(path, *key, file_id, |id| by_tracer(id.inode, id.device, *user));
                    (key, if *needs_parent { filter_action::TRACER_CHILD } else { filter_action::TRACER })
                }
                Subject::MemtraceProcess(process) => {
                    leave_out(bpf, process)?;
                    continue;
                }
            };
            *verdicts.entry(key).or_insert(0) |= verdict;
        }
        let mut filters: HashMap<&mut MapData, MapEntry<wire::FilterKey>, u32> = map(bpf, "FILTERS")?;
        for (key, verdict) in verdicts {
            filters.insert(MapEntry(key), verdict, 0).map_err(|error| failed(&error))?;
        }
        // The children of memtrace inherit the flag.
        insert_decision(bpf, own, decision::FIXED | decision::TRACER)
    }
}

/// Key of a condition about a pid. It is never written to the filter: a decision about the process is stored instead.
const NO_KEY: wire::FilterKey = wire::FilterKey { property: 0, value: [0; 2] };

/// Returns the key for a comm. The kernel keeps at most 15 bytes of a name.
fn by_comm(name: &str) -> wire::FilterKey {
    let mut bytes = [0; 16];
    let length = name.len().min(15);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    let (low, high) = bytes.split_at(8);
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    wire::FilterKey { property: filter_key::COMM, value: [word(low), word(high)] }
}

fn by_user(id: u32) -> wire::FilterKey {
    wire::FilterKey { property: filter_key::USER, value: [u64::from(id), 0] }
}

fn by_exe(inode: u64, device: u32) -> wire::FilterKey {
    wire::FilterKey { property: filter_key::EXE, value: [inode, u64::from(device)] }
}

fn by_cgroup(hierarchy: u32, id: CgroupId) -> wire::FilterKey {
    wire::FilterKey { property: filter_key::CGROUP, value: [id.number(), u64::from(hierarchy)] }
}

/// Returns the key for the executable of a memtrace that a user runs.
const fn by_tracer(inode: u64, device: u32, user: u32) -> wire::FilterKey {
    wire::FilterKey { property: filter_key::TRACER, value: [inode, tracer_value(device, user)] }
}

/// Returns the key with the kernel's id of an executable, or `by_stat` if `file_id` returns no id. The id of stat(2)
/// differs from the kernel's on overlayfs and on file systems with subvolumes.
fn kernel_key(
    path: &Path,
    by_stat: wire::FilterKey,
    file_id: impl FnOnce(&File) -> Option<ObjectKey>,
    key: impl FnOnce(ObjectKey) -> wire::FilterKey,
) -> wire::FilterKey {
    let file = File::options().read(true).custom_flags(libc::O_PATH).open(path);
    file.ok().and_then(|file| file_id(&file)).map_or(by_stat, key)
}

/// Converts `st_dev` to the kernel's own `dev_t`. User space sees another encoding of it (`new_encode_dev`,
/// include/linux/kdev_t.h).
fn encoded(device: u64) -> u32 {
    libc::major(device) << 20 | libc::minor(device)
}

/// Stores the decision to trace the process `pid`, or not to trace it, for each executable that it runs.
pub(super) fn decide(bpf: &mut Bpf, pid: Pid, traced: bool) -> Result<(), KernelError> {
    insert_decision(bpf, pid, decision::FIXED | if traced { decision::TRACED } else { 0 })
}

/// Stores the decision not to trace a process of memtrace, and its children, until they call exec.
fn leave_out(bpf: &mut Bpf, process: &MemtraceProcess) -> Result<(), KernelError> {
    insert_decision(bpf, process.pid, decision::TRACER)?;
    // After an exec or exit before the insertion, the decision would stay, and leave out another image or process.
    if process.runs() { Ok(()) } else { forget(bpf, process.pid) }
}

fn insert_decision(bpf: &mut Bpf, pid: Pid, flags: u32) -> Result<(), KernelError> {
    let mut decisions: HashMap<&mut MapData, u32, MapEntry<Decision>> = map(bpf, "DECISIONS")?;
    decisions.insert(pid.0, MapEntry(Decision { flags, user: 0, changes: 0 }), 0).map_err(|error| failed(&error))
}

/// Returns true if `pid` is traced by a decision that does not depend on its properties.
pub(super) fn is_decided(bpf: &mut Bpf, pid: Pid) -> Result<bool, KernelError> {
    let decisions: HashMap<&mut MapData, u32, MapEntry<Decision>> = map(bpf, "DECISIONS")?;
    match decisions.get(&pid.0, 0) {
        Ok(found) => Ok(found.0.flags & decision::TRACED != 0),
        Err(MapError::KeyNotFound) => Ok(false),
        Err(error) => Err(failed(&error)),
    }
}

/// Removes the decision about a process that has exited, if the BPF programs have not.
pub(super) fn forget(bpf: &mut Bpf, pid: Pid) -> Result<(), KernelError> {
    let mut decisions: HashMap<&mut MapData, u32, MapEntry<Decision>> = map(bpf, "DECISIONS")?;
    // The removal fails if there is no decision.
    let _ = decisions.remove(&pid.0);
    Ok(())
}

fn map<'bpf, K: aya::Pod, V: aya::Pod>(
    bpf: &'bpf mut Bpf,
    name: &str,
) -> Result<HashMap<&'bpf mut MapData, K, V>, KernelError> {
    bpf.map_mut(name)?.try_into().map_err(|error| failed(&error))
}

fn failed(error: &MapError) -> KernelError {
    KernelError::from_error("write the process filter", error)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kernel::memtraces::can_trace;

    fn condition(attribute: ProcessAttribute, exclude: bool) -> Condition {
        Condition::resolve(FilterRule { attribute, exclude }).unwrap()
    }

    fn user(id: u32) -> ProcessAttribute {
        ProcessAttribute::User(id.to_string())
    }

    #[test]
    fn names_are_cut_like_the_kernel_cuts_them() {
        assert_eq!(by_comm("bash").value, [u64::from_ne_bytes(*b"bash\0\0\0\0"), 0]);
        assert_eq!(by_comm("a-name-that-is-too-long"), by_comm("a-name-that-is-"));
    }

    #[test]
    fn all_are_traced_unless_a_condition_includes() {
        let by_default = |excludes: &[bool]| {
            let conditions = excludes.iter().map(|&exclude| condition(user(0), exclude));
            ProcessFilter::Matching(conditions.collect()).by_default()
        };
        assert!(by_default(&[]));
        assert!(by_default(&[true]));
        assert!(!by_default(&[true, false]));
    }

    #[test]
    fn devices_are_encoded_like_the_kernel_does() {
        assert_eq!(encoded(libc::makedev(254, 0x12345)), 254 << 20 | 0x12345);
    }

    #[test]
    fn executables_are_resolved_by_stat() {
        let file = fs::metadata("/proc/self/exe").unwrap();
        let exe = condition(ProcessAttribute::Exe("/proc/self/exe".into()), false);
        assert_eq!(exe.key, by_exe(file.ino(), encoded(file.dev())));
        let missing = FilterRule { attribute: ProcessAttribute::Exe("/no/such/file".into()), exclude: false };
        assert_eq!(Condition::resolve(missing).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn kernel_ids_of_executables_replace_those_of_stat() {
        let file_id = |_: &File| Some(ObjectKey { inode: 9, device: 44, ..ObjectKey::default() });
        let by_stat = by_exe(7, 8 << 20 | 1);
        let key = |id: ObjectKey| by_exe(id.inode, id.device);
        assert_eq!(kernel_key("/proc/self/exe".as_ref(), by_stat, file_id, key), by_exe(9, 44));
        assert_eq!(kernel_key("/proc/self/exe".as_ref(), by_stat, |_| None, key), by_stat);
        assert_eq!(kernel_key("/no/such/file".as_ref(), by_stat, file_id, key), by_stat);
    }

    #[test]
    fn name_of_memtrace_does_not_hide_a_process() {
        let file = fs::metadata("/proc/self/exe").unwrap();
        let filter = ProcessFilter::Matching(Condition::of_memtraces(&Memtraces::find()).collect());
        let own = Traits {
            comm: Some(String::from("memtrace")),
            user: Some(0),
            exe: Some((file.dev(), file.ino())),
            cgroups: Vec::new(),
        };
        let pid = Pid(std::process::id());
        let selects = |traits: Traits| filter.selects(pid, || traits);
        assert!(filter.by_default());
        let is_privileged = procfs::credentials(pid).as_ref().is_some_and(can_trace);
        assert_eq!(selects(own.clone()), !is_privileged);
        assert!(!filter.selects(Pid(u32::MAX), || own.clone()), "a process that has exited");
        assert!(selects(Traits { exe: Some((file.dev(), file.ino() + 1)), ..own.clone() }));
        assert!(selects(Traits { exe: None, ..own.clone() }));
        assert!(selects(Traits { user: Some(1000), ..own }), "a user can run the executable with other code");
    }

    #[test]
    fn keys_of_memtraces_contain_the_device_and_the_user() {
        let keys = [by_tracer(7, 8, 0), by_tracer(7, 8, 1000), by_tracer(7, 9, 0), by_tracer(8, 8, 0), by_exe(7, 8)];
        assert_eq!(BTreeSet::from(keys).len(), keys.len());
        assert_eq!(by_tracer(7, u32::MAX, 1).value, [7, u64::from(u32::MAX) | 1 << 32]);
    }

    #[test]
    fn excluded_pids_need_no_filter_key() {
        let excluded = vec![condition(ProcessAttribute::Pid(Pid(7)), true), condition(user(0), true)];
        assert_eq!(excluded.iter().map(|condition| condition.key.property).collect::<Vec<_>>(), [0, filter_key::USER]);
        let filter = ProcessFilter::Matching(excluded);
        assert!(filter.by_default() && !filter.is_by(filter_key::CGROUP) && !filter.selects(Pid(7), Traits::default));
    }

    #[test]
    fn traits_decide_if_a_process_is_selected() {
        let pid = Pid(7);
        let file = fs::metadata("/proc/self/exe").unwrap();
        let (root_hierarchy, root_group) = Hierarchies::read().unwrap().find("/".as_ref()).unwrap();
        let (other, deeper) = (CgroupId::of(u64::MAX).unwrap(), CgroupId::of(u64::MAX - 1).unwrap());
        let conditions = [
            (ProcessAttribute::Comm(String::from("name")), Traits { comm: Some("name".into()), ..Traits::default() }),
            (user(3), Traits { user: Some(3), ..Traits::default() }),
            (
                ProcessAttribute::Exe("/proc/self/exe".into()),
                Traits { exe: Some((file.dev(), file.ino())), ..Traits::default() },
            ),
            (
                ProcessAttribute::Cgroup("/".into()),
                Traits { cgroups: vec![(root_hierarchy, deeper), (root_hierarchy, root_group)], ..Traits::default() },
            ),
        ];
        let others = Traits {
            comm: Some("other".into()),
            user: Some(4),
            exe: Some((file.dev(), file.ino() + 1)),
            cgroups: vec![(root_hierarchy, other), (root_hierarchy + 1, root_group)],
        };
        for (attribute, matching) in conditions {
            for exclude in [false, true] {
                let filter = ProcessFilter::Matching(vec![condition(attribute.clone(), exclude)]);
                let selects = |traits: &Traits| filter.selects(pid, || traits.clone());
                assert_eq!(selects(&matching), !exclude, "{attribute:?}");
                assert_eq!(selects(&others), exclude, "{attribute:?}");
                assert_eq!(selects(&Traits::default()), exclude, "unknown traits match nothing: {attribute:?}");
            }
        }
    }

    #[test]
    fn process_with_an_unknown_executable_can_be_selected() {
        let can_select = |conditions: Vec<Condition>, traits: Traits| {
            ProcessFilter::Matching(conditions).can_select(Pid(7), || traits)
        };
        let exe = |exclude| condition(ProcessAttribute::Exe("/proc/self/exe".into()), exclude);
        let unknown = || Traits { user: Some(3), ..Traits::default() };
        assert!(can_select(vec![exe(false)], unknown()));
        assert!(can_select(vec![exe(false), condition(user(4), false)], unknown()));
        assert!(can_select(vec![exe(true)], unknown()));
        assert!(!can_select(vec![exe(false), condition(user(3), true)], unknown()));
        assert!(!can_select(vec![condition(user(4), false)], unknown()));
        assert!(!can_select(vec![exe(false)], Traits { exe: Some((0, 0)), ..unknown() }));
        assert!(ProcessFilter::Listed.can_select(Pid(7), || unreachable!("there are no conditions")));
    }

    #[test]
    fn one_including_condition_suffices_unless_one_excludes() {
        let traits = || Traits { comm: Some("name".into()), user: Some(3), ..Traits::default() };
        let selected = |conditions: Vec<Condition>| ProcessFilter::Matching(conditions).selects(Pid(7), traits);
        let comm = |name: &str, exclude| condition(ProcessAttribute::Comm(name.into()), exclude);
        assert!(selected(vec![]));
        assert!(selected(vec![comm("other", false), condition(user(3), false)]));
        assert!(!selected(vec![comm("name", false), condition(user(3), true)]));
        assert!(!selected(vec![condition(ProcessAttribute::Pid(Pid(7)), true)]));
        assert!(selected(vec![condition(ProcessAttribute::Pid(Pid(8)), true)]));
        assert!(ProcessFilter::Listed.selects(Pid(7), || unreachable!("there are no conditions")));
    }
}
