//! The BPF programs in the kernel: loading, and access to everything they provide.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use aya::EbpfLoader;
use aya::maps::PerCpuArray;
use aya_log::EbpfLogger;
use memtrace_common::unwind::ObjectKey;
use memtrace_model::{CallSums, CgroupId, FileOffset, LossReason, Nanoseconds, Pid, Signature, TagId, TagName, Tid};

use super::activity::{self, ActivityReader, StepSite};
use super::attach::{Probe, Probes, TagSite};
use super::attach_backend::AttachBackend;
use super::attach_point::Scope;
use super::bpf::Bpf;
use super::counters::{self, Counters};
use super::error::KernelError;
use super::gate::{CallRate, Gate};
use super::mark_entries::MarkEntryReader;
use super::process_filter;
use super::program_time::{ProgramTime, ProgramTimer};
use super::reclaim::{self, ReclaimCounters};
use super::removed_cgroups::RemovedCgroupReader;
use super::rings::RingReader;
use super::settings::{Options, settings};
use super::stack_copies::StackCopyReader;
use super::thread_usage::{self, ThreadUsageReader};
use super::unwind_maps::{TableRequestReader, UnwindMaps};
use super::uprobe_multi::UprobeMulti;
use super::wire_type::MapEntry;
use super::{faults, file_id, tags, tracepoints};

/// BPF programs, built by `cargo xtask bpf`.
pub(super) static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("MEMTRACE_BPF_OBJECT"));

/// The loaded BPF programs. Dropping this detaches them.
pub struct Kernel {
    bpf: Bpf,
    /// Programs for probes; `None` if aya attaches them.
    multi: Option<UprobeMulti>,
    unwind_maps: UnwindMaps,
    log: Option<EbpfLogger<&'static dyn log::Log>>,
    gate: Gate,
    timer: ProgramTimer,
    missing_tracepoints: Vec<&'static str>,
    /// Blocks have the usable size of their allocator.
    usable_sizes: bool,
    /// The activity of threads is recorded.
    records_activity: bool,
    /// Calls of allocators are timed.
    times_calls: bool,
    /// Probes count, and record nothing.
    counts_threads: bool,
}

impl Kernel {
    /// Loads the BPF programs and creates the rings. Events are recorded after [`Kernel::open`].
    ///
    /// # Errors
    ///
    /// [`KernelError`], with the verifier's message if a program is refused.
    pub fn load(options: &Options) -> Result<(Self, Vec<RingReader>), KernelError> {
        let settings = settings(options)?;
        let settings_entry = MapEntry(settings);
        let mut loader = EbpfLoader::new();
        // The programs have no relocations to the kernel's types, which would take megabytes.
        loader.btf(None);
        // aya has no type for maps in tasks.
        loader.allow_unsupported_maps();
        loader.override_global("SETTINGS", &settings_entry, true);
        options.map_sizes.apply(&mut loader, options.counts_threads);
        let mut ebpf = loader.load(OBJECT).map_err(|error| KernelError::from_error("load the BPF programs", &error))?;
        // Requires that no map is taken out yet.
        let multi = UprobeMulti::new(OBJECT, &ebpf)?;
        let log = EbpfLogger::init(&mut ebpf)
            .inspect_err(|error| log::warn!("cannot read the log of the BPF programs: {error}"))
            .ok();
        let mut bpf = Bpf::new(ebpf);
        let unwind_maps = UnwindMaps::take(&mut bpf, options.map_sizes)?;
        let gate = Gate::new()?;
        let readers = make_rings(&mut bpf, options)?;
        if options.counts_threads {
            // Before the programs that forget a process when it exits.
            thread_usage::TRACEPOINTS.iter().try_for_each(|(name, at)| bpf.attach_tracepoint(name, at))?;
        }
        if let Some(options) = &options.activity {
            activity::attach(&mut bpf, options)?;
        }
        tracepoints::attach_process(&mut bpf)?;
        tracepoints::attach_filter(&mut bpf, &options.filter)?;
        if let Err(error) = tracepoints::attach_cgroup_removal(&mut bpf) {
            log::info!("cgroups that are removed have no name: {error}");
        }
        file_id::load(&mut bpf)?;
        if options.page_sample.is_some() {
            faults::attach(&mut bpf)?;
        }
        let missing_tracepoints = if options.reclaim { reclaim::attach(&mut bpf)? } else { Vec::new() };
        let oom_kill = if options.counts_threads { "count_oom_kill" } else { "mark_victim" };
        if let Err(error) = bpf.attach_tracepoint(oom_kill, "mark_victim") {
            log::info!("OOM kills are not recorded: {error}");
        }
        if !options.counts_threads
            && let Err(error) = bpf.attach_tracepoint("signal_deliver", "signal_deliver")
        {
            log::info!("allocations in signal handlers may count as nested calls: {error}");
        }
        tracepoints::attach_syscalls(&mut bpf, settings.syscall_programs)?;
        options.filter.write(&mut bpf, Pid(std::process::id()))?;
        options.threads.write(&mut bpf)?;
        let timer = ProgramTimer::default();
        let Options { usable_sizes, counts_threads, activity, .. } = *options;
        let missing = missing_tracepoints;
        let kernel = Self {
            bpf,
            multi,
            unwind_maps,
            log,
            gate,
            timer,
            missing_tracepoints: missing,
            usable_sizes,
            records_activity: activity.is_some(),
            times_calls: activity.is_some_and(|activity| activity.min_call.is_some()),
            counts_threads,
        };
        Ok((kernel, readers))
    }

