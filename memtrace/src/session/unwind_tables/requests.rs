//! The unwind tables of a run: those that are in place before events count, and those that are asked for meanwhile.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use tokio::sync::Notify;

use super::publisher::Unwinding;
use crate::eh_frame as unwind;
use crate::eh_frame::Cache;
use crate::kernel::Kernel;
use crate::kernel::unwind_maps::{TableRequest, TableRequestReader};
use crate::model::Pid;
use crate::session::config::{Config, Target};
use crate::session::error::Error;
use crate::session::error::from_engines;
use crate::session::select::Subject;
use crate::session::track::Followed;

/// Where many processes are traced, so many objects have their unwind tables before events count, those of most use; the
/// others get theirs beside the run.
const AT_ONCE: usize = 48;

/// The tables by which the targets' stacks are walked.
pub(in crate::session) struct Tables {
    unwinding: Unwinding,
    /// What the kernel half asks for; `None` where it does not.
    wanted: Option<TableRequestReader>,
    takes_stacks: bool,
}

impl Tables {
    /// Has the tables in place of what the targets have mapped, or will map as they begin.
    pub(in crate::session) fn prepare(
        config: &Config,
        kernel: &mut Kernel,
        subject: &Subject,
        followed: &Followed,
    ) -> Result<Self, Error> {
        let mut unwinding = Unwinding::new(tables_cache());
        let takes_stacks = config.max_depth > 0;
        if takes_stacks {
            unwinding.begin(kernel);
            unwinding.prepare(kernel, subject.objects.iter());
            for pid in subject.pids() {
                if let Some(image) = followed.image(pid) {
                    unwinding.update(kernel, pid, image);
                }
            }
            if matches!(config.target, Target::Selected(_)) {
                let objects = followed.by_use();
                let (first, later) = objects.split_at(objects.len().min(AT_ONCE));
                unwinding.prepare(kernel, first.iter());
                unwinding.foresee(kernel, later);
            }
        }
        let wanted = kernel.take_wanted().map_err(|error| from_engines::kernel(None, error))?;
        Ok(Self { unwinding, wanted, takes_stacks })
    }

    /// Becomes readable when the kernel half asks for something.
    pub(in crate::session) fn wanted_fd(&self) -> Option<RawFd> {
        self.wanted.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Tells when a table has been built.
    pub(in crate::session) fn ready(&self) -> Arc<Notify> {
        self.unwinding.ready()
    }

    /// Gives the kernel half the tables that it has asked for, and those that have been built since.
    pub(in crate::session) fn give(&mut self, kernel: &mut Kernel, followed: &mut Followed) {
        if let Some(wanted) = &mut self.wanted {
            let mut requests = Vec::new();
            wanted.drain(|wanted| requests.push(wanted));
            for TableRequest { object, pid, range } in requests {
                let mapped = followed.object(pid, range);
                // A program maps its libraries next.
                let libraries = match &mapped {
                    Some(program) if range.is_none() => followed.libraries(program),
                    _ => Vec::new(),
                };
                self.unwinding.want(kernel, object, mapped);
                self.unwinding.foresee(kernel, &libraries);
            }
        }
        self.unwinding.take_built(kernel);
    }

    /// The processes `changed` have mapped something, or run another program.
    pub(in crate::session) fn update(&mut self, kernel: &mut Kernel, followed: &Followed, changed: BTreeSet<Pid>) {
        if kernel.tables().finds_mappings() {
            // What the programs remember of the process' addresses may not be there any more.
            changed.into_iter().for_each(|pid| kernel.tables().drop_process(pid));
            return;
        }
        for pid in changed.into_iter().filter(|_| self.takes_stacks) {
            if let Some(image) = followed.image(pid) {
                self.unwinding.update(kernel, pid, image);
            }
        }
    }
}

/// The unwind tables kept on disk. Without them each run builds its own.
fn tables_cache() -> Option<Cache> {
    // SAFETY: the call only reads the process' credentials.
    let user = unsafe { libc::geteuid() };
    let cache = unwind::directory(|name| std::env::var_os(name)).map(|folder| Cache::open(&folder, user));
    match cache? {
        Ok(cache) => Some(cache),
        Err(error) => {
            log::debug!("unwind tables are not kept: {error}");
            None
        }
    }
}
