//! Finds the processes to trace, or starts the command, and chooses the probes for their allocators.

use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrace_host::kernel::{Kernel, KernelError, Scope};
use memtrace_host::launch::{Child, Identity, Launch, StoppedImage};
use memtrace_host::loader::Candidates;
use memtrace_host::procfs;
use memtrace_host::procfs::Process;
use memtrace_model::{FilterRule, LossReason, Object, Pid, format, printable};
use tokio::sync::Notify;

use super::config::{ProbeSite, Target};
use super::coverage_gaps::coverage_gaps;
use super::descendants::{Descendant, Descendants, NewDescendants};
use super::filter;
use super::go_programs;
use super::patched_code::PatchedCode;
use super::probes::AllocatorProbes;
use crate::run_kit::descriptors;
use crate::run_kit::error::{AllocatorUser, Error, from_engines};
use crate::run_kit::outcome::CommandEnd;
use crate::run_kit::start_progress::StartProgress;
use crate::targets::sample_sites;
use crate::targets::track::ProcessTracker;

/// Once there are this many notes, further notes about late allocators are only counted.
const MAX_NOTES: usize = 200;

/// Time for which the search for patched code holds. It reads the mappings of all processes.
const PATCHED_CODE_HOLDS: Duration = Duration::from_secs(1);

/// The processes to trace.
pub(crate) struct Targets {
    /// Running processes that were selected by their pids.
    processes: Vec<Process>,
    /// If child processes are traced: descendants of `processes` that were started before the trace.
    descendants: Descendants,
    command: Command,
    /// Name in reports: `pid 4711 (redis-server)`.
    pub(crate) name: String,
    /// Notes for the user about allocations that are not traced.
    pub(crate) notes: Vec<String>,
    /// Number of notes that were only counted, because [`MAX_NOTES`] was reached.
    more_notes: u64,
    /// Instruction to probe in allocator functions; `None` if allocators are not probed.
    pub(crate) probe_site: Option<ProbeSite>,
    /// Objects that the command may load at its start.
    pub(crate) objects: Vec<Arc<Object>>,
    /// True if probes are placed for all processes. BPF programs then filter the hits.
    shares_probes: bool,
    /// True if processes of the command are stopped at each exec, until their executables are probed.
    holds_execs: bool,
    /// Notified when an image has stopped at its exec.
    exec_stopped: Arc<Notify>,
    /// True if the tracker gets the mmap events of all processes.
    tracks_all: bool,
    /// True if probes are kept out of instructions that a patch replaces.
    leaves_room: bool,
    /// Code that other memtraces have changed in processes, with the time of the search; `None` before it.
    patched_code: Option<(Instant, PatchedCode)>,
}

/// State of a command to trace.
enum Command {
    None,
    /// The command was started, and is stopped before its first instruction.
    Stopped(Launch),
    /// The command runs or has ended.
    Released(Child),
}

impl Targets {
    /// Finds the processes of `target`, and the probes for their allocators. A command is started, and stays stopped
    /// before its first instruction until [`Self::release`].
    pub(crate) fn find(
        target: &Target,
        probe_site: Option<ProbeSite>,
        tracker: &mut ProcessTracker,
        progress: &StartProgress,
    ) -> Result<(Self, Vec<AllocatorProbes>), Error> {
        progress.begin(match target {
            Target::Command { .. } => "reading the executable and its libraries",
            Target::Pids { .. } | Target::Selected { .. } => "reading processes",
        });
        // A descriptor is kept open for each process, so the limit is raised. But a command must start with the limit
        // that memtrace was started with.
        if !matches!(target, Target::Command { .. }) {
            descriptors::raise_limit();
        }
        let found = Self::find_within_limit(target, probe_site, tracker, progress);
        descriptors::raise_limit();
        found
    }

