//! Probes: attaches BPF programs to instructions of objects, and removes them.

mod counting;
mod probe;
mod removal;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use memtrace_common::vocabulary::{Cookie, RETURN_PROGRAM, RETURN_SITE_PROGRAM, ResultCookie};
use memtrace_common::wire::TagCookie;
use memtrace_model::{AllocatorId, FileOffset, TagEffect, TagSource};

use super::activity::{self, StepSite};
use super::attach_backend::{AttachBackend, RESULT_PROGRAM, RESULT_SIZE_PROGRAM};
use super::attach_point::{AttachPoint, Scope, shown};
use super::detach::{AttachedProbes, Detach};
use super::error::KernelError;
use super::probed_files::Refusal;

pub use self::probe::{LoadedWordSite, Probe, ResultProbes};
pub use self::waiting::WAIT_FOR_MEMORY;
use self::waiting::{ProbeSet, WaitingProbes};

/// Program that sets a mark. It runs at the entry of a function.
const MARK_PROGRAM: &str = "mark_entry";

/// Program that changes the current tag. It runs at an instruction.
const TAG_PROGRAM: &str = "tag_entry";

/// Program that changes the current tag. It runs when a function returns.
const TAG_RETURN_PROGRAM: &str = "tag_return";

/// Instruction with a probe that changes the current tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagSite {
    /// File offset of the probed instruction.
    pub offset: FileOffset,
    /// File offset of the probe's semaphore: a counter of its users. The target computes the arguments only if the counter is
    /// not 0.
    pub semaphore: Option<FileOffset>,
    /// Change of the tag.
    pub effect: TagEffect,
    /// Number of the function whose calls are counted, from 0; `None` if a hit of the probe is not a call of a function.
    pub function: Option<u8>,
    /// Kind of the probe.
    pub probe: TagProbe,
}

/// Kind of a probe that changes the current tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagProbe {
    /// The probe is hit at the instruction.
    Instruction,
    /// The probe is hit when the function that begins at the instruction returns.
    Return,
}

/// BPF program at an instruction of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Attachment {
    scope: Scope,
    object: PathBuf,
    program: &'static str,
    point: AttachPoint,
}

/// Link to a BPF program, with its attach points.
struct Link {
    scope: Scope,
    object: PathBuf,
    program: &'static str,
    points: Vec<AttachPoint>,
    probes: AttachedProbes,
}

/// Attached probes. They are removed when this value is dropped or memtrace exits.
#[derive(Default)]
pub struct Probes {
    links: Vec<Link>,
    /// Attachments in effect. They are not made again.
    attached: HashSet<Attachment>,
    /// Objects that got no probes.
    refused: BTreeMap<PathBuf, Refusal>,
    /// Instructions that the kernel refuses to probe.
    refused_instructions: BTreeSet<(PathBuf, FileOffset)>,
    /// Probes that the kernel found no memory for.
    waiting: WaitingProbes,
    /// Removal of the probes of objects that no process maps any more; `None` before the first. All removals share this value, so
    /// that only one thread at a time checks the locks of memory maps, and memtrace waits only once at its end.
    removal: Option<Detach>,
}

