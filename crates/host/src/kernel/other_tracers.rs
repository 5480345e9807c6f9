//! Other tracers with probes in the functions that memtrace probes. At each call, the target pays for all of them.
//!
//! The kernel shows the uprobes of BPF links to processes with `CAP_SYS_ADMIN` (`bpf_link_get_info_by_fd`,
//! kernel/bpf/syscall.c). Programs that are attached to a perf event without a link are not shown.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aya_obj::generated::bpf_cmd::{BPF_LINK_GET_FD_BY_ID, BPF_LINK_GET_NEXT_ID};
use memtrace_model::{Comm, Pid};

use super::bpf_syscall::{LinkProbes, link_probes, next_id, open_by_id};
use super::memtraces::{can_trace, programs};
use super::uprobe_multi::Link;
use crate::procfs::{self, HeldObjects};

/// Maximum number of BPF links of the machine that are examined.
const MAX_LINKS: usize = 1 << 13;

/// Maximum number of probes of a link that are examined.
const MAX_PROBES: usize = 1 << 16;

/// Time limit for each of the two searches: for links with probes, and for the processes that hold them.
const TIME: Duration = Duration::from_millis(500);

/// Tracer of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherTracer {
    pub pid: Pid,
    pub comm: Comm,
    /// True for another memtrace.
    pub is_memtrace: bool,
}

/// Other tracers with probes in functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherTracers {
    /// Processes that hold BPF links with such probes.
    pub processes: Vec<OtherTracer>,
    /// Number of BPF links with such probes that no visible process holds, such as pinned links. If `is_cut` is true, a process
    /// that was not examined can hold them.
    pub pinned: u64,
    /// Number of such uprobes that tracefs defines. They cost only while they are enabled.
    pub events: u64,
    /// Number of BPF links with uprobes that the kernel does not show, before Linux 6.8.
    pub hidden: u64,
    /// True if there can be more tracers, because there was not enough time, or there were too many links.
    pub is_cut: bool,
}

impl OtherTracers {
    /// Finds the tracers with probes in `functions`: paths of objects, each with the file offsets of its functions. Probes for a
    /// single process count if `is_target` accepts the process. For the probe of a perf event, the kernel does not show the
    /// process, so the probe counts.
    ///
    /// # Errors
    ///
    /// Errors of bpf(2), such as `EPERM` without `CAP_SYS_ADMIN`, and of reading `/proc`.
    pub fn find<'a>(
        functions: impl Iterator<Item = (&'a Path, &'a [Range<u64>])>,
        is_target: impl Fn(Pid) -> bool,
    ) -> io::Result<Self> {
        let functions = Functions::new(functions);
        // The links of memtrace itself do not count: they are for measurements of the cost of a probe hit.
        let own = HeldObjects::of(Pid(std::process::id()))?.links;
        let (mut found, links) = links(&functions, &own, is_target)?;
        let is_in = |(path, offset): &(PathBuf, u64)| functions.contain(path, &[*offset]);
        found.events = procfs::uprobe_events().iter().filter(|&event| is_in(event)).count() as u64;
        if !links.is_empty() {
            found.add_holders(&links)?;
        }
        Ok(found)
    }

    /// Adds the processes that hold `links`.
    fn add_holders(&mut self, links: &BTreeSet<u32>) -> io::Result<()> {
        let start = Instant::now();
        // Without the ids of the programs, the processes are shown too, but not as memtraces.
        let programs = programs().unwrap_or_default();
        let own = Pid(std::process::id());
        let mut free = links.clone();
        for process in procfs::all_credentials()?.iter().filter(|process| process.pid != own && can_trace(process)) {
            if start.elapsed() > TIME {
                self.is_cut = true;
                break;
            }
            let Ok(held) = HeldObjects::of(process.pid) else { continue };
            if held.links.is_disjoint(links) {
                continue;
            }
            free.retain(|link| !held.links.contains(link));
            if let Some(comm) = procfs::comm(process.pid) {
                let is_memtrace = !held.programs.is_disjoint(&programs);
                self.processes.push(OtherTracer { pid: process.pid, comm: comm.into(), is_memtrace });
            }
        }
        self.pinned = free.len() as u64;
        Ok(())
    }
}

/// Functions of objects.
struct Functions<'a>(Vec<(PathBuf, &'a [Range<u64>])>);

impl<'a> Functions<'a> {
    /// Replaces the handle of an open file by the path of the file, because the kernel shows this path for a probe.
    fn new(functions: impl Iterator<Item = (&'a Path, &'a [Range<u64>])>) -> Self {
        let shown = |path: &Path| procfs::opened_path(path).unwrap_or_else(|| path.to_owned());
        Self(functions.map(|(path, ranges)| (shown(path), ranges)).collect())
    }

    /// Returns true if one of the offsets in the file at `path` is in a function.
    fn contain(&self, path: &Path, offsets: &[u64]) -> bool {
        let mut ranges = self.0.iter().filter(|(object, _)| object == path).flat_map(|(_, ranges)| ranges.iter());
        ranges.any(|range| offsets.iter().any(|offset| range.contains(offset)))
    }
}

/// Returns the links with probes in `functions`, except the links in `own`. The first part of the result has the number
/// of hidden links, and whether the search was cut.
fn links(
    functions: &Functions<'_>,
    own: &BTreeSet<u32>,
    is_target: impl Fn(Pid) -> bool,
) -> io::Result<(OtherTracers, BTreeSet<u32>)> {
    let (mut found, mut links) = (OtherTracers::default(), BTreeSet::new());
    let (start, mut last) = (Instant::now(), 0);
    for _ in 0..MAX_LINKS {
        let Some(id) = next_id(BPF_LINK_GET_NEXT_ID, last)? else { return Ok((found, links)) };
        last = id;
        if start.elapsed() > TIME {
            break;
        }
        if own.contains(&id) {
            continue;
        }
        // The link can have been removed.
        let Ok(link) = open_by_id(BPF_LINK_GET_FD_BY_ID, id) else { continue };
        match link_probes(link.as_fd(), MAX_PROBES) {
            Ok(LinkProbes::None) => continue,
            Ok(LinkProbes::Hidden) => found.hidden += 1,
            Ok(LinkProbes::Known { pid, path, offsets }) => {
                if functions.contain(&path, &offsets) && pid.is_none_or(&is_target) {
                    links.insert(id);
                }
            }
            Err(error) => log::debug!("BPF link {id}: {error}"),
        }
        // If the tracer has ended in the meantime, this close removes the probes of the link.
        drop(Link::from(link));
    }
    found.is_cut = true;
    Ok((found, links))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_in_functions_of_the_same_file_only() {
        let (malloc, free) = ([100..150, 200..201], [10..20, 30..31]);
        let functions = [(Path::new("/lib/a.so"), &malloc[..]), (Path::new("/lib/b.so"), &free[..])];
        let functions = Functions::new(functions.into_iter());
        let contain = |path: &str, offsets: &[u64]| functions.contain(path.as_ref(), offsets);
        assert!(contain("/lib/a.so", &[5, 149]) && contain("/lib/a.so", &[200]) && contain("/lib/b.so", &[10]));
        assert!(
            !contain("/lib/a.so", &[99, 150, 201]) && !contain("/lib/b.so", &[100]) && !contain("/lib/c.so", &[10])
        );
        assert!(!contain("/lib/a.so", &[]));
    }
}
