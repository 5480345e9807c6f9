//! Probes in place: a breakpoint for every hooked function, in one process.

use std::num::NonZeroU32;
use std::path::Path;
use std::thread;

use aya::Ebpf;
use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeLink, UProbeScope};
use memtrace_common::vocabulary::RETURN_PROGRAM;

use super::error::KernelError;
use crate::model::{FUNCTIONS, FileOffset, Pid, Shape};

/// Where to probe one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// How the function is called.
    pub shape: Shape,
    /// The instruction, in the object's file.
    pub offset: FileOffset,
}

/// Probes in place. They go when this is dropped, and with the process that holds it, however that ends.
#[derive(Default)]
pub struct Probes(Vec<UProbeLink>);

/// Removing a probe waits for the kernel's grace periods, about 30 ms each; so many are waited for at once.
const REMOVERS: usize = 16;

impl Probes {
    /// How many probes are in place.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Places probes in the object at `path`, for `pid` only.
    pub(super) fn place(
        &mut self,
        ebpf: &mut Ebpf,
        pid: Pid,
        path: &Path,
        probes: &[Probe],
    ) -> Result<(), KernelError> {
        for probe in probes {
            let Some(entry) = probe.shape.entry_program() else { continue };
            // The return first, lest a call be remembered whose return is not seen.
            if probe.shape.needs_return() {
                self.place_one(ebpf, RETURN_PROGRAM, pid, path, probe.offset)?;
            }
            self.place_one(ebpf, entry, pid, path, probe.offset)?;
        }
        Ok(())
    }

    fn place_one(
        &mut self,
        ebpf: &mut Ebpf,
        name: &str,
        pid: Pid,
        path: &Path,
        offset: FileOffset,
    ) -> Result<(), KernelError> {
        let action = format!("place a probe at {} + {offset}", path.display());
        let failed = |error: &(dyn std::error::Error + 'static)| KernelError::from_error(&action, error);
        let program = loaded(ebpf, name)?;
        let Some(pid) = NonZeroU32::new(pid.0) else { return Err(KernelError::TargetEnded) };
        let location = UProbeAttachLocation::AbsoluteOffset(offset.0);
        let link = program
            .attach(location, path, UProbeScope::OneProcess(pid))
            .and_then(|id| program.take_link(id))
            .map_err(|error| failed(&error))?;
        self.0.push(link);
        Ok(())
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        let mut links = std::mem::take(&mut self.0);
        let share = links.len().div_ceil(REMOVERS).max(1);
        thread::scope(|scope| {
            while !links.is_empty() {
                let part = links.split_off(links.len().saturating_sub(share));
                scope.spawn(move || drop(part));
            }
        });
    }
}

/// Loads the programs of every hooked function.
pub(super) fn load_all(ebpf: &mut Ebpf) -> Result<(), KernelError> {
    let entries = FUNCTIONS.iter().filter_map(|function| function.shape.entry_program());
    entries.chain([RETURN_PROGRAM]).try_for_each(|name| loaded(ebpf, name).map(drop))
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
