//! References of pages: the accessed bits of the page tables, and the referenced flags of the pages.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use memtrace_model::{Bytes, Pid};

use super::error::ProcessError;
use super::process::{failure, proc_path};
use crate::procfs::kernel_files;

/// Values of `clear_refs` (`enum clear_refs_types`, fs/proc/task_mmu.c).
const CLEAR_ALL: &[u8] = b"1";
const CLEAR_SOFT_DIRTY: &[u8] = b"4";

/// Clears the references of all pages that a process has mapped. References after the return are seen.
///
/// The kernel clears the accessed bits without a TLB flush (`clear_refs_pte_range`). A processor with a TLB entry for a
/// page would not set the bit again. When the kernel clears the soft-dirty bits, it flushes the TLBs of the address
/// space (`clear_refs_write`), and leaves the accessed bits alone.
///
/// # Errors
///
/// The process has exited, or permission is missing: `clear_refs` belongs to the owner of the process.
pub fn clear_references(pid: Pid) -> Result<(), ProcessError> {
    clear(pid, &[CLEAR_ALL, CLEAR_SOFT_DIRTY])
}

/// Clears the soft-dirty bits of all pages that a process has mapped, and flushes its TLB entries. The flush happens
/// even on kernels without soft-dirty bits.
///
/// # Errors
///
/// The process has exited, or permission is missing.
pub(super) fn clear_soft_dirty(pid: Pid) -> Result<(), ProcessError> {
    clear(pid, &[CLEAR_SOFT_DIRTY])
}

fn clear(pid: Pid, values: &'static [&'static [u8]]) -> Result<(), ProcessError> {
    let path = proc_path(pid, "clear_refs");
    let write = |path: &Path| {
        let mut file = File::options().write(true).open(path)?;
        values.iter().try_for_each(|value| file.write_all(value))
    };
    kernel_files::access(&path, write).map_err(|error| failure(pid, &path, error))
}

/// Returns true if the kernel has the file `clear_refs` (`CONFIG_PROC_PAGE_MONITOR`).
#[must_use]
pub fn has_clear_refs() -> bool {
    fs::exists("/proc/self/clear_refs").unwrap_or(false)
}

/// Returns the size of transparent huge pages; 0 if the kernel has none.
#[must_use]
pub fn huge_page_size() -> Bytes {
    let text = kernel_files::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    Bytes(text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0))
}
