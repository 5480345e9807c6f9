//! Who is traced: found, looked at, and where its allocators are to be probed.

use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::filter;
use crate::allocators::{Allocator, FoundFunction, SkipReason, Survey, Verdict};
use crate::kernel::{Kernel, KernelError, Probe, Probes, Scope};
use crate::launch::{Child, Identity, Launch};
use crate::loader::Candidates;
use crate::model::{AllocatorId, FilterRule, Object, Pid};
use crate::probe_site::Cost as ProbeCost;
use crate::procfs;
use crate::procfs::Process;
use crate::session::config::{ProbeSite, Target};
use crate::session::error::Error;
use crate::session::error::from_engines;
use crate::session::outcome::CommandEnd;
use crate::session::track::Followed;

/// Who is traced.
pub(in crate::session) struct Subject {
    /// The processes that were running.
    processes: Vec<Process>,
    /// The command.
    command: Command,
    /// What reports call it: `pid 4711 (redis-server)`.
    pub(in crate::session) name: String,
    /// What the user should know of it: what is not traced.
    pub(in crate::session) notes: Vec<String>,
    /// What tracing is expected to cost, in words.
    pub(in crate::session) expected: Vec<String>,
    /// Which instructions of allocators are probed; `None`: none are.
    pub(in crate::session) probe_site: Option<ProbeSite>,
    /// What the command could come to map as it begins.
    pub(in crate::session) objects: Vec<Arc<Object>>,
    /// Whether probes are placed for everyone, and the kernel half chooses whose calls count.
    is_shared: bool,
}

/// What of a process will be missed, as far as that is known.
fn gaps(pid: Pid, survey: &Survey) -> Vec<String> {
    let mut gaps = Vec::new();
    for allocator in &survey.allocators {
        let path = allocator.object.path.display();
        if !allocator.is_supported() {
            gaps.push(format!("process {pid} also has the allocator {path}, which memtrace does not trace"));
        }
        let missed = allocator.skipped.iter().filter(|skipped| skipped.reason == SkipReason::Throws);
        gaps.extend(missed.map(|skipped| format!("process {pid}: {} of {path}: {}", skipped.symbol, skipped.reason)));
    }
    let go = survey.looked_at.iter().filter(|looked_at| looked_at.verdict == Verdict::Go);
    gaps.extend(go.map(|looked_at| format!("process {pid}: {looked_at}")));
    gaps
}

/// A command that was to be started, and how far it is.
enum Command {
    /// There is none.
    None,
    /// It waits to be let go.
    Waiting(Launch),
    /// It runs, or has ended.
    Running(Child),
}

/// Where one allocator of one process is to be probed.
pub(in crate::session) struct Site {
    /// Who is asked about when something goes wrong.
    pub(in crate::session) pid: Pid,
    pub(in crate::session) scope: Scope,
    pub(in crate::session) object: PathBuf,
    /// Each function's probe, and what a hit of it costs; the function most called comes first.
    pub(in crate::session) probes: Vec<(Probe, ProbeCost)>,
}

impl Site {
    /// Every function of the allocator; `None` where its file cannot be reached.
    pub(in crate::session) fn of(
        pid: Pid,
        scope: Scope,
        allocator: &Allocator,
        number: AllocatorId,
        probe_site: ProbeSite,
    ) -> Option<Self> {
        let object = allocator.object.handle.clone()?;
        let probe = |found: &FoundFunction| {
            let summary = found.summary(&allocator.object.path);
            let (offset, cost) = match probe_site {
                ProbeSite::Best => {
                    log::debug!("process {pid}: {summary}: {}", found.site.reason);
                    (found.site.file_offset, found.site.cost)
                }
                ProbeSite::Entry => {
                    log::debug!("process {pid}: at the entry, as asked, rather than {summary}");
                    // Where the entry's instruction were emulated, it would be the best.
                    let cost = if found.site.offset == 0 { found.site.cost } else { ProbeCost::Stepped };
                    (found.file_offset, cost)
                }
            };
            (
                Probe {
                    signature: found.signature,
                    offset,
                    return_sites: found.return_sites.clone(),
                    allocator: number,
                },
                cost,
            )
        };
        Some(Self { pid, scope, object, probes: allocator.functions.iter().map(probe).collect() })
    }

