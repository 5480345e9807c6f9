//! Attaches minimal BPF programs at memtrace's probe sites. They show the cost of the probes alone, and the cost of a
//! stack walk in the kernel.

use std::num::NonZeroU32;
use std::path::Path;

use anyhow::{Context as _, Result};
use aya::Ebpf;
use aya::maps::Array;
use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeScope};

use crate::probes::{Event, ProbeSite};

/// Action of the minimal BPF program at a function's return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReturnAction {
    Nothing,
    /// The kernel walks the stack by frame pointers (`bpf_get_stack`).
    WalkStack,
}

impl ReturnAction {
    const fn program(self) -> &'static str {
        match self {
            Self::Nothing => "empty_return",
            Self::WalkStack => "stack_return",
        }
    }
}

/// Attached BPF programs. Dropping this value detaches them.
pub(crate) struct Floor {
    ebpf: Ebpf,
    return_action: ReturnAction,
}

/// Name of the BPF program at function entries. It does nothing.
const ENTRY_PROGRAM: &str = "empty_entry";

impl Floor {
    /// Attaches the BPF programs of `object` at `sites` in `library`. The probes fire only in process `pid`.
    pub(crate) fn attach(
        object: &Path,
        library: &Path,
        pid: u32,
        sites: &[ProbeSite],
        return_action: ReturnAction,
    ) -> Result<Self> {
        let mut ebpf =
            Ebpf::load_file(object).with_context(|| format!("cannot load BPF programs from {}", object.display()))?;
        for name in [ENTRY_PROGRAM, return_action.program()] {
            program(&mut ebpf, name)?.load().with_context(|| format!("cannot load the BPF program {name}"))?;
        }
        let pid = NonZeroU32::new(pid).context("no process has pid 0")?;
        for site in sites {
            let name = match site.event {
                Event::Entry => ENTRY_PROGRAM,
                Event::Return => return_action.program(),
            };
            program(&mut ebpf, name)?
                .attach(UProbeAttachLocation::AbsoluteOffset(site.probe.offset), library, UProbeScope::OneProcess(pid))
                .with_context(|| format!("cannot attach {name} to {}", site.function))?;
        }
        Ok(Self { ebpf, return_action })
    }

    /// Returns the id of the BPF program at function returns.
    pub(crate) fn return_program_id(&self) -> Result<u32> {
        let name = self.return_action.program();
        let program = self.ebpf.program(name).with_context(|| format!("there is no BPF program {name}"))?;
        Ok(program.info()?.id())
    }

    /// Returns the number of frames of the last stack walk, or `None` if the BPF programs do not walk stacks.
    pub(crate) fn frame_count(&self) -> Result<Option<usize>> {
        if self.return_action == ReturnAction::Nothing {
            return Ok(None);
        }
        let map = self.ebpf.map("STACK").context("there is no BPF map STACK")?;
        let [frames, ..] = Array::<_, [u64; 128]>::try_from(map)?.get(&0, 0)?;
        Ok(Some(usize::try_from(frames)?))
    }
}

fn program<'ebpf>(ebpf: &'ebpf mut Ebpf, name: &str) -> Result<&'ebpf mut UProbe> {
    let program = ebpf.program_mut(name).with_context(|| format!("there is no BPF program {name}"))?;
    Ok(program.try_into()?)
}
