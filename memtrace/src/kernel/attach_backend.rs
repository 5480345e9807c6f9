//! The two ways of placing programs at instructions.

use std::num::NonZeroU32;
use std::path::Path;

use aya::Ebpf;
use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope};
use memtrace_common::vocabulary::{RETURN_PROGRAM, RETURN_SITE_PROGRAM};

use super::attach::{Scope, Spot};
use super::detach::Held;
use super::error::KernelError;
use super::uprobe_multi::Multi;
use crate::model::FUNCTIONS;

/// How programs are placed, and by what.
pub(super) enum Way<'kernel> {
    /// One link for all places of a program in a file.
    Together(&'kernel mut Multi),
    /// A perf event for each place: any kernel can do it.
    OneByOne(&'kernel mut Ebpf),
}

impl Way<'_> {
    /// Loads the programs of every hooked function.
    pub(super) fn load_all(&mut self) -> Result<(), KernelError> {
        let entries = FUNCTIONS.iter().map(|function| function.signature.entry_program().name);
        entries.chain([RETURN_PROGRAM, RETURN_SITE_PROGRAM]).try_for_each(|name| match self {
            Self::Together(multi) => multi.load(name),
            Self::OneByOne(ebpf) => loaded(ebpf, name).map(drop),
        })
    }

    /// Places the program `name` at `spots` in the file at `path`, and adds to `held` what keeps it there.
    pub(super) fn place(
        &mut self,
        name: &str,
        scope: Scope,
        path: &Path,
        spots: &[Spot],
        held: &mut Vec<Held>,
    ) -> Result<(), KernelError> {
        match self {
            Self::Together(multi) => {
                let link = multi.place(name, scope, path, spots)?;
                held.push(Held::together(link, spots.len()));
            }
            Self::OneByOne(ebpf) => {
                let program = loaded(ebpf, name)?;
                let scope = match scope {
                    Scope::Process(pid) => {
                        UProbeScope::OneProcess(NonZeroU32::new(pid.0).ok_or(KernelError::TargetEnded)?)
                    }
                    Scope::Everyone => UProbeScope::AllProcesses,
                };
                for &Spot { offset, cookie } in spots {
                    let point = UProbeAttachPoint { location: UProbeAttachLocation::AbsoluteOffset(offset.0), cookie };
                    let link = program.attach(point, path, scope).and_then(|id| program.take_link(id));
                    let link = link.map_err(|error| {
                        KernelError::from_error(&format!("place a probe at {} + {offset}", path.display()), &error)
                    })?;
                    held.push(Held::alone(link));
                }
            }
        }
        Ok(())
    }
}

/// The program `name`, loaded now if it was not yet.
fn loaded<'ebpf>(ebpf: &'ebpf mut Ebpf, name: &str) -> Result<&'ebpf mut UProbe, KernelError> {
    let missing = || KernelError::Failed {
        action: format!("use the program {name}"),
        reason: String::from("the kernel half does not have it"),
    };
    let program: &mut UProbe = ebpf.program_mut(name).ok_or_else(missing)?.try_into().map_err(|_| missing())?;
    if program.fd().is_err() {
        program.load().map_err(|error| KernelError::from_load(&format!("load the program {name}"), &error))?;
    }
    Ok(program)
}