    /// Tracepoints of reclaim that the kernel lacks.
    #[must_use]
    pub fn missing_tracepoints(&self) -> &[&'static str] {
        &self.missing_tracepoints
    }

    /// Traces `pid` whichever executable it runs, and reports its exec and exit.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the map of decisions is full.
    pub fn follow(&mut self, pid: Pid) -> Result<(), KernelError> {
        process_filter::decide(&mut self.bpf, pid, true)
    }

    /// Requests of the BPF programs for unwind tables.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the reader was taken before.
    pub fn take_table_requests(&mut self) -> Result<TableRequestReader, KernelError> {
        TableRequestReader::take(&mut self.bpf)
    }

    /// Copies of stacks that were cut for lack of a table.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the reader was taken before.
    pub fn take_stack_copies(&mut self) -> Result<StackCopyReader, KernelError> {
        StackCopyReader::take(&mut self.bpf)
    }

    /// Returns the reader of the cgroups that are removed.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the reader was taken before.
    pub fn take_removed_cgroups(&mut self) -> Result<RemovedCgroupReader, KernelError> {
        RemovedCgroupReader::take(&mut self.bpf)
    }

    /// Maps with the unwind tables.
    pub fn unwind_maps(&mut self) -> &mut UnwindMaps {
        &mut self.unwind_maps
    }

    /// Returns the id that the file at `path` has for the BPF programs; `None` if it cannot be mapped.
    pub fn file_id(&mut self, path: &Path) -> Option<ObjectKey> {
        file_id::of_path(&mut self.bpf, path)
    }

    /// Attaches those of `sites` to the object at `path` that are not attached.
    ///
    /// # Errors
    ///
    /// [`KernelError::TargetEnded`] if the process has exited; otherwise the kernel's error.
    pub fn attach(
        &mut self,
        probes: &mut Probes,
        scope: Scope,
        path: &Path,
        sites: &[Probe],
    ) -> Result<(), KernelError> {
        if self.counts_threads {
            return probes.attach_counting(&mut self.attach_backend(), scope, path, sites);
        }
        let sites: Vec<_> = sites.iter().map(|site| self.adapted(site)).collect();
        probes.attach(&mut self.attach_backend(), scope, path, &sites)
    }

    /// Attaches a probe to the entry of one function of the object at `path`.
    ///
    /// # Errors
    ///
    /// Those of [`Kernel::attach`].
    pub fn attach_entry(
        &mut self,
        probes: &mut Probes,
        scope: Scope,
        path: &Path,
        site: &Probe,
    ) -> Result<(), KernelError> {
        let site = self.adapted(site);
        probes.attach_entry(&mut self.attach_backend(), scope, path, &site)
    }

