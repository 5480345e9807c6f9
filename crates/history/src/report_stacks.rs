//! All stacks of a report as call paths. They come from a run or from a recording.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::LazyLock;

use memtrace_model::{
    CgroupId, CodeNames, EventClass, ImageId, ImageUsage, Losses, OomKill, ProcessImage, ReclaimKind, Snapshots,
    StallStats, Tick,
};

use super::assemble::{ChangesByPath, LiveChangesByStack, ReportProcess};
use super::call_paths::{CallPaths, Walk};
use super::ended::{EndedParts, EndedProcesses};
use super::generated_names::GeneratedNames;
use super::process::process;
use super::recorded::{RecordedClass, RecordedProcesses, RunningProcess};

/// Stalls of all images by cgroup.
pub(super) type StallsByCgroup = BTreeMap<Option<CgroupId>, BTreeMap<ReclaimKind, StallStats>>;

/// Processes with rows of their own, by event class and image.
type ListedProcesses = BTreeMap<EventClass, BTreeMap<ImageId, ReportProcess>>;

/// All stacks of a report as call paths.
#[derive(Debug)]
pub(super) struct ReportStacks {
    pub(super) paths: CallPaths,
    pub(super) names: GeneratedNames,
    pub(super) classes: BTreeMap<EventClass, ReportClass>,
}

/// The stacks and processes of an event class.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportClass {
    /// Processes and groups, ordered as in the profile.
    pub(super) processes: Vec<ReportProcess>,
    pub(super) stalls: StallsByCgroup,
    pub(super) oom_kills: BTreeSet<OomKill>,
    pub(super) losses: Losses,
}

impl ReportStacks {
    /// Converts the stacks of a run to call paths. `snapshots`: totals of the images that still run. `images`:
    /// metadata of these images. `code_of` returns the names of the code that an image has generated. `ended`:
    /// images that ended earlier. `window`: start and end of the trace. `changes`: changes of the live memory of
    /// running images, if known.
    pub(super) fn of_run<C: CodeNames>(
        snapshots: Snapshots,
        images: &BTreeMap<ImageId, ProcessImage>,
        code_of: impl Fn(ImageId, &ProcessImage) -> C,
        ended: EndedProcesses,
        window: &Range<Tick>,
        changes: LiveChangesByStack,
    ) -> Self {
        Self::with_ended(ended.into_parts(), window, |stacks| stacks.add(snapshots, images, code_of, window, changes))
    }

    /// Returns the stacks of a recording during `window`.
    pub(super) fn of_recording(processes: RecordedProcesses, window: &Range<Tick>) -> Self {
        let (ended, recorded) = processes.into_parts();
        Self::with_ended(ended.into_parts_with_all_paths(), window, |stacks| stacks.add_recorded(recorded, window))
    }

    /// Returns the stacks of the ended images, together with the running images. `add` adds the stacks of the
    /// running images, and returns these images.
    fn with_ended(ended: EndedParts, window: &Range<Tick>, add: impl FnOnce(&mut Self) -> ListedProcesses) -> Self {
        let EndedParts { classes, paths, names } = ended;
        let mut stacks = Self { paths, names, classes: BTreeMap::new() };
        let mut processes = add(&mut stacks);
        for (class, ended) in classes {
            let (rows, groups) = ended.into_parts();
            let of_class = stacks.classes.entry(class).or_default();
            let listed = processes.entry(class).or_default();
            for row in rows {
                let usage = row.usage();
                add_stalls(&mut of_class.stalls, &usage);
                let profile = process(row.id, &usage, &row.image(), Some(row.at), window);
                listed.insert(row.id, ReportProcess::new(profile, row.stacks));
            }
            let mut of_groups = Vec::with_capacity(groups.len());
            for (group, largest) in groups {
                add_stalls(&mut of_class.stalls, &group.usage);
                of_groups.push(ReportProcess::new(group.profile(largest), group.into_stacks()));
            }
            let name = |group: &ReportProcess| (group.process.comm.clone(), group.process.exe.clone());
            of_groups.sort_by_cached_key(name);
            of_class.processes = of_groups;
        }
        for (class, listed) in processes {
            let processes = &mut stacks.classes.entry(class).or_default().processes;
            *processes = listed.into_values().chain(std::mem::take(processes)).collect();
        }
        stacks
    }

    /// Converts the stacks of `snapshots`, and returns the processes.
    fn add<C: CodeNames>(
        &mut self,
        mut snapshots: Snapshots,
        images: &BTreeMap<ImageId, ProcessImage>,
        code_of: impl Fn(ImageId, &ProcessImage) -> C,
        window: &Range<Tick>,
        mut changes: LiveChangesByStack,
    ) -> ListedProcesses {
        let mut processes = ListedProcesses::new();
        for (id, image) in images_of(&snapshots, images) {
            let mut code = code_of(id, image);
            for (&class, snapshot) in &mut snapshots.0 {
                let Some(mut usage) = snapshot.images.remove(&id) else { continue };
                let mut walk = Walk::new(&mut self.paths, image, &snapshot.stacks, &mut code, &mut self.names);
                let mut by_stack = changes.remove(&(class, id)).unwrap_or_default();
                let mut live_changes = ChangesByPath::default();
                let totals = walk.totals(&mut usage, |key, path| {
                    if let Some(changes) = by_stack.remove(&key) {
                        live_changes.entry(path).or_default().merge(&changes);
                    }
                });
                add_stalls(&mut self.classes.entry(class).or_default().stalls, &usage);
                let end = snapshot.ends.get(&id).map(|&(_, at)| at);
                let process = process(id, &usage, image, end, window);
                processes.entry(class).or_default().insert(id, ReportProcess { process, totals, live_changes });
            }
            self.names.note(id, &image.comm, &code);
        }
        for (class, snapshot) in snapshots.0 {
            let of_class = self.classes.entry(class).or_default();
            (of_class.oom_kills, of_class.losses) = (snapshot.oom_kills, snapshot.losses);
        }
        processes
    }

    /// Adds the classes of a recording, and returns the running processes.
    fn add_recorded(&mut self, recorded: BTreeMap<EventClass, RecordedClass>, window: &Range<Tick>) -> ListedProcesses {
        let mut processes = ListedProcesses::new();
        for (class, RecordedClass { running, oom_kills, losses }) in recorded {
            let of_class = self.classes.entry(class).or_default();
            (of_class.oom_kills, of_class.losses) = (oom_kills, losses);
            let listed = processes.entry(class).or_default();
            for RunningProcess { id, image, usage, totals, live_changes } in running {
                add_stalls(&mut of_class.stalls, &usage);
                let process = process(id, &usage, &image, None, window);
                listed.insert(id, ReportProcess { process, totals, live_changes });
            }
        }
        processes
    }
}

/// Returns the images of all classes.
fn images_of<'a>(
    snapshots: &Snapshots,
    images: &'a BTreeMap<ImageId, ProcessImage>,
) -> Vec<(ImageId, &'a ProcessImage)> {
    static UNKNOWN: LazyLock<ProcessImage> = LazyLock::new(ProcessImage::default);
    let ids: BTreeSet<_> = snapshots.0.values().flat_map(|snapshot| snapshot.images.keys().copied()).collect();
    ids.into_iter().map(|id| (id, images.get(&id).unwrap_or(&UNKNOWN))).collect()
}

fn add_stalls(sums: &mut StallsByCgroup, usage: &ImageUsage) {
    for (key, stalls) in &usage.stalls {
        sums.entry(key.group).or_default().entry(key.work).or_default().merge(stalls);
    }
}
