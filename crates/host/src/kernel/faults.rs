//! Programs that record page faults.

use aya::programs::PerfEvent;
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::util::online_cpus;

use super::bpf::Bpf;
use super::error::KernelError;

/// Attaches the programs to the tracepoints of page faults, or to the perf event of page faults if `page_fault_user`
/// cannot be used. Major faults have a perf event only.
pub(super) fn attach(bpf: &mut Bpf) -> Result<(), KernelError> {
    // The program for major faults is attached last: it expects that the fault has been recorded before.
    match bpf.attach_tracepoint("page_fault_user", "page_fault_user") {
        Ok(()) => {
            bpf.attach_tracepoint("page_fault_kernel", "page_fault_kernel")?;
        }
        Err(error) => {
            log::info!("page faults are recorded by their perf event: {error}");
            attach_event(bpf, "page_fault", SoftwareEvent::PageFaults)?;
        }
    }
    attach_event(bpf, "page_fault_major", SoftwareEvent::PageFaultsMaj)
}

fn attach_event(bpf: &mut Bpf, name: &str, event: SoftwareEvent) -> Result<(), KernelError> {
    let action = format!("attach to {event:?}");
    let failed = |error| KernelError::from_error(&action, &error);
    let program: &mut PerfEvent = bpf.program(name)?;
    program.load().map_err(|error| KernelError::from_load(&action, &error))?;
    let cpus = online_cpus()
        .map_err(|(path, source)| KernelError::from_io(&action, source, format!("{path} cannot be read")))?;
    for cpu in cpus {
        let scope = PerfEventScope::AllProcessesOneCpu { cpu };
        program.attach(PerfEventConfig::Software(event), scope, SamplePolicy::Period(1), false).map_err(failed)?;
    }
    Ok(())
}
