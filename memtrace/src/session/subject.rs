//! Who is traced: found, looked at, and where its allocators are to be probed.

use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use super::config::{ProbeSite, Target};
use super::error::Error;
use super::followed::Followed;
use super::outcome::CommandEnd;
use super::translate;
use crate::kernel::Probe;
use crate::model::Pid;
use crate::target::{self, Allocator, Child, FoundFunction, Identity, Launch, ProbeCost, Process, TargetError};

/// Who is traced.
pub(super) struct Subject {
    /// The processes that were running.
    processes: Vec<Process>,
    /// The command.
    command: Command,
    /// What reports call it: `pid 4711 (redis-server)`.
    pub(super) name: String,
    /// What the user should know of it: what is not traced.
    pub(super) notes: Vec<String>,
    /// What tracing is expected to cost, in words.
    pub(super) expected: Vec<String>,
    /// Which instructions are probed.
    pub(super) probe_site: ProbeSite,
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
pub(super) struct Site {
    pub(super) pid: Pid,
    pub(super) object: PathBuf,
    /// Each function's probe, and what a hit of it costs; the function most called comes first.
    pub(super) probes: Vec<(Probe, ProbeCost)>,
}

impl Site {
    /// Every function of the allocator; `None` where its file cannot be reached.
    pub(super) fn of(pid: Pid, allocator: &Allocator, probe_site: ProbeSite) -> Option<Self> {
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
            (Probe { shape: found.function().shape, offset }, cost)
        };
        Some(Self { pid, object, probes: allocator.functions.iter().map(probe).collect() })
    }
}

impl Subject {
    /// Finds who is to be traced, and where.
    pub(super) fn find(
        target: &Target,
        probe_site: ProbeSite,
        followed: &mut Followed,
    ) -> Result<(Self, Vec<Site>), Error> {
        match target {
            Target::Pids(pids) => Self::running(pids, probe_site, followed),
            Target::Command { argv, .. } => Self::command(argv, probe_site, followed),
        }
    }

    fn running(pids: &[Pid], probe_site: ProbeSite, followed: &mut Followed) -> Result<(Self, Vec<Site>), Error> {
        let mut processes = Vec::new();
        let mut sites = Vec::new();
        let mut notes = Vec::new();
        for &pid in pids {
            let translated = |error| translate::target(pid, error);
            let process = target::inspect(pid).map_err(translated)?;
            followed.follow(pid);
            let survey = target::survey(followed.read(pid).map_err(translated)?);
            for looked_at in &survey.looked_at {
                log::debug!("process {pid}: {looked_at}");
            }
            for other in survey.allocators.iter().filter(|allocator| !allocator.is_supported()) {
                let path = other.object.path.display();
                notes.push(format!("process {pid} also has the allocator {path}, which memtrace does not trace"));
            }
            // The files of a process that has ended meanwhile could not be opened: that is not to be said of them.
            let missing = |error| translated(if process.has_exited() { TargetError::Ended(pid) } else { error });
            for allocator in survey.supported().map_err(missing)? {
                if followed.is_new(pid, allocator) {
                    sites.extend(Site::of(pid, allocator, probe_site));
                }
            }
            processes.push(process);
        }
        let names: Vec<_> = processes.iter().map(|process| format!("{} ({})", process.pid, process.comm)).collect();
        let name = format!("{} {}", if names.len() == 1 { "pid" } else { "pids" }, names.join(", "));
        let expected = Vec::new();
        Ok((Self { processes, command: Command::None, name, notes, expected, probe_site }, sites))
    }

    fn command(argv: &[OsString], probe_site: ProbeSite, followed: &mut Followed) -> Result<(Self, Vec<Site>), Error> {
        let identity = Identity::of_sudo().map_err(translate::launch)?;
        let launch = Launch::prepare(argv, identity.as_ref()).map_err(translate::launch)?;
        let pid = launch.pid();
        followed.follow(pid);
        let mut sites = Vec::new();
        // Whatever the command may come to load: a probe in a library that it does not load costs nothing.
        let program = argv.first().map(OsString::as_os_str).unwrap_or_default();
        for allocator in target::candidate_allocators(program, followed.objects()).allocators {
            if allocator.is_supported() && followed.is_new(pid, &allocator) {
                sites.extend(Site::of(pid, &allocator, probe_site));
            }
        }
        let words: Vec<_> = argv.iter().map(|word| word.to_string_lossy()).collect();
        let name = format!("{} (pid {pid})", words.join(" "));
        let command = Command::Waiting(launch);
        let (notes, expected) = (Vec::new(), Vec::new());
        Ok((Self { processes: Vec::new(), command, name, notes, expected, probe_site }, sites))
    }

    /// Lets the command go, where there is one.
    pub(super) fn release(&mut self) -> Result<(), Error> {
        self.command = match std::mem::replace(&mut self.command, Command::None) {
            Command::Waiting(launch) => Command::Running(launch.release().map_err(translate::launch)?),
            other => other,
        };
        Ok(())
    }

    /// How the command ended, where there is one and it has.
    pub(super) fn command_end(&mut self) -> Option<CommandEnd> {
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

    /// Whether the processes were running before, so that it can be seen how often they allocate.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.command, Command::None)
    }

    /// The processes that are traced.
    pub(super) fn pids(&self) -> impl Iterator<Item = Pid> + '_ {
        self.processes.iter().map(|process| process.pid).chain(self.command_pid())
    }

    /// A process that has ended already.
    pub(super) fn first_ended(&self) -> Option<Pid> {
        self.processes.iter().find(|process| process.has_exited()).map(|process| process.pid)
    }

    /// A descriptor for each process that becomes readable when it ends.
    pub(super) fn pidfds(&self) -> std::io::Result<Vec<OwnedFd>> {
        let fds = self.processes.iter().map(Process::pidfd).chain(self.command_fd());
        fds.map(|fd| fd.try_clone_to_owned()).collect()
    }
}
