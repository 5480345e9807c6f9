//! Groups of stacks (`--by`). Each stack is in exactly one group, so the groups add up to the total.

use std::collections::BTreeMap;

use memtrace_model::{
    AllocatorId, Bytes, GroupBy, LabelId, MappingKind, Part, ProcessProfile, Profile, Quantities, Quantity,
    StackLabels, StackProfile, Tid, User,
};

use crate::escape;
use crate::estimate::SampledPart;
use crate::kernel_reported::KernelReported;

/// The groups of a profile.
pub(super) struct Groups {
    all: Vec<Group>,
    /// For each stack of the profile, the index of its group in `all`.
    of_stacks: Vec<usize>,
}

/// A group of stacks.
#[derive(Default)]
pub(super) struct Group {
    /// Name of the group, as the target has it: not escaped.
    pub(super) label: String,
    /// Sum over the stacks of the group.
    pub(super) usage: Quantities,
    /// Sampled part of `usage`.
    pub(super) sampled: SampledPart,
    /// True if the peak of at least one process of the group was kept.
    pub(super) has_peak: bool,
    /// Counters of the kernel; `None` if pages are not traced, or if the kernel has no counters for this group.
    pub(super) known: Option<KernelReported>,
}

impl Group {
    /// Returns the live bytes of the stacks, each at the time of the peak of its process; `None` if no peak was kept.
    pub(super) fn at_peak(&self) -> Option<Bytes> {
        self.has_peak.then_some(Bytes(self.usage[Quantity::AtPeakBytes]))
    }
}

impl Groups {
    /// Groups the stacks of `profile` by the short names of their processes.
    pub(super) fn by_comm(profile: &Profile) -> Self {
        Self::of(profile, GroupBy::Comm)
    }

    /// Groups the stacks of `profile`. Groups are sorted by name.
    pub(super) fn of(profile: &Profile, by: GroupBy) -> Self {
        Self::new(profile, by, profile.stacks.iter().map(|stack| stack.label), &profile.labels)
    }

    /// Groups the stacks of `profile`, with `labels` instead of the labels in the profile.
    pub(super) fn with_labels(profile: &Profile, by: GroupBy, labels: &StackLabels) -> Self {
        Self::new(profile, by, labels.of_stacks.iter().copied(), &labels.names)
    }

    /// `labels`: label of each stack, as an index into `label_names`.
    fn new(
        profile: &Profile,
        by: GroupBy,
        labels: impl Iterator<Item = Option<LabelId>> + Clone,
        label_names: &[String],
    ) -> Self {
        // A name is formatted once for each `StackSet`, because there are far fewer sets than stacks.
        let known_parts = known(profile, by);
        let parts = profile.stacks.iter().zip(labels).map(|(stack, label)| StackSet::of(stack, label, by));
        let mut of_parts: BTreeMap<StackSet, usize> =
            parts.clone().chain(known_parts.iter().map(|&(part, _)| part)).map(|part| (part, 0)).collect();
        let names: Vec<_> = of_parts.keys().map(|part| name(profile, by, *part, label_names)).collect();
        let mut places: BTreeMap<&str, usize> = names.iter().map(|name| (name.as_str(), 0)).collect();
        places.values_mut().enumerate().for_each(|(place, index)| *index = place);
        let group = |name: &&str| Group { label: (*name).to_owned(), ..Group::default() };
        let mut all: Vec<_> = places.keys().map(group).collect();
        for (root, name) in of_parts.values_mut().zip(&names) {
            *root = places[name.as_str()];
        }
        let of_stacks: Vec<_> = parts.map(|part| of_parts[&part]).collect();
        for (stack, &root) in profile.stacks.iter().zip(&of_stacks) {
            let group = &mut all[root];
            group.usage += stack.usage;
            group.sampled.add_stack(&stack.usage);
            group.has_peak |= profile.processes[stack.process].peak.is_some();
        }
        for (part, known) in known_parts {
            let group = &mut all[of_parts[&part]];
            group.known = KernelReported::of_both(group.known, Some(known));
        }
        Self { all, of_stacks }
    }

    /// Returns all groups, sorted by name.
    pub(super) fn all(&self) -> &[Group] {
        &self.all
    }

    /// Returns the group of the stack with index `stack`, as an index into [`Self::all`].
    pub(super) fn of_stack(&self, stack: usize) -> usize {
        self.of_stacks[stack]
    }
}

/// Returns the head of the column with the names of groups.
pub(super) const fn head(by: GroupBy) -> &'static str {
    match by {
        GroupBy::Process => "PROCESS",
        GroupBy::Cgroup => "CGROUP",
        GroupBy::User => "USER",
        GroupBy::Comm => "COMMAND",
        GroupBy::Allocator => "ALLOCATOR",
        GroupBy::Thread => "THREAD",
        GroupBy::Memory => "MEMORY",
        GroupBy::Object => "OBJECT",
        GroupBy::Tag => "TAG",
    }
}

