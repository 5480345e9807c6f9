//! Empty programs where memtrace has its own: what the kernel takes for the probes alone.

use std::num::NonZeroU32;
use std::path::Path;

use anyhow::{Context as _, Result};
use aya::Ebpf;
use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeScope};

use crate::probes::{Event, Site};

/// Empty programs in place; they go when this is dropped.
pub(crate) struct Floor {
    ebpf: Ebpf,
}

impl Floor {
    /// Places the programs of `object` in `library`, for `pid` only.
    pub(crate) fn place(object: &Path, library: &Path, pid: u32, sites: &[Site]) -> Result<Self> {
        let mut ebpf = Ebpf::load_file(object).context("cannot load the empty programs")?;
        for name in ["empty_entry", "empty_return"] {
            program(&mut ebpf, name)?.load().with_context(|| format!("cannot load {name}"))?;
        }
        let pid = NonZeroU32::new(pid).context("no process has the pid 0")?;
        for site in sites {
            let name = match site.event {
                Event::Entry => "empty_entry",
                Event::Return => "empty_return",
            };
            program(&mut ebpf, name)?
                .attach(UProbeAttachLocation::AbsoluteOffset(site.probe.offset), library, UProbeScope::OneProcess(pid))
                .with_context(|| format!("cannot place an empty program in {}", site.function))?;
        }
        Ok(Self { ebpf })
    }

    /// The id of the program at the returns.
    pub(crate) fn at_return(&self) -> Result<u32> {
        let program = self.ebpf.program("empty_return").context("there is no program empty_return")?;
        Ok(program.info()?.id())
    }
}

fn program<'ebpf>(ebpf: &'ebpf mut Ebpf, name: &str) -> Result<&'ebpf mut UProbe> {
    let program = ebpf.program_mut(name).with_context(|| format!("there is no program {name}"))?;
    Ok(program.try_into()?)
}