    /// Places those of its probes that are not in place yet.
    pub(in crate::session) fn place(&self, kernel: &mut Kernel, probes: &mut Probes) -> Result<(), KernelError> {
        let sites: Vec<_> = self.probes.iter().map(|(probe, _)| probe.clone()).collect();
        kernel.place(probes, self.scope, &self.object, &sites)
    }
}

impl Subject {
    /// Finds who is to be traced, and where.
    pub(in crate::session) fn find(
        target: &Target,
        probe_site: Option<ProbeSite>,
        followed: &mut Followed,
    ) -> Result<(Self, Vec<Site>), Error> {
        match target {
            Target::Pids { pids, children } => Self::running(pids, *children, probe_site, followed),
            Target::Command { argv, children, .. } => Self::command(argv, *children, probe_site, followed),
            Target::Selected(rules) => Self::selected(rules, probe_site, followed),
        }
    }

    /// Nobody yet.
    fn named(name: String, probe_site: Option<ProbeSite>, is_shared: bool) -> Self {
        Self {
            processes: Vec::new(),
            command: Command::None,
            name,
            notes: Vec::new(),
            expected: Vec::new(),
            probe_site,
            objects: Vec::new(),
            is_shared,
        }
    }

    fn running(
        pids: &[Pid],
        children: bool,
        probe_site: Option<ProbeSite>,
        followed: &mut Followed,
    ) -> Result<(Self, Vec<Site>), Error> {
        if children {
            followed.allocators.share_probes();
        }
        let mut processes = Vec::new();
        let mut sites = Vec::new();
        let mut notes = Vec::new();
        for &pid in pids {
            let translated = |error| from_engines::process(pid, error);
            let process = procfs::inspect(pid).map_err(translated)?;
            followed.follow(pid);
            followed.read(pid).map_err(translated)?;
            let survey = followed.survey(pid);
            for looked_at in &survey.looked_at {
                log::debug!("process {pid}: {looked_at}");
            }
            let Some(probe_site) = probe_site else {
                processes.push(process);
                continue;
            };
            notes.extend(gaps(pid, &survey));
            // The files of a process that has ended meanwhile could not be opened: that is not to be said of them.
            let missing = |error| {
                if process.has_exited() { Error::Ended { pid } } else { from_engines::allocators(pid, error) }
            };
            for allocator in survey.supported().map_err(missing)? {
                if followed.allocators.is_new(pid, allocator) {
                    let number = followed.allocators.number(allocator);
                    sites.extend(Site::of(pid, scope(pid, children), allocator, number, probe_site));
                }
            }
            processes.push(process);
        }
        let names: Vec<_> = processes.iter().map(|process| format!("{} ({})", process.pid, process.comm)).collect();
        let name = format!("{} {}", if names.len() == 1 { "pid" } else { "pids" }, names.join(", "));
        Ok((Self { processes, notes, ..Self::named(name, probe_site, children) }, sites))
    }

    fn selected(
        rules: &[FilterRule],
        probe_site: Option<ProbeSite>,
        followed: &mut Followed,
    ) -> Result<(Self, Vec<Site>), Error> {
        followed.allocators.share_probes();
        let failed = |error| Error::Failed(format!("the processes that run cannot be listed: {error}"));
        let allocators = followed.read_all(&procfs::all_processes().map_err(failed)?);
        let site = |(pid, allocator)| {
            Site::of(pid, Scope::Everyone, &allocator, followed.allocators.number(&allocator), probe_site?)
        };
        let sites = allocators.into_iter().filter_map(site).collect();
        Ok((Self::named(filter::name(rules), probe_site, true), sites))
    }