    fn find_within_limit(
        target: &Target,
        probe_site: Option<ProbeSite>,
        tracker: &mut ProcessTracker,
        progress: &StartProgress,
    ) -> Result<(Self, Vec<AllocatorProbes>), Error> {
        match target {
            Target::Pids { pids, children } => Self::find_pids(pids, *children, probe_site, tracker),
            Target::Command { argv, children, holds_execs, .. } => {
                let (mut targets, probes) = Self::start_command(argv, *children, probe_site, tracker)?;
                targets.holds_execs = *holds_execs && probe_site.is_some();
                Ok((targets, probes))
            }
            Target::Selected { rules, .. } => Self::find_selected(rules, probe_site, tracker, progress),
        }
    }

    /// Adds a note about an allocator that was found during the trace. If there are too many notes, counts the note and
    /// returns false.
    pub(crate) fn add_late_note(&mut self, note: &str) -> bool {
        let has_room = self.notes.len() < MAX_NOTES;
        if has_room {
            self.notes.push(note.to_owned());
        } else {
            self.more_notes += 1;
        }
        has_room
    }

    /// Adds a note with the number of notes that were only counted.
    pub(crate) fn count_late_notes(&mut self) {
        if self.more_notes > 0 {
            self.notes.push(format!("{} further notes about allocators are left out", self.more_notes));
        }
    }

    fn new(name: String, probe_site: Option<ProbeSite>, shares_probes: bool) -> Self {
        Self {
            processes: Vec::new(),
            descendants: Descendants::default(),
            command: Command::None,
            name,
            notes: Vec::new(),
            more_notes: 0,
            probe_site,
            objects: Vec::new(),
            shares_probes,
            holds_execs: false,
            exec_stopped: Arc::default(),
            tracks_all: false,
            leaves_room: false,
            patched_code: None,
        }
    }

    fn find_pids(
        pids: &[Pid],
        children: bool,
        probe_site: Option<ProbeSite>,
        tracker: &mut ProcessTracker,
    ) -> Result<(Self, Vec<AllocatorProbes>), Error> {
        if children {
            tracker.allocators.share_probes();
        }
        let mut processes = Vec::new();
        let mut probes = Vec::new();
        let mut notes = Vec::new();
        let mut without_allocator = None;
        for &pid in pids {
            let user_error = |error| from_engines::process(pid, error);
            let process = procfs::inspect(pid).map_err(user_error)?;
            tracker.track(pid);
            tracker.read_image(pid).map_err(user_error)?;
            let survey = tracker.survey(pid);
            for examined in &survey.examined {
                log::debug!("process {pid}: {examined}");
            }
            let profile = go_programs::examine(pid, tracker);
            let has_profile = matches!(profile, Some(Ok(())));
            let Some(probe_site) = probe_site else {
                if let Some(Err(error)) = profile.filter(|_| !children) {
                    return Err(error);
                }
                processes.push(process);
                continue;
            };
            notes.extend(coverage_gaps(pid, &survey, has_profile));
            // If the process exited during the survey, its files could not be opened. Report the exit instead.
            let missing = |error| {
                if process.has_exited() {
                    Error::Ended { pid }
                } else {
                    from_engines::allocators(AllocatorUser::Process(pid), error)
                }
            };
            let supported = match survey.supported().map_err(missing) {
                Ok(supported) => supported,
                Err(Error::NoAllocator { .. }) if has_profile || sample_sites::publishes(pid, tracker) => {
                    processes.push(process);
                    continue;
                }
                // The child processes can have an allocator.
                Err(error @ Error::NoAllocator { .. }) if children => {
                    without_allocator.get_or_insert(error);
                    processes.push(process);
                    continue;
                }
                Err(error @ Error::NoAllocator { .. }) => return Err(profile.and_then(Result::err).unwrap_or(error)),
                Err(error) => return Err(error),
            };
            for allocator in supported {
                if tracker.allocators.insert(pid, allocator) {
                    let id = tracker.allocators.id(allocator);
                    probes.extend(AllocatorProbes::new(pid, scope(pid, children), allocator, id, probe_site));
                }
            }
            processes.push(process);
        }
        let names: Vec<_> = processes.iter().map(|process| format!("{} ({})", process.pid, process.comm)).collect();
        let name = format!("{} {}", if names.len() == 1 { "pid" } else { "pids" }, names.join(", "));
        let mut targets = Self { processes, notes, ..Self::new(name, probe_site, children) };
        if children {
            // Nothing follows the descendants yet, because the BPF programs are not loaded.
            probes.extend(targets.find_descendants(tracker, |_| Ok(true))?.probes);
        }
        let is_sampled = |pid| go_programs::runs(pid, tracker) || sample_sites::publishes(pid, tracker);
        let has_profile = || targets.family().any(is_sampled);
        match without_allocator {
            Some(error) if probes.is_empty() && !has_profile() => Err(error),
            _ => Ok((targets, probes)),
        }
    }

