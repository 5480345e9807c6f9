//! Programs that record page faults.

use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::{FEntry, FExit, PerfEvent};
use aya::util::online_cpus;
use aya::{Btf, Endianness};

use super::bpf::Bpf;
use super::error::KernelError;
use crate::procfs;

/// Attaches the programs to the tracepoints of page faults, or to the perf event of page faults if `page_fault_user`
/// cannot be used. Major faults have a perf event only.
pub(super) fn attach(bpf: &mut Bpf) -> Result<(), KernelError> {
    // The program for major faults is attached last: it expects that the program for all faults has already recorded the fault.
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

/// Program that stores the begin of a fault. If the kernel skips the program, no record is missing.
pub(super) const HUGE_PAGE_BEGIN: &str = "huge_page_begin";

/// Function that maps a huge page at a fault (mm/huge_memory.c).
const MAPS_HUGE_PAGE: &str = "do_huge_pmd_anonymous_page";

/// Function that handles a write to a huge page that is not writable (mm/huge_memory.c).
const WRITES_HUGE_PAGE: &str = "do_huge_pmd_wp_page";

/// Programs that record huge pages, with their functions.
const HUGE_PAGE_PROGRAMS: [(&str, &str); 2] = [("huge_page_write", WRITES_HUGE_PAGE), ("huge_page", MAPS_HUGE_PAGE)];

/// Attaches the programs that record huge pages to the kernel functions that map them, either all programs or none.
///
/// # Errors
///
/// The kernel's error if it has no such functions, or cannot attach to functions. On arm64, Linux can attach to functions since
/// 6.4 (`HAVE_DYNAMIC_FTRACE_WITH_DIRECT_CALLS`).
pub(super) fn attach_huge_pages(bpf: &mut Bpf) -> Result<(), KernelError> {
    let attached = try_attach_huge_pages(bpf);
    if attached.is_err() {
        // If one program stayed attached, the pages that it records would be counted again at their faults.
        unload_huge_pages(bpf);
    }
    attached
}

fn try_attach_huge_pages(bpf: &mut Bpf) -> Result<(), KernelError> {
    const ACTION: &str = "record huge pages at their faults";
    let types = Btf::parse_file(procfs::kernel_btf(), Endianness::default())
        .map_err(|error| KernelError::from_error(ACTION, &error))?;
    for (name, function) in HUGE_PAGE_PROGRAMS {
        let program: &mut FExit = bpf.program(name)?;
        program.load(function, &types).map_err(|error| KernelError::from_load(ACTION, &error))?;
    }
    let begin: &mut FEntry = bpf.program(HUGE_PAGE_BEGIN)?;
    begin.load(MAPS_HUGE_PAGE, &types).map_err(|error| KernelError::from_load(ACTION, &error))?;
    begin.attach().map_err(|error| KernelError::from_error(ACTION, &error))?;
    for (name, _) in HUGE_PAGE_PROGRAMS {
        let program: &mut FExit = bpf.program(name)?;
        program.attach().map_err(|error| KernelError::from_error(ACTION, &error))?;
    }
    Ok(())
}

/// Detaches the programs that record huge pages, and unloads them.
fn unload_huge_pages(bpf: &mut Bpf) {
    for (name, _) in HUGE_PAGE_PROGRAMS {
        let program: Result<&mut FExit, _> = bpf.program(name);
        // A program that is not loaded returns an error.
        let _ = program.map(FExit::unload);
    }
    let begin: Result<&mut FEntry, _> = bpf.program(HUGE_PAGE_BEGIN);
    let _ = begin.map(FEntry::unload);
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

#[cfg(test)]
mod tests {
    use memtrace_model::Bytes;

    use super::*;
    use crate::kernel::{Kernel, MapSizes, Options};

    fn kernel() -> Kernel {
        let options = Options { map_sizes: MapSizes::FULL, max_depth: 1, max_size: Bytes(1), ..Options::default() };
        Kernel::load(&options).unwrap().0
    }

    /// Returns the number of loaded programs that record huge pages.
    fn loaded(bpf: &Bpf) -> usize {
        bpf.programs().filter(|(name, program)| name.starts_with("huge_page") && program.fd().is_ok()).count()
    }

    #[test]
    fn privileged_failed_attach_leaves_no_program_of_huge_pages() {
        let mut kernel = kernel();
        let bpf = kernel.bpf();
        let types = Btf::parse_file(procfs::kernel_btf(), Endianness::default()).unwrap();
        // `begin` cannot be loaded twice, so the attachment fails after it has loaded the other programs.
        let begin: &mut FEntry = bpf.program(HUGE_PAGE_BEGIN).unwrap();
        let is_permitted = begin.load(MAPS_HUGE_PAGE, &types).is_ok();
        assert_eq!(loaded(bpf), usize::from(is_permitted));
        assert!(attach_huge_pages(bpf).is_err());
        assert_eq!(loaded(bpf), 0);
    }

    #[test]
    fn privileged_programs_of_huge_pages_are_loaded_together() {
        let mut kernel = kernel();
        let bpf = kernel.bpf();
        match attach_huge_pages(bpf) {
            Ok(()) => assert_eq!(loaded(bpf), 3),
            Err(error) => assert_eq!(loaded(bpf), 0, "{error}"),
        }
        unload_huge_pages(bpf);
        assert_eq!(loaded(bpf), 0);
    }
}
