//! Cost of a probe hit on this machine, measured with probes in memtrace itself.

use std::path::PathBuf;
use std::process;
use std::time::Duration;

use memtrace_host::kernel::{CalibrationFunction, Kernel, KernelError, Probe, Probes, Scope};
use memtrace_host::procfs;
use memtrace_host::procfs::{Objects, ProcessError};
use memtrace_model::{AbsAddr, AllocatorId, FileOffset, Pid, Signature};
use memtrace_object::probe_site::Cost as SiteCost;

/// Duration of a call with probes at its entry and its return, without the work of the BPF programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeCost {
    /// Duration if the kernel emulates the probed instruction.
    pub(crate) emulated: Duration,
    /// Duration if the kernel single-steps the probed instruction.
    pub(crate) stepped: Duration,
}

/// Share of the entry probe in the cost of an entry and a return probe. See the guide's overhead tables.
const ENTRY_PART: f64 = 0.6;

impl ProbeCost {
    /// Returns the cost of a call with probes at its entry and its return.
    pub(crate) const fn per_call(self, site: SiteCost) -> Duration {
        match site {
            SiteCost::Emulated => self.emulated,
            SiteCost::Stepped => self.stepped,
        }
    }

    /// Returns the cost of a call with one probe at a result site. The kernel emulates the instruction there.
    pub(crate) fn at_result_site(self) -> Duration {
        self.without_return(SiteCost::Emulated)
    }

    /// Returns the cost of a call that has only an entry probe.
    pub(crate) fn without_return(self, site: SiteCost) -> Duration {
        self.per_call(site).saturating_sub(self.at_return())
    }

    /// Returns the cost of a return probe.
    pub(crate) fn at_return(self) -> Duration {
        self.emulated.mul_f64(1.0 - ENTRY_PART)
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Target(#[from] ProcessError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error("none of memtrace's own mappings contains its code")]
    NotMapped,
    #[error("the kernel finds no memory for a probe in memtrace")]
    NoMemory,
}

/// Measures the cost of a call if the kernel emulates the probed instruction, and if it single-steps the instruction.
///
/// Detaching takes a while, so the probes stay in `probes`. The probed functions are not called again.
pub(crate) fn measure(kernel: &mut Kernel, probes: &mut Probes, objects: &mut Objects) -> Result<ProbeCost, Error> {
    let mut time = |dummy: CalibrationFunction| {
        let (object, offset) = locate(dummy.address(), objects)?;
        let probe = Probe {
            signature: Signature::Alloc { size: 0 },
            offset,
            return_sites: Vec::new(),
            function: None,
            allocator: AllocatorId::UNKNOWN,
            has_sizes: false,
            is_leaf: false,
            loaded_word: None,
            results: None,
        };
        let scope = Scope::Process(own_pid());
        kernel.attach(probes, scope, &object, &[probe])?;
        if probes.is_waiting(scope, &object) {
            return Err(Error::NoMemory);
        }
        Ok::<_, Error>(dummy.time())
    };
    Ok(ProbeCost { emulated: time(CalibrationFunction::emulated())?, stepped: time(CalibrationFunction::stepped())? })
}

fn own_pid() -> Pid {
    Pid(process::id())
}

/// Returns the handle of the file that memtrace has mapped at `address`, and the file offset of the address.
fn locate(address: AbsAddr, objects: &mut Objects) -> Result<(PathBuf, FileOffset), Error> {
    let image = procfs::read_image(own_pid(), objects)?;
    let mapping = image.mapping_at(address).ok_or(Error::NotMapped)?;
    let handle = mapping.object.as_ref().and_then(|object| object.handle.clone()).ok_or(Error::NotMapped)?;
    Ok((handle, FileOffset(mapping.offset.0 + (address.0 - mapping.start.0))))
}