    /// Finds the descendants of the targets that are not known yet.
    fn find_descendants(
        &mut self,
        tracker: &mut ProcessTracker,
        follow: impl FnMut(&Descendant) -> Result<bool, Error>,
    ) -> Result<NewDescendants, Error> {
        let roots: Vec<_> = self.pids().collect();
        let mut new = self.descendants.find(&roots, self.probe_site, tracker, follow)?;
        for note in new.notes.drain(..) {
            if !self.notes.contains(&note) {
                self.add_late_note(&note);
            }
        }
        Ok(new)
    }

    /// Lets the BPF programs follow the descendants of the targets. Returns the probes for the allocators of new descendants.
    pub(crate) fn follow_descendants(
        &mut self,
        kernel: &mut Kernel,
        tracker: &mut ProcessTracker,
    ) -> Result<Vec<AllocatorProbes>, Error> {
        let mut probes = Vec::new();
        if !self.shares_probes || self.processes.is_empty() {
            return Ok(probes);
        }
        let mut follow = |descendant: &Descendant| {
            let is_new = follow_descendant(kernel, descendant);
            is_new.map_err(|error| from_engines::kernel(Some(descendant.pid()), error))
        };
        self.descendants.iter().try_for_each(|descendant| follow(descendant).map(drop))?;
        // If a followed process starts a process, the BPF programs follow the new process too. A descendant that is not
        // followed yet can start processes unnoticed, so the search is repeated until it finds no new descendant.
        loop {
            let new = self.find_descendants(tracker, &mut follow)?;
            probes.extend(new.probes);
            if new.count == 0 {
                return Ok(probes);
            }
        }
    }

    fn find_selected(
        rules: &[FilterRule],
        probe_site: Option<ProbeSite>,
        tracker: &mut ProcessTracker,
        progress: &StartProgress,
    ) -> Result<(Self, Vec<AllocatorProbes>), Error> {
        tracker.allocators.share_probes();
        let failed = |error| Error::Failed(format!("cannot list the running processes: {error}"));
        let pids = procfs::all_processes().map_err(failed)?;
        let allocators = tracker.track_all(&pids, |done| progress.set(done, pids.len()));
        let probes = |(pid, allocator)| {
            AllocatorProbes::new(pid, Scope::AllProcesses, &allocator, tracker.allocators.id(&allocator), probe_site?)
        };
        let probes = allocators.into_iter().filter_map(probes).collect();
        Ok((Self { tracks_all: true, ..Self::new(filter::describe(rules), probe_site, true) }, probes))
    }