impl Probes {
    /// Returns the number of attached probes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.links.iter().map(|link| link.probes.count()).sum()
    }

    /// Returns true if no probe is attached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Adds the probes of `others`, and waits for the removal that is in progress in `others`, if there is one.
    pub fn merge(&mut self, mut others: Self) {
        self.links.append(&mut others.links);
        self.attached.extend(others.attached.drain());
        self.refused.append(&mut others.refused);
        self.refused_instructions.append(&mut others.refused_instructions);
        self.waiting.merge(std::mem::take(&mut others.waiting));
    }

    /// Returns the paths of the objects that got no probes, with the reasons.
    pub fn refusals(&self) -> impl Iterator<Item = (&Path, Refusal)> {
        self.refused.iter().map(|(path, refusal)| (path.as_path(), *refusal))
    }

    /// Returns the instructions that the kernel refuses to probe: the path of the object, and the file offset.
    pub fn refused_instructions(&self) -> impl Iterator<Item = (&Path, FileOffset)> {
        self.refused_instructions.iter().map(|(path, offset)| (path.as_path(), *offset))
    }

    /// Returns the reason why the object at `path` got no probes; `None` if it was not refused.
    #[must_use]
    pub fn refusal(&self, path: &Path) -> Option<Refusal> {
        self.refused.get(path).copied()
    }

    /// Returns the scopes and objects of the probes that wait for memory.
    pub fn waiting(&self) -> impl Iterator<Item = (Scope, &Path)> {
        self.waiting.iter()
    }

    /// Returns true if probes of the object at `path` wait for memory.
    #[must_use]
    pub fn is_waiting(&self, scope: Scope, path: &Path) -> bool {
        self.waiting().any(|waiting| waiting == (scope, path))
    }

    /// Returns a sentence with the number of probes that have waited for memory; `None` if no probe has waited.
    #[must_use]
    pub fn waiting_note(&self) -> Option<String> {
        self.waiting.note()
    }

    /// Returns the next probes to try again; `None` if none are due.
    pub(super) fn take_waiting(&mut self, now: Instant) -> Option<ProbeSet> {
        self.waiting.take_due(now)
    }

    /// Handles the result of a later attempt at `now`. Returns the object if none of its probes in this scope waits any more.
    pub(super) fn finish_attempt(
        &mut self,
        set: ProbeSet,
        result: Result<(), KernelError>,
        now: Instant,
    ) -> Option<PathBuf> {
        match result {
            Ok(()) if self.refusal(&set.object).is_none() => {
                self.waiting.count_attached();
                return (!self.is_waiting(set.scope, &set.object)).then_some(set.object);
            }
            Err(KernelError::NoMemory { .. } | KernelError::LockedMemory { .. }) => self.waiting.add_again(set, now),
            Ok(()) | Err(KernelError::TargetEnded) => self.waiting.give_up(),
            Err(error) => {
                log::warn!("{error}");
                self.waiting.give_up();
            }
        }
        None
    }

    pub(super) fn set_refusal(&mut self, path: &Path, refusal: Refusal) {
        self.refused.insert(path.to_owned(), refusal);
    }

    /// Removes the refusal of the object at `path` if it is `refusal`, because it does not hold any more.
    pub(super) fn clear_refusal(&mut self, path: &Path, refusal: Refusal) {
        if self.refusal(path) == Some(refusal) {
            self.refused.remove(path);
        }
    }

    /// Handles the result of attaching the probes of an allocator. If an attachment for all processes fails, only this object
    /// loses its probes: a user may have made the file so that the kernel refuses it.
    pub(super) fn refuse_failed(
        &mut self,
        scope: Scope,
        path: &Path,
        result: Result<(), KernelError>,
    ) -> Result<(), KernelError> {
        match result {
            Ok(()) => self.clear_refusal(path, Refusal::Failed),
            Err(error @ KernelError::NotInserted { .. }) if scope == Scope::AllProcesses => {
                log::warn!("{error}");
                // With only a part of the probes, the trace would have allocations without their frees.
                self.remove_objects(&HashSet::from([path.to_owned()]));
                self.set_refusal(path, Refusal::Failed);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Attaches the probes that record calls of one function of the object at `path`, but no probes at its returns.
    pub(super) fn attach_entry(
        &mut self,
        backend: &mut AttachBackend<'_>,
        scope: Scope,
        path: &Path,
        probe: &Probe,
    ) -> Result<(), KernelError> {
        self.attach_all(backend, scope, path, entries(probe))
    }

    /// Attaches a probe that records each entry of the function at `offset`. `function` is its number in the records.
    pub(super) fn attach_mark(
        &mut self,
        backend: &mut AttachBackend<'_>,
        scope: Scope,
        path: &Path,
        offset: FileOffset,
        function: u32,
    ) -> Result<(), KernelError> {
        let point = AttachPoint { offset, cookie: Some(function.into()), semaphore: None };
        self.attach_all(backend, scope, path, [(MARK_PROGRAM, point)])
    }

    /// Attaches the probes at `sites` that change the current tag.
    pub(super) fn attach_tags(
        &mut self,
        backend: &mut AttachBackend<'_>,
        scope: Scope,
        path: &Path,
        sites: &[TagSite],
    ) -> Result<(), KernelError> {
        self.attach_all(backend, scope, path, sites.iter().map(tag_point))
    }

    /// Attaches the probes at `sites` that record steps of threads.
    pub(super) fn attach_steps(
        &mut self,
        backend: &mut AttachBackend<'_>,
        scope: Scope,
        path: &Path,
        sites: &[StepSite],
    ) -> Result<(), KernelError> {
        self.attach_all(backend, scope, path, sites.iter().map(activity::point))
    }

    /// Attaches the programs at `points`, which record samples that targets take.
    pub(super) fn attach_sampled(
        &mut self,
        backend: &mut AttachBackend<'_>,
        scope: Scope,
        path: &Path,
        points: Vec<(&'static str, AttachPoint)>,
    ) -> Result<(), KernelError> {
        self.attach_all(backend, scope, path, points)
    }

    /// Attaches `probes` to the object at `path`, except the ones that are already attached.
    pub(super) fn attach(
        &mut self,
        backend: &mut AttachBackend<'_>,
        scope: Scope,
        path: &Path,
        probes: &[Probe],
    ) -> Result<(), KernelError> {
        // Probes at returns are attached first, so that the return of each recorded call is recorded too.
        let returns = probes.iter().flat_map(returns);
        self.attach_all(backend, scope, path, returns.chain(probes.iter().flat_map(entries)))
    }

    /// Same as [`Self::attach`], with the programs that count blocks and record nothing.
    pub(super) fn attach_counting(
        &mut self,
        backend: &mut AttachBackend<'_>,
        scope: Scope,
        path: &Path,
        probes: &[Probe],
    ) -> Result<(), KernelError> {
        self.attach_all(backend, scope, path, probes.iter().flat_map(counting::points))
    }

    /// Attaches `points`, except the ones that are already attached. If the kernel finds no memory for one of them, all `points`
    /// wait for a later attempt. They also wait if other probes of the object already wait.
    fn attach_all(
        &mut self,
        backend: &mut AttachBackend<'_>,
        scope: Scope,
        path: &Path,
        points: impl IntoIterator<Item = (&'static str, AttachPoint)>,
    ) -> Result<(), KernelError> {
        let set = ProbeSet { scope, object: path.to_owned(), points: points.into_iter().collect() };
        if self.is_waiting(scope, path) && !self.missing(&set).is_empty() {
            return self.postpone(set);
        }
        match self.attach_set(backend, &set) {
            Err(error @ KernelError::NoMemory { .. }) => {
                log::warn!("{error}");
                self.postpone(set)
            }
            result => result,
        }
    }

    /// Returns the probes of `set` that are not attached.
    fn missing(&self, set: &ProbeSet) -> Vec<(&'static str, AttachPoint)> {
        let is_missing = |&(program, point): &(&'static str, AttachPoint)| {
            let attachment = Attachment { scope: set.scope, object: set.object.clone(), program, point };
            !self.attached.contains(&attachment)
        };
        set.points.iter().copied().filter(is_missing).collect()
    }

    /// Lets all probes of `set` wait for memory. This is no error: the memory cgroup of a single process can be at its limit.
    fn postpone(&mut self, set: ProbeSet) -> Result<(), KernelError> {
        // With only a part of the probes, the trace would have allocations without their frees.
        self.remove_set(&set);
        let action = format!("attach probes to {}", shown(&set.object));
        if self.waiting.add(set, Instant::now()) {
            return Ok(());
        }
        let reason = String::from("the kernel finds no memory for them, and too many other probes wait for memory");
        Err(KernelError::NotInserted { action, reason })
    }

    /// Attaches the probes of `set`, except the ones that are already attached. If this fails, removes all probes of `set`. But
    /// if the lock of a memory map is held, the attached probes stay, because a removal would wait for the lock.
    pub(super) fn attach_set(&mut self, backend: &mut AttachBackend<'_>, set: &ProbeSet) -> Result<(), KernelError> {
        let (scope, path) = (set.scope, set.object.as_path());
        let mut by_program: Vec<(&'static str, Vec<AttachPoint>)> = Vec::new();
        for (program, point) in self.missing(set) {
            match by_program.iter_mut().find(|(name, _)| *name == program) {
                // Two names of one function have the same attach point.
                Some((_, points)) if points.contains(&point) => {}
                Some((_, points)) => points.push(point),
                None => by_program.push((program, vec![point])),
            }
        }
        let mut programs = by_program.into_iter();
        let result =
            programs.try_for_each(|(program, points)| self.attach_program(backend, scope, path, program, points));
        if !matches!(result, Ok(()) | Err(KernelError::LockedMemory { .. })) {
            self.remove_set(set);
        }
        result
    }

    /// Attaches `program` to `points`. After an error, a later attempt attaches the missing points.
    fn attach_program(
        &mut self,
        backend: &mut AttachBackend<'_>,
        scope: Scope,
        path: &Path,
        program: &'static str,
        points: Vec<AttachPoint>,
    ) -> Result<(), KernelError> {
        let mut links = Vec::new();
        let mut outcome = backend.attach(program, scope, path, &points, &mut links);
        let mut refused = Vec::new();
        if matches!(outcome, Err(KernelError::RefusedInstruction { .. })) {
            // One refused instruction must not prevent the other probes. Earlier points can already have links.
            let rest = &points[links.len()..];
            (refused, outcome) = attach_each(backend, program, scope, path, rest, &mut links);
        }
        let linked = attached_points(&points, &refused, &links);
        let mut rest = linked.iter().copied();
        self.links.extend(links.into_iter().map(|probes| {
            let points = rest.by_ref().take(probes.count()).collect();
            Link { scope, object: path.to_owned(), program, points, probes }
        }));
        let attached = if outcome.is_ok() { points } else { linked };
        self.refused_instructions.extend(refused.into_iter().map(|offset| (path.to_owned(), offset)));
        let attachment = |point| Attachment { scope, object: path.to_owned(), program, point };
        self.attached.extend(attached.into_iter().map(attachment));
        outcome
    }
}

/// Returns the points with a link. `links` are in the order of `points`, without the points at offsets in `refused`.
fn attached_points(points: &[AttachPoint], refused: &[FileOffset], links: &[AttachedProbes]) -> Vec<AttachPoint> {
    let count = links.iter().map(AttachedProbes::count).sum();
    points.iter().filter(|point| !refused.contains(&point.offset)).take(count).copied().collect()
}

/// Attaches a program to each of `points` separately. Returns the instructions that the kernel refuses, and the first other
/// error.
fn attach_each(
    backend: &mut AttachBackend<'_>,
    program: &str,
    scope: Scope,
    path: &Path,
    points: &[AttachPoint],
    links: &mut Vec<AttachedProbes>,
) -> (Vec<FileOffset>, Result<(), KernelError>) {
    let mut refused = Vec::new();
    for point in points {
        match backend.attach(program, scope, path, std::slice::from_ref(point), links) {
            Ok(()) => {}
            Err(KernelError::RefusedInstruction { .. }) => refused.push(point.offset),
            Err(error) => return (refused, Err(error)),
        }
    }
    (refused, Ok(()))
}

/// Returns the program and the attach point for a change of the tag.
fn tag_point(site: &TagSite) -> (&'static str, AttachPoint) {
    let TagEffect { action, source, value, condition } = site.effect;
    let program = match site.probe {
        TagProbe::Instruction => TAG_PROGRAM,
        TagProbe::Return => TAG_RETURN_PROGRAM,
    };
    let cookie = TagCookie::new(action, source.and_then(TagSource::argument), value, condition);
    let TagCookie(cookie) = site.function.map_or(cookie, |function| cookie.with_function(function));
    (program, AttachPoint { offset: site.offset, cookie: Some(cookie), semaphore: site.semaphore })
}

/// Returns the program and the attach point for the entry of a function.
fn entry(probe: &Probe) -> (&'static str, AttachPoint) {
    let program = probe.signature.entry_program();
    let mut cookie = match (program.cookie, probe.allocator) {
        (cookie, AllocatorId::UNKNOWN) => cookie,
        (cookie, AllocatorId(number)) => Some(cookie.unwrap_or(Cookie(0)).with_allocator(number)),
    };
    if let Some(function) = probe.function {
        cookie = Some(cookie.unwrap_or(Cookie(0)).with_function(function));
    }
    if probe.has_sizes {
        cookie = Some(cookie.unwrap_or(Cookie(0)).with_sizes());
    }
    (program.name, AttachPoint { offset: probe.offset, cookie: cookie.map(|cookie| cookie.0), semaphore: None })
}

/// Returns the programs and attach points that detect a call. The points are at the entry of the function, or at instructions
/// where a register holds the block or the size.
fn entries(probe: &Probe) -> Vec<(&'static str, AttachPoint)> {
    let (program, at_entry) = entry(probe);
    let Some(ResultProbes { results, sizes, .. }) = &probe.results else { return vec![(program, at_entry)] };
    let of_entry = Cookie(at_entry.cookie.unwrap_or(0));
    let point = |program, (offset, cookie): &(FileOffset, ResultCookie)| {
        let ResultCookie(cookie) = cookie.with_upper_half(of_entry);
        (program, AttachPoint { offset: *offset, cookie: Some(cookie), semaphore: None })
    };
    let results = results.iter().map(|site| point(RESULT_PROGRAM, site));
    results.chain(sizes.iter().map(|site| point(RESULT_SIZE_PROGRAM, site))).collect()
}

/// Returns the programs and attach points for the returns of a function. If the instructions with its block are probed, only
/// the functions that return a block in place of this function need a program at their return.
fn returns(probe: &Probe) -> Vec<(&'static str, AttachPoint)> {
    let point = |offset| AttachPoint { offset, cookie: None, semaphore: None };
    if let Some(ResultProbes { slow, .. }) = &probe.results {
        return slow.iter().map(|&offset| (RETURN_PROGRAM, point(offset))).collect();
    }
    if probe.signature.needs_return() && probe.return_sites.is_empty() {
        return vec![(RETURN_PROGRAM, point(probe.offset))];
    }
    probe.return_sites.iter().map(|&offset| (RETURN_SITE_PROGRAM, point(offset))).collect()
}

#[cfg(test)]
mod tests;
