//! Empty programs where memtrace has its own: what the kernel takes for the probes alone, and for walking a stack.

use std::num::NonZeroU32;
use std::path::Path;

use anyhow::{Context as _, Result};
use aya::Ebpf;
use aya::maps::Array;
use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeScope};

use crate::probes::{Event, Site};

/// What is done at a function's return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtReturn {
    /// Nothing.
    Nothing,
    /// The kernel walks the stack along frame pointers.
    Stack,
}

impl AtReturn {
    const fn program(self) -> &'static str {
        match self {
            Self::Nothing => "empty_return",
            Self::Stack => "stack_return",
        }
    }
}

/// Programs in place; they go when this is dropped.
pub(crate) struct Floor {
    ebpf: Ebpf,
    at_return: AtReturn,
}

/// At entries nothing is ever done.
const AT_ENTRY: &str = "empty_entry";

impl Floor {
    /// Places the programs of `object` in `library`, for `pid` only.
    pub(crate) fn place(object: &Path, library: &Path, pid: u32, sites: &[Site], at_return: AtReturn) -> Result<Self> {
        let mut ebpf = Ebpf::load_file(object).context("cannot load the programs of the floor")?;
        for name in [AT_ENTRY, at_return.program()] {
            program(&mut ebpf, name)?.load().with_context(|| format!("cannot load {name}"))?;
        }
        let pid = NonZeroU32::new(pid).context("no process has the pid 0")?;
        for site in sites {
            let name = match site.event {
                Event::Entry => AT_ENTRY,
                Event::Return => at_return.program(),
            };
            program(&mut ebpf, name)?
                .attach(UProbeAttachLocation::AbsoluteOffset(site.probe.offset), library, UProbeScope::OneProcess(pid))
                .with_context(|| format!("cannot place a program in {}", site.function))?;
        }
        Ok(Self { ebpf, at_return })
    }

    /// The id of the program at the returns.
    pub(crate) fn at_return(&self) -> Result<u32> {
        let program = self.ebpf.program(self.at_return.program()).context("there is no program at the returns")?;
        Ok(program.info()?.id())
    }

    /// How many frames the last walk gave; `None` where none is made.
    pub(crate) fn frames(&self) -> Result<Option<usize>> {
        if self.at_return == AtReturn::Nothing {
            return Ok(None);
        }
        let map = self.ebpf.map("STACK").context("there is no map of the stack")?;
        let [frames, ..] = Array::<_, [u64; 128]>::try_from(map)?.get(&0, 0)?;
        Ok(Some(usize::try_from(frames)?))
    }
}

fn program<'ebpf>(ebpf: &'ebpf mut Ebpf, name: &str) -> Result<&'ebpf mut UProbe> {
    let program = ebpf.program_mut(name).with_context(|| format!("there is no program {name}"))?;
    Ok(program.try_into()?)
}
