//! Probes of one allocator.

use std::ops::Range;
use std::path::PathBuf;

use memtrace_host::kernel::{Kernel, KernelError, LoadedWordSite, Probe, Probes, ResultCookie, ResultProbes, Scope};
use memtrace_model::{AllocatorId, FUNCTIONS, FileOffset, Function, Pid};
use memtrace_object::allocators::{Allocator, FunctionResult, FunctionResults, HookedFunction};
use memtrace_object::probe_site::{self, Cost as SiteCost, GeneralRegister, LoadedWord};

use super::config::ProbeSite;
use crate::run_kit::error::{Error, from_engines};
use crate::run_kit::start_progress::StartProgress;

/// Probes of one allocator in one process, or in all processes.
pub(crate) struct AllocatorProbes {
    /// Process that log and error messages name.
    pub(crate) pid: Pid,
    pub(crate) scope: Scope,
    pub(crate) object: PathBuf,
    /// Probe of each hooked function, with the cost of a hit.
    pub(crate) probes: Vec<(Probe, SiteCost)>,
    /// File offsets of each hooked function.
    pub(crate) functions: Vec<Range<u64>>,
}

impl AllocatorProbes {
    /// Returns the probes of all functions of `allocator`; `None` if its file is not open.
    pub(crate) fn new(
        pid: Pid,
        scope: Scope,
        allocator: &Allocator,
        id: AllocatorId,
        probe_site: ProbeSite,
    ) -> Option<Self> {
        let object = allocator.object.handle.clone()?;
        let has_sizes = allocator.kinds.have_glibc_chunks();
        let probe = |found: &HookedFunction| {
            let summary = found.summary(&allocator.object.path);
            let (offset, cost) = match probe_site {
                ProbeSite::Best | ProbeSite::Return => {
                    log::debug!("process {pid}: {summary}: {}", found.site.reason);
                    (found.site.file_offset, found.site.cost)
                }
                ProbeSite::Entry => {
                    log::debug!("process {pid}: at the entry (--probe-site entry) instead of {summary}");
                    // The best site is the entry whenever the kernel emulates the entry's instruction.
                    let cost = if found.site.offset == 0 { found.site.cost } else { SiteCost::Stepped };
                    (found.file_offset, cost)
                }
            };
            let (signature, return_sites) = (found.signature, found.return_sites.clone());
            let loaded_word = found.loaded_word.map(|LoadedWord { offset, register, lowered }| LoadedWordSite {
                offset: FileOffset(found.file_offset.0 + offset),
                register,
                lowered,
            });
            let results = match (probe_site, &found.results) {
                (ProbeSite::Best, Some(Ok(results))) => Some(result_probes(results)),
                _ => None,
            };
            let is_leaf = found.functions.iter().all(|function| function.is_leaf());
            let function = number_of(found.function());
            let allocator = id;
            let probe = Probe {
                signature,
                offset,
                return_sites,
                allocator,
                function,
                has_sizes,
                is_leaf,
                loaded_word,
                results,
            };
            (probe, cost)
        };
        let extent = |found: &HookedFunction| {
            let start = found.file_offset.0;
            start..start.saturating_add(found.size.0.max(1))
        };
        let functions = allocator.functions.iter().map(extent).collect();
        Some(Self { pid, scope, object, probes: allocator.functions.iter().map(probe).collect(), functions })
    }

    /// Attaches the probes of `allocators`, except those that are already attached.
    pub(crate) fn place_all<'a>(
        allocators: impl Iterator<Item = &'a Self> + Clone,
        kernel: &mut Kernel,
        probes: &mut Probes,
        progress: &StartProgress,
    ) -> Result<(), Error> {
        let functions: usize = allocators.clone().map(|allocator| allocator.probes.len()).sum();
        let mut done = 0;
        for allocator in allocators {
            progress.set(done, functions);
            allocator.place(kernel, probes).map_err(|error| from_engines::kernel(Some(allocator.pid), error))?;
            done += allocator.probes.len();
        }
        Ok(())
    }

    /// Attaches the probes, except those that are already attached.
    pub(crate) fn place(&self, kernel: &mut Kernel, probes: &mut Probes) -> Result<(), KernelError> {
        let new: Vec<_> = self.probes.iter().map(|(probe, _)| probe.clone()).collect();
        kernel.attach(probes, self.scope, &self.object, &new)
    }
}

const _: () = assert!(probe_site::MAX_SAVED == ResultCookie::MAX_SAVED, "a cookie describes each result site");
const _: () = assert!(
    probe_site::MAX_LOWERED.cast_unsigned() == ResultCookie::MAX_LOWERED,
    "a cookie describes each result site"
);

/// Converts the result sites of a function to probes.
fn result_probes(found: &FunctionResults) -> ResultProbes {
    let site = |site: &FunctionResult| {
        let number = |register: GeneralRegister| register.dwarf_number();
        let words = site.lowered / 8;
        let cookie = ResultCookie::new(site.block.map_or(0, number), site.size.map(number), words, site.saved);
        (site.offset, cookie)
    };
    ResultProbes {
        results: found.results.iter().map(site).collect(),
        sizes: found.sizes.iter().map(site).collect(),
        slow: found.slow.clone(),
    }
}

/// Returns the index of a function in [`FUNCTIONS`]. All functions of `--hook` share the index after the last row.
fn number_of(function: &Function) -> Option<u16> {
    let place = FUNCTIONS.iter().position(|known| known.name == function.name).unwrap_or(FUNCTIONS.len());
    u16::try_from(place).ok()
}