/// Set of stacks that are always in the same group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StackSet {
    /// Stacks of a part of the process with this index.
    Process(usize, Part),
    /// Stacks with this label, in all processes.
    Label(Option<LabelId>),
}

impl StackSet {
    const fn of(stack: &StackProfile, label: Option<LabelId>, by: GroupBy) -> Self {
        match by {
            GroupBy::Object | GroupBy::Tag => Self::Label(label),
            GroupBy::Process
            | GroupBy::Cgroup
            | GroupBy::User
            | GroupBy::Comm
            | GroupBy::Allocator
            | GroupBy::Thread
            | GroupBy::Memory => Self::Process(stack.process, stack.part),
        }
    }
}

/// Returns the kernel's counters for parts of processes, including parts without a sampled page. Empty if pages are
/// not traced, or if the kernel has no counters for groups by this key.
fn known(profile: &Profile, by: GroupBy) -> Vec<(StackSet, KernelReported)> {
    if !profile.run.class.counts_pages() {
        return Vec::new();
    }
    let processes = profile.processes.iter().enumerate();
    match by {
        GroupBy::Process | GroupBy::Comm | GroupBy::User | GroupBy::Cgroup => processes
            .map(|(index, process)| (StackSet::Process(index, Part::WHOLE), KernelReported::of(process)))
            .collect(),
        GroupBy::Memory => {
            let kinds = processes.flat_map(|(index, process)| {
                let kinds = process.resident.iter().flat_map(|residence| &residence.0);
                kinds.map(move |(&kind, resident)| {
                    (StackSet::Process(index, Part::WHOLE.with_memory(kind)), KernelReported::of_kind(resident))
                })
            });
            kinds.filter(|(_, known)| known.resident != Some(Bytes(0))).collect()
        }
        GroupBy::Thread | GroupBy::Allocator | GroupBy::Object | GroupBy::Tag => Vec::new(),
    }
}

/// Returns the name of the group that contains `set`.
fn name(profile: &Profile, by: GroupBy, set: StackSet, label_names: &[String]) -> String {
    match set {
        StackSet::Process(process, part) => name_in_process(profile, by, &profile.processes[process], part),
        StackSet::Label(Some(label)) => label_names[label.index()].clone(),
        StackSet::Label(None) if by == GroupBy::Tag => String::from("[no tag]"),
        StackSet::Label(None) => unknown(by.name()),
    }
}

/// Returns the name of the group that contains a part of a process.
fn name_in_process(profile: &Profile, by: GroupBy, process: &ProcessProfile, part: Part) -> String {
    match by {
        GroupBy::Process => escape::process_title(process),
        GroupBy::Comm => process.comm.raw().to_owned(),
        GroupBy::User => process.user.as_ref().map_or_else(|| unknown("user"), user),
        GroupBy::Cgroup => {
            process.cgroup.as_ref().map_or_else(|| unknown("control group"), |cgroup| cgroup.path.clone())
        }
        GroupBy::Allocator => part.allocator().map_or_else(|| unknown("allocator"), |id| allocator(profile, id)),
        GroupBy::Thread => match part.thread() {
            // If there are several processes, the name of a thread includes its process.
            Some(tid) if !profile.is_of_one_image() => {
                format!("{} of {}", thread(process, tid), escape::process_title(process))
            }
            Some(tid) => thread(process, tid),
            // Groups of processes are not divided by thread: a thread ID is only valid in one process.
            None if process.group.is_some() => format!("threads of {}", escape::process_title(process)),
            None => unknown("thread"),
        },
        // Released pages have no kind of memory.
        GroupBy::Memory => part.memory().map_or("[released]", MappingKind::name).to_owned(),
        // Unreachable: `StackSet::of` makes labels for these keys.
        GroupBy::Object | GroupBy::Tag => unknown(by.name()),
    }
}

fn allocator(profile: &Profile, id: AllocatorId) -> String {
    match profile.run.allocators.get(&id) {
        Some(name) => name.clone(),
        None if id == AllocatorId::UNKNOWN => unknown("allocator"),
        None => format!("allocator {}", id.0),
    }
}

/// Returns the name of a user, or the user ID if there is no name.
fn user(user: &User) -> String {
    user.name.clone().unwrap_or_else(|| user.to_string())
}

fn thread(process: &ProcessProfile, tid: Tid) -> String {
    match process.thread_names.get(&tid) {
        Some(name) => format!("{name} ({})", tid.0),
        // The main thread has the name of the process.
        None if tid.0 == process.pid.0 => format!("{} ({})", process.comm.raw(), tid.0),
        None => format!("thread {}", tid.0),
    }
}

fn unknown(what: &str) -> String {
    format!("[{what} not known]")
}