    fn command(
        argv: &[OsString],
        children: bool,
        probe_site: Option<ProbeSite>,
        followed: &mut Followed,
    ) -> Result<(Self, Vec<Site>), Error> {
        if children {
            followed.allocators.share_probes();
        }
        let identity = Identity::of_sudo().map_err(from_engines::launch)?;
        let launch = Launch::prepare(argv, identity.as_ref()).map_err(from_engines::launch)?;
        let pid = launch.pid();
        followed.follow(pid);
        let mut sites = Vec::new();
        // Whatever the command may come to load: a probe in a library that it does not load costs nothing.
        let program = argv.first().map(OsString::as_os_str).unwrap_or_default();
        let Candidates { survey, objects } = followed.candidates(program);
        for allocator in survey.allocators {
            if let Some(probe_site) = probe_site
                && allocator.is_supported()
                && followed.allocators.is_new(pid, &allocator)
            {
                let number = followed.allocators.number(&allocator);
                sites.extend(Site::of(pid, scope(pid, children), &allocator, number, probe_site));
            }
        }
        let words: Vec<_> = argv.iter().map(|word| word.to_string_lossy()).collect();
        let name = format!("{} (pid {pid})", words.join(" "));
        let command = Command::Waiting(launch);
        Ok((Self { command, objects, ..Self::named(name, probe_site, children) }, sites))
    }

    /// Lets the command go, where there is one.
    pub(in crate::session) fn release(&mut self) -> Result<(), Error> {
        self.command = match std::mem::replace(&mut self.command, Command::None) {
            Command::Waiting(launch) => Command::Running(launch.release().map_err(from_engines::launch)?),
            other => other,
        };
        Ok(())
    }

    /// How the command ended, where there is one and it has.
    pub(in crate::session) fn command_end(&mut self) -> Option<CommandEnd> {
        let Command::Running(child) = &mut self.command else { return None };
        let status = child
            .try_wait()
            .inspect_err(|error| log::warn!("how the command ended cannot be known: {error}"))
            .ok()??;
        status.code().map(CommandEnd::Code).or(status.signal().map(CommandEnd::Signal))
    }

    fn command_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.command {
            Command::None => None,
            Command::Waiting(launch) => Some(launch.pidfd()),
            Command::Running(child) => Some(child.pidfd()),
        }
    }

    fn command_pid(&self) -> Option<Pid> {
        match &self.command {
            Command::None => None,
            Command::Waiting(launch) => Some(launch.pid()),
            Command::Running(child) => Some(child.pid()),
        }
    }

    /// For whom probes of something that `pid` has mapped are placed.
    pub(in crate::session) fn scope(&self, pid: Pid) -> Scope {
        scope(pid, self.is_shared)
    }

    /// Whether the processes were running before, so that it can be seen how often they allocate.
    pub(in crate::session) fn is_running(&self) -> bool {
        matches!(self.command, Command::None)
    }

    /// The processes that are traced.
    pub(in crate::session) fn pids(&self) -> impl Iterator<Item = Pid> + '_ {
        self.processes.iter().map(|process| process.pid).chain(self.command_pid())
    }

    /// A process that has ended already.
    pub(in crate::session) fn first_ended(&self) -> Option<Pid> {
        self.processes.iter().find(|process| process.has_exited()).map(|process| process.pid)
    }

    /// A descriptor for each process that becomes readable when it ends.
    pub(in crate::session) fn pidfds(&self) -> std::io::Result<Vec<OwnedFd>> {
        let fds = self.processes.iter().map(Process::pidfd).chain(self.command_fd());
        fds.map(|fd| fd.try_clone_to_owned()).collect()
    }
}

fn scope(pid: Pid, is_shared: bool) -> Scope {
    if is_shared { Scope::Everyone } else { Scope::Process(pid) }
}