    /// Returns true if the result sites of the function are probed: their programs do not time calls.
    pub fn uses_results(&self, probe: &Probe) -> bool {
        probe.results.is_some() && !self.times_calls
    }

    /// Returns a probe that records usable sizes and durations only if the run has them: these need a cookie, and durations need
    /// the returns of all functions.
    fn adapted(&self, probe: &Probe) -> Probe {
        let signature = match probe.signature {
            Signature::Free { block } if self.times_calls => Signature::FreeAround { block },
            signature => signature,
        };
        Probe {
            signature,
            has_sizes: probe.has_sizes && self.usable_sizes,
            function: probe.function.filter(|_| self.times_calls),
            results: probe.results.clone().filter(|_| self.uses_results(probe)),
            ..probe.clone()
        }
    }

    /// Attaches a probe that records entries of the function at `offset` of the object at `path` with its number.
    ///
    /// # Errors
    ///
    /// Those of [`Kernel::attach`].
    pub fn attach_mark(
        &mut self,
        probes: &mut Probes,
        scope: Scope,
        path: &Path,
        offset: FileOffset,
        function: u32,
    ) -> Result<(), KernelError> {
        probes.attach_mark(&mut self.attach_backend(), scope, path, offset, function)
    }

    /// Attaches probes to `sites` of the object at `path`, which change the current tag.
    ///
    /// # Errors
    ///
    /// Those of [`Kernel::attach`].
    pub fn attach_tags(
        &mut self,
        probes: &mut Probes,
        scope: Scope,
        path: &Path,
        sites: &[TagSite],
    ) -> Result<(), KernelError> {
        probes.attach_tags(&mut self.attach_backend(), scope, path, sites)
    }

    /// Attaches probes to `sites` of the object at `path`, at which threads take steps.
    ///
    /// # Errors
    ///
    /// Those of [`Kernel::attach`].
    pub fn attach_steps(
        &mut self,
        probes: &mut Probes,
        scope: Scope,
        path: &Path,
        sites: &[StepSite],
    ) -> Result<(), KernelError> {
        probes.attach_steps(&mut self.attach_backend(), scope, path, sites)
    }

    /// Returns the reader of the activity of threads; `None` if it is not recorded.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the reader was taken before.
    pub fn take_activity(&mut self) -> Result<Option<ActivityReader>, KernelError> {
        self.records_activity.then(|| ActivityReader::take(&mut self.bpf)).transpose()
    }

    /// Returns the begins of the waits for futexes that have not ended, by thread, since the start of the clock.
    #[must_use]
    pub fn pending_waits(&self) -> BTreeMap<Tid, Nanoseconds> {
        activity::pending_waits(&self.bpf)
    }

    /// Returns the durations of the calls of allocators so far, by the number of the function.
    #[must_use]
    pub fn call_times(&self) -> BTreeMap<u32, CallSums> {
        activity::call_times(&self.bpf)
    }

    /// Returns the tags that programs have set so far.
    #[must_use]
    pub fn tags(&self) -> BTreeMap<TagId, TagName> {
        tags::read(&self.bpf)
    }

    /// Returns the reader of the entries of functions that set marks.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the reader was taken before.
    pub fn take_mark_entries(&mut self) -> Result<MarkEntryReader, KernelError> {
        MarkEntryReader::take(&mut self.bpf)
    }

    /// Returns true if probes use uprobe_multi links. Otherwise, each takes a perf event, and their removal is slow.
    #[must_use]
    pub fn has_uprobe_multi(&self) -> bool {
        self.multi.is_some()
    }