    fn start_command(
        argv: &[OsString],
        children: bool,
        probe_site: Option<ProbeSite>,
        tracker: &mut ProcessTracker,
    ) -> Result<(Self, Vec<AllocatorProbes>), Error> {
        if children {
            tracker.allocators.share_probes();
        }
        let executable = argv.first().map(OsString::as_os_str).unwrap_or_default();
        let Candidates { survey, mut objects, untraceable } = tracker.candidates(executable);
        if let Some(error) = untraceable {
            let command = AllocatorUser::Command(executable.to_owned());
            match go_programs::examine_command(command.clone(), &error, &objects, tracker) {
                Some(Err(error)) => return Err(error),
                None if probe_site.is_some() && !sample_sites::any_publishes(&objects, tracker) => {
                    return Err(from_engines::allocators(command, error));
                }
                Some(Ok(())) | None => {}
            }
        }
        let possible = tracker.possible_allocators(argv);
        objects.extend(possible.objects);
        let identity = Identity::of_sudo().map_err(from_engines::launch)?;
        let launch = Launch::prepare(argv, identity.as_ref()).map_err(from_engines::launch)?;
        let pid = launch.pid();
        tracker.track(pid);
        let mut probes = Vec::new();
        // Every allocator that the command may load is probed. A probe in a library that is not loaded costs the command nothing.
        for allocator in survey.allocators.into_iter().chain(possible.survey.allocators) {
            if let Some(probe_site) = probe_site
                && allocator.is_supported()
                && tracker.allocators.insert(pid, &allocator)
            {
                let id = tracker.allocators.id(&allocator);
                probes.extend(AllocatorProbes::new(pid, scope(pid, children), &allocator, id, probe_site));
            }
        }
        let words: Vec<_> = argv.iter().map(printable).collect();
        let name = format!("{} (pid {pid})", words.join(" "));
        let command = Command::Stopped(launch);
        Ok((Self { command, objects, ..Self::new(name, probe_site, children) }, probes))
    }

    /// Keeps all probes out of the instructions that a patch replaces, because processes that are demoted get a patch later. A
    /// patch is refused if its instruction has a probe.
    ///
    /// Only in jemalloc's `malloc`, `rallocx` and `operator new` that cannot throw, a patch can replace no other instruction than
    /// the one with the best probe site, so the probes of these functions are at the entries. The kernel single-steps the first
    /// instruction, but would emulate the jump after it: a hit takes 11 to 15 µs instead of 0.5 to 0.7 on a virtual machine, and
    /// about 0.9 instead of 0.3 on other machines. The probes cannot be moved when a process is demoted: all processes share
    /// them, and calls between the removal and the insertion would be missed.
    pub(crate) const fn leave_room_for_patches(&mut self) {
        self.leaves_room = true;
    }

    /// Moves the probes of `allocators` out of code that other memtraces have changed, and out of code that this memtrace may
    /// change later. Call it immediately before the probes are attached. A memtrace that changes code compares the code while
    /// the process is stopped, and so finds attached probes.
    pub(crate) fn avoid_patched_code(&mut self, allocators: &mut [AllocatorProbes]) {
        let (mut for_patches, mut for_others) = (0, 0);
        for allocator in allocators {
            if self.leaves_room
                && let Some(replaceable) = allocator.replaceable()
            {
                for_patches += allocator.avoid(replaceable);
            }
            for_others += self.avoid_other_memtraces(allocator);
        }
        self.note_moved_probes(for_patches, for_others);
    }

    /// As [`Self::avoid_patched_code`], for an allocator that a process has newly mapped. On a machine where each new program has
    /// an allocator, such as one that compiles Rust, this must cost little.
    pub(crate) fn avoid_patched_code_late(&mut self, allocator: &mut AllocatorProbes, tracker: &ProcessTracker) {
        let knows_all = self.tracks_all && tracker.losses().get(LossReason::MappingsLost) == 0;
        let is_shared = matches!(allocator.scope, Scope::AllProcesses);
        if is_shared && knows_all && !self.leaves_room && !PatchedCode::is_possible_in(tracker.images()) {
            return;
        }
        if !allocator.is_patchable() {
            return;
        }
        // The search for the instructions of a patch takes up to 50 ms, and blocks are missing until the probes are
        // attached. So it is made only if probes must leave room.
        let replaceable = if self.leaves_room { allocator.replaceable() } else { None };
        let for_patches = replaceable.map_or(0, |replaceable| allocator.avoid(replaceable));
        let for_others = match allocator.scope {
            Scope::AllProcesses if knows_all => allocator.avoid_patched(&PatchedCode::of_images(tracker.images())),
            Scope::AllProcesses | Scope::Process(_) => self.avoid_other_memtraces(allocator),
        };
        self.note_moved_probes(for_patches, for_others);
    }

