//! Touches of pages, followed.

use aya::programs::PerfEvent;
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::util::online_cpus;

use super::error::KernelError;
use super::load::Kernel;

/// Has touches of pages told of from now on.
///
/// # Errors
///
/// What the kernel said.
pub(super) fn follow(kernel: &mut Kernel) -> Result<(), KernelError> {
    // Who has a page's touches told of before its waiting sees no page that waited and was not touched.
    match kernel.follow_tracepoint("page_fault_user", "page_fault_user") {
        Ok(()) => {
            // What the kernel touches for a process takes Linux 5.15 to be seen with its stack.
            if let Err(error) = kernel.follow_tracepoint("page_fault_kernel", "page_fault_kernel") {
                log::warn!("pages that the kernel touches for a process have no stack: {error}");
            }
        }
        Err(error) => {
            log::info!("page faults are told of by their perf event: {error}");
            follow_event(kernel, "page_fault", SoftwareEvent::PageFaults)?;
        }
    }
    follow_event(kernel, "page_fault_major", SoftwareEvent::PageFaultsMaj)
}

fn follow_event(kernel: &mut Kernel, name: &str, event: SoftwareEvent) -> Result<(), KernelError> {
    let action = format!("follow {event:?}");
    let failed = |error| KernelError::from_error(&action, &error);
    let program: &mut PerfEvent = kernel.program(name)?;
    program.load().map_err(|error| KernelError::from_load(&action, &error))?;
    let processors = online_cpus()
        .map_err(|(path, source)| KernelError::from_io(&action, source, format!("{path} cannot be read")))?;
    for cpu in processors {
        let scope = PerfEventScope::AllProcessesOneCpu { cpu };
        program.attach(PerfEventConfig::Software(event), scope, SamplePolicy::Period(1), false).map_err(failed)?;
    }
    Ok(())
}
