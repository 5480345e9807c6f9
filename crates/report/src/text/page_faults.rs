//! Lines of the totals about page faults: traced faults, and the kernel's counters.

use std::io;

use memtrace_model::format as number;
use memtrace_model::{Measure, Profile, Quantity};

use crate::estimate;
use crate::kernel_reported::KernelReported;

/// Writes the number of traced major faults, and the page faults as the kernel counts them, if known.
pub(super) fn write(profile: &Profile, out: &mut dyn io::Write) -> io::Result<()> {
    let major = profile.stacks.iter().map(|stack| stack.usage[Quantity::MajorFaults]).sum::<u64>();
    let error = estimate::format_error(estimate::count_error(profile, major), Measure::Count);
    let waited = number::grouped(major);
    writeln!(out, "  {:<10}{waited:>12}{error} of the touches waited for I/O (major faults)", "waited")?;
    let Some(faults) = KernelReported::of_all(profile).faults else {
        return Ok(());
    };
    let [all, major] = [faults.total(), faults.major].map(number::grouped);
    writeln!(out, "  {:<10}{all:>12} page faults as the kernel counts them, {major} of them major", "counted")
}