    /// Moves the probes of an allocator out of code that other memtraces have changed. Returns the number of moved probes.
    fn avoid_other_memtraces(&mut self, allocator: &mut AllocatorProbes) -> usize {
        match allocator.scope {
            Scope::Process(pid) => allocator.avoid_patched(&PatchedCode::of([pid])),
            Scope::AllProcesses => allocator.avoid_patched(self.patched_code()),
        }
    }

    /// Adds notes about moved probes. `for_patches`: number of probes that leave room for patches. `for_others`: number of probes
    /// in code that other memtraces have changed.
    fn note_moved_probes(&mut self, for_patches: usize, for_others: usize) {
        let functions =
            |count: usize| format::counted(count as u64, "allocator function costs", "allocator functions cost");
        if for_patches > 0 {
            self.add_late_note(&format!(
                "{} more to trace: the probes are at the entries, so that memtrace can patch processes that it demotes \
                 (--allow-patching)",
                functions(for_patches)
            ));
        }
        if for_others > 0 {
            self.add_late_note(&format!(
                "{} more to trace: another memtrace has patched this code in a process, so the probes are at the entries; end \
                 the other memtrace first, or call `memtrace detach --all` if it was killed",
                functions(for_others)
            ));
        }
    }

    /// Returns the code that other memtraces have changed in any process.
    fn patched_code(&mut self) -> &PatchedCode {
        let known = self.patched_code.take().filter(|(at, _)| at.elapsed() < PATCHED_CODE_HOLDS);
        let (_, code) =
            self.patched_code.insert(known.unwrap_or_else(|| (Instant::now(), PatchedCode::of_all_processes())));
        code
    }

    /// Lets the command run, if there is one.
    pub(crate) fn release(&mut self) -> Result<(), Error> {
        self.command = match std::mem::replace(&mut self.command, Command::None) {
            Command::Stopped(mut launch) => {
                if self.holds_execs {
                    let stopped = self.exec_stopped();
                    launch.hold_execs(move || stopped.notify_one()).map_err(from_engines::launch)?;
                }
                Command::Released(launch.release().map_err(from_engines::launch)?)
            }
            other => other,
        };
        Ok(())
    }

    /// Returns the notification that is sent when an image has stopped at its exec.
    pub(crate) fn exec_stopped(&self) -> Arc<Notify> {
        Arc::clone(&self.exec_stopped)
    }

    /// Returns the images that have stopped at their exec since the last call. The mmap events of an exec precede its
    /// stop, so the next poll of the tracker finds the allocators.
    pub(crate) fn take_stopped_images(&self) -> Vec<StoppedImage> {
        match &self.command {
            Command::Released(child) => child.take_stopped_images(),
            Command::None | Command::Stopped(_) => Vec::new(),
        }
    }

    /// Lets stopped images run, because the allocators in their executables have probes now. If an image runs already, its
    /// allocators stay late.
    pub(crate) fn resume(&self, images: &[StoppedImage], tracker: &mut ProcessTracker) {
        let Command::Released(child) = &self.command else { return };
        for &image in images {
            if child.resume(image) {
                tracker.set_running(image.pid);
            }
        }
    }

    /// Ends the stops at exec, and lets the stopped images run.
    pub(crate) fn end_hold(&mut self) {
        if let Command::Released(child) = &mut self.command {
            child.end_hold();
        }
    }

    /// Returns the exit status of the command, if it has ended.
    pub(crate) fn command_end(&mut self) -> Option<CommandEnd> {
        let Command::Released(child) = &mut self.command else { return None };
        let status =
            child.try_wait().inspect_err(|error| log::warn!("cannot wait for the command: {error}")).ok()??;
        status.code().map(CommandEnd::Code).or(status.signal().map(CommandEnd::Signal))
    }

