//! Probes in place: a breakpoint for every hooked function, in one process.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};
use memtrace_common::vocabulary::{Program, RETURN_PROGRAM, RETURN_SITE_PROGRAM};

use super::error::KernelError;
use crate::model::{FUNCTIONS, FileOffset, Pid, Shape};

/// Where to probe one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// How the function is called.
    pub shape: Shape,
    /// The instruction, in the object's file.
    pub offset: FileOffset,
    /// The function's return instructions, where the return address must stay as it is: an exception that passes a
    /// function whose return the kernel has probed does not find its handler. Empty: the return is probed by the kernel.
    pub return_sites: Vec<FileOffset>,
}

/// Probes in place. They go when this is dropped, and with the process that holds it, however that ends.
///
/// Each takes the kernel about a tenth of a second to remove, one after the other (`perf_uprobe_destroy`,
/// kernel/trace/trace_event_perf.c, waits for grace periods with a mutex held), however many threads ask for it.
#[derive(Default)]
pub struct Probes {
    links: Vec<UProbeLink>,
    /// What was placed where, so that nothing is placed twice.
    placed: HashSet<Place>,
}

/// A program at an instruction of an object, for one process.
#[derive(PartialEq, Eq, Hash)]
struct Place {
    pid: Pid,
    object: PathBuf,
    offset: FileOffset,
    program: &'static str,
}

/// What a program needs to be placed at.
struct At<'a> {
    pid: Pid,
    path: &'a Path,
    offset: FileOffset,
}

impl Probes {
    /// How many probes are in place.
    #[must_use]
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Places a probe at the entry of one function of the object at `path`, for `pid` only.
    pub(super) fn place_entry(
        &mut self,
        ebpf: &mut Ebpf,
        pid: Pid,
        path: &Path,
        probe: &Probe,
    ) -> Result<(), KernelError> {
        self.place_one(ebpf, probe.shape.entry_program(), &At { pid, path, offset: probe.offset })
    }

    /// Places those probes in the object at `path`, for `pid` only, that are not in place yet.
    pub(super) fn place(
        &mut self,
        ebpf: &mut Ebpf,
        pid: Pid,
        path: &Path,
        probes: &[Probe],
    ) -> Result<(), KernelError> {
        for probe in probes {
            if probe.shape.needs_return() && probe.return_sites.is_empty() {
                let program = Program { name: RETURN_PROGRAM, cookie: None };
                self.place_one(ebpf, program, &At { pid, path, offset: probe.offset })?;
            }
            for &offset in &probe.return_sites {
                let program = Program { name: RETURN_SITE_PROGRAM, cookie: None };
                self.place_one(ebpf, program, &At { pid, path, offset })?;
            }
            self.place_entry(ebpf, pid, path, probe)?;
        }
        Ok(())
    }

    fn place_one(&mut self, ebpf: &mut Ebpf, program: Program, at: &At<'_>) -> Result<(), KernelError> {
        let At { pid, path, offset } = *at;
        let place = Place { pid, object: path.to_owned(), offset, program: program.name };
        if self.placed.contains(&place) {
            return Ok(());
        }
        let action = format!("place a probe at {} + {offset}", path.display());
        let failed = |error: &(dyn std::error::Error + 'static)| KernelError::from_error(&action, error);
        let loaded = loaded(ebpf, program.name)?;
        let Some(pid) = NonZeroU32::new(pid.0) else { return Err(KernelError::TargetEnded) };
        let location = UProbeAttachLocation::AbsoluteOffset(offset.0);
        let cookie = program.cookie.map(|cookie| cookie.0);
        let link = loaded
            .attach(UProbeAttachPoint { location, cookie }, path, UProbeScope::OneProcess(pid))
            .and_then(|id| loaded.take_link(id))
            .map_err(|error| failed(&error))?;
        self.links.push(link);
        self.placed.insert(place);
        Ok(())
    }
}

/// Loads the programs of every hooked function.
pub(super) fn load_all(ebpf: &mut Ebpf) -> Result<(), KernelError> {
    let entries = FUNCTIONS.iter().map(|function| function.shape.entry_program().name);
    entries.chain([RETURN_PROGRAM, RETURN_SITE_PROGRAM]).try_for_each(|name| loaded(ebpf, name).map(drop))
}

/// The program `name`, loaded now if it was not yet.
fn loaded<'ebpf>(ebpf: &'ebpf mut Ebpf, name: &str) -> Result<&'ebpf mut UProbe, KernelError> {
    let program = program(ebpf, name)?;
    if program.fd().is_err() {
        program.load().map_err(|error| KernelError::from_load(&format!("load the program {name}"), &error))?;
    }
    Ok(program)
}

fn program<'ebpf>(ebpf: &'ebpf mut Ebpf, name: &str) -> Result<&'ebpf mut UProbe, KernelError> {
    let missing = || KernelError::Failed {
        action: format!("use the program {name}"),
        reason: String::from("the kernel half does not have it"),
    };
    ebpf.program_mut(name).ok_or_else(missing)?.try_into().map_err(|_| missing())
}
