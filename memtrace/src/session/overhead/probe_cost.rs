//! What a probe costs on this machine, measured with probes in memtrace itself.

use std::path::PathBuf;
use std::process;
use std::time::Duration;

use crate::kernel::{Dummy, Kernel, KernelError, Probe, Probes, Scope};
use crate::model::{AbsAddr, AllocatorId, FileOffset, Pid, Signature};
use crate::probe_site::Cost as ProbeCost;
use crate::procfs;
use crate::procfs::{Objects, ProcessError};

/// What a call costs that is probed at its entry and its return, the programs having nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traps {
    /// Where the kernel emulates the probed instruction.
    pub(crate) emulated: Duration,
    /// Where it steps over it.
    pub(crate) stepped: Duration,
}

impl Traps {
    pub(crate) const fn of(self, cost: ProbeCost) -> Duration {
        match cost {
            ProbeCost::Emulated => self.emulated,
            ProbeCost::Stepped => self.stepped,
        }
    }
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// memtrace could not look at itself.
    #[error(transparent)]
    Target(#[from] ProcessError),
    /// The kernel did not place a probe.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// memtrace's own code is in none of its mappings.
    #[error("memtrace cannot find its own code among its mappings")]
    NotFound,
}

/// Measures both kinds. The probes stay in place until `probes` is dropped, which takes a while; nobody calls what they
/// are in.
pub(crate) fn measure(kernel: &mut Kernel, probes: &mut Probes, objects: &mut Objects) -> Result<Traps, Error> {
    let mut time = |dummy: Dummy| {
        let (object, offset) = locate(dummy.address(), objects)?;
        let probe = Probe {
            signature: Signature::Alloc { size: 0 },
            offset,
            return_sites: Vec::new(),
            allocator: AllocatorId::UNKNOWN,
        };
        kernel.place(probes, Scope::Process(own()), &object, &[probe])?;
        Ok::<_, Error>(dummy.time())
    };
    Ok(Traps { emulated: time(Dummy::emulated())?, stepped: time(Dummy::stepped())? })
}

fn own() -> Pid {
    Pid(process::id())
}

/// Where code of memtrace's own lies in its file.
fn locate(address: AbsAddr, objects: &mut Objects) -> Result<(PathBuf, FileOffset), Error> {
    let image = procfs::read_image(own(), objects)?;
    let mapping = image.mapping_at(address).ok_or(Error::NotFound)?;
    let handle = mapping.object.as_ref().and_then(|object| object.handle.clone()).ok_or(Error::NotFound)?;
    Ok((handle, FileOffset(mapping.offset.0 + (address.0 - mapping.start.0))))
}