    fn command_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.command {
            Command::None => None,
            Command::Stopped(launch) => Some(launch.pidfd()),
            Command::Released(child) => Some(child.pidfd()),
        }
    }

    pub(crate) fn command_pid(&self) -> Option<Pid> {
        match &self.command {
            Command::None => None,
            Command::Stopped(launch) => Some(launch.pid()),
            Command::Released(child) => Some(child.pid()),
        }
    }

    /// Returns the scope of the probes in an object that `pid` has mapped: this process, or all processes if probes are
    /// shared.
    pub(crate) fn scope(&self, pid: Pid) -> Scope {
        scope(pid, self.shares_probes)
    }

    /// Returns the scopes of the probes in an object that any target may map: all processes if probes are shared, or
    /// else each target.
    pub(crate) fn scopes(&self) -> Vec<Scope> {
        match self.shares_probes {
            true => vec![Scope::AllProcesses],
            false => self.pids().map(Scope::Process).collect(),
        }
    }

    /// Returns true if the target ran before memtrace, so that its allocation rate can be measured before the trace. Returns
    /// false for a command that memtrace starts.
    pub(crate) fn ran_before(&self) -> bool {
        matches!(self.command, Command::None)
    }

    pub(crate) fn pids(&self) -> impl Iterator<Item = Pid> + '_ {
        self.processes.iter().map(|process| process.pid).chain(self.command_pid())
    }

    /// Returns the pids of the targets and of their descendants.
    pub(crate) fn family(&self) -> impl Iterator<Item = Pid> + '_ {
        self.pids().chain(self.descendants.pids())
    }

    /// Returns the first process that was selected by its pid and has exited.
    pub(crate) fn first_exited(&self) -> Option<Pid> {
        self.processes.iter().find(|process| process.has_exited()).map(|process| process.pid)
    }

    /// Returns the pidfds of the processes and of the command.
    pub(crate) fn pidfds(&self) -> io::Result<Vec<OwnedFd>> {
        let fds = self.processes.iter().map(Process::pidfd).chain(self.command_fd());
        fds.map(|fd| fd.try_clone_to_owned()).collect()
    }
}

/// Lets the BPF programs follow a process. Returns false if they followed the process already, or if it has exited.
fn follow_descendant(kernel: &mut Kernel, descendant: &Descendant) -> Result<bool, KernelError> {
    let pid = descendant.pid();
    if kernel.follows(pid)? {
        return Ok(false);
    }
    kernel.follow(pid)?;
    // If the process exited before it was followed, its exit did not remove it from the followed processes.
    if descendant.has_exited() {
        kernel.unfollow(pid)?;
        return Ok(false);
    }
    Ok(true)
}

fn scope(pid: Pid, shares_probes: bool) -> Scope {
    if shares_probes { Scope::AllProcesses } else { Scope::Process(pid) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_beyond_the_limit_are_counted() {
        let mut targets = Targets::new(String::from("all processes"), None, true);
        assert!((0..MAX_NOTES).all(|number| targets.add_late_note(&number.to_string())));
        assert!(!targets.add_late_note("one more") && !targets.add_late_note("another"));
        targets.count_late_notes();
        assert_eq!(targets.notes.len(), MAX_NOTES + 1);
        assert_eq!(targets.notes.last().unwrap(), "2 further notes about allocators are left out");
    }

    #[test]
    fn moved_probes_are_noted_with_their_reasons() {
        let mut targets = Targets::new(String::from("all processes"), None, true);
        targets.note_moved_probes(0, 0);
        assert_eq!(targets.notes, [""; 0]);
        targets.note_moved_probes(2, 1);
        let [for_patches, for_others] = &targets.notes[..] else { panic!("{:?}", targets.notes) };
        assert!(for_patches.starts_with("2 allocator functions cost more to trace: "), "{for_patches}");
        assert!(for_patches.ends_with("processes that it demotes (--allow-patching)"), "{for_patches}");
        assert!(for_others.starts_with("1 allocator function costs more to trace: another memtrace "), "{for_others}");
    }
}