    pub(super) fn attach_backend(&mut self) -> AttachBackend<'_> {
        match &mut self.multi {
            Some(multi) => AttachBackend::UprobeMulti(multi),
            None => AttachBackend::PerfEvent(&mut self.bpf),
        }
    }

    #[cfg(test)]
    pub(super) fn perf_event_backend(&mut self) -> AttachBackend<'_> {
        AttachBackend::PerfEvent(&mut self.bpf)
    }

    #[cfg(test)]
    pub(super) const fn bpf(&mut self) -> &mut Bpf {
        &mut self.bpf
    }

    /// Starts recording.
    ///
    /// # Errors
    ///
    /// Errors of the map update.
    pub fn open(&mut self) -> Result<(), KernelError> {
        self.gate.open(&mut self.bpf)
    }

    /// Starts to count the usage of threads.
    ///
    /// # Errors
    ///
    /// Errors of the map update.
    pub fn count_threads(&mut self) -> Result<(), KernelError> {
        self.gate.count(&mut self.bpf)
    }

    /// Returns the reader of the usage of threads.
    ///
    /// # Errors
    ///
    /// Errors of the kernel; or the reader was taken before.
    pub fn take_thread_usage(&mut self) -> Result<ThreadUsageReader, KernelError> {
        ThreadUsageReader::take(&mut self.bpf)
    }

    /// Stops recording. On return, all records are in their rings.
    ///
    /// # Errors
    ///
    /// Errors of the map updates.
    pub fn close(&mut self) -> Result<(), KernelError> {
        self.gate.close(&mut self.bpf)
    }

    /// Counts the allocation calls at the attached probes for `period`.
    ///
    /// # Errors
    ///
    /// Errors of the map operations.
    pub fn count_calls(&mut self, period: Duration) -> Result<CallRate, KernelError> {
        self.gate.count_calls(&mut self.bpf, period)
    }

    /// Enables or disables timing of the BPF programs. Timing costs each run two readings of the clock.
    pub fn time_programs(&mut self, on: bool) {
        self.timer.enable(on);
    }

    /// Run time of the BPF programs while timing was enabled.
    #[must_use]
    pub fn program_time(&self) -> ProgramTime {
        ProgramTimer::read(self.programs().map(|(_, program)| program))
    }

    /// Names and descriptors of all loaded programs.
    fn programs(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        let others = self.bpf.programs().filter_map(|(name, program)| Some((name, program.fd().ok()?.as_fd())));
        others.chain(self.multi.iter().flat_map(UprobeMulti::programs))
    }

    /// Reads the counters of the BPF programs.
    #[must_use]
    pub fn counters(&self) -> Counters {
        // Misses have to be read before the runs of substitutes, which must not be fewer.
        let missed: BTreeMap<&str, u64> =
            self.programs().map(|(name, program)| (name, counters::missed(program))).collect();
        let map = self.bpf.map("COUNTERS").and_then(|map| PerCpuArray::<_, u64>::try_from(map).ok());
        let (mut counters, redundant_runs) = map.map_or_else(Default::default, |map| counters::read(&map));
        let nonzero: Vec<_> = missed.iter().filter(|(_, missed)| **missed > 0).collect();
        if !nonzero.is_empty() {
            log::debug!("missed runs of BPF programs: {nonzero:?}, {redundant_runs:?}");
        }
        counters.losses.add(LossReason::ProbeMissed, tracepoints::missed(&missed, redundant_runs));
        counters
    }

    /// Counters of reclaim by all processes. Those of different CPUs may be read at slightly different times.
    #[must_use]
    pub fn reclaim_counters(&self) -> ReclaimCounters {
        reclaim::counters(&self.bpf)
    }

    /// Memcgs in which a task has stalled, and the number of inactive pages scanned for the limit of each. If there are too
    /// many, the least recently used are missing.
    #[must_use]
    pub fn scanned_by_memcg(&self) -> BTreeMap<CgroupId, u64> {
        reclaim::scanned_by_memcg(&self.bpf)
    }

    /// Forwards the log of the BPF programs.
    pub fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}

fn make_rings(bpf: &mut Bpf, options: &Options) -> Result<Vec<RingReader>, KernelError> {
    let readers = (0..options.rings).map(|_| RingReader::create(options.ring_size)).collect::<Result<Vec<_>, _>>()?;
    let mut rings = bpf.rings()?;
    for (index, reader) in (0u32..).zip(&readers) {
        rings
            .set(index, reader.ring(), 0)
            .map_err(|error| KernelError::from_error("pass a ring to the BPF programs", &error))?;
    }
    Ok(readers)
}

#[cfg(test)]
mod tests;
