//! The loaded BPF programs, and access to everything that they provide.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use aya::EbpfLoader;
use aya_log::EbpfLogger;
use memtrace_common::unwind::ObjectKey;
use memtrace_model::{
    Amount, Bytes, CallSums, CgroupId, FileOffset, LossReason, Pid, Signature, SpanCounts, TagEffect, TagFunctionCalls,
    TagId, TagName, Tid,
};

use super::activity::{self, ActiveThreadState, ActivityReader, StepSite};
use super::attach::{Probe, Probes, TagSite};
use super::attach_backend::{AttachBackend, Interface};
use super::attach_point::Scope;
use super::bpf::Bpf;
use super::counters::{self, Counters};
use super::error::KernelError;
use super::gate::{CallRate, Gate};
use super::mark_entries::MarkEntryReader;
use super::memory_locks::MemoryLocks;
use super::probed_files::{ProbedFile, Refusal};
use super::process_filter;
use super::program_time::{self, ProgramTime, ProgramTimer};
use super::reclaim::{self, ReclaimCounters};
use super::removed_cgroups::RemovedCgroupReader;
use super::rings::RingReader;
use super::sampled::{self, SampledFunctions, SampledSite};
use super::settings::{self, Options, settings};
use super::stack_copies::StackCopyReader;
use super::thread_usage::{self, ThreadUsageReader};
use super::unwind_maps::{TableRequestReader, UnwindMaps};
use super::uprobe_multi::UprobeMulti;
use super::wire_type::MapEntry;
use super::{demotions, faults, file_id, sampled_processes, size_filter, tags, tracepoints};
use crate::object_budget::ObjectOwner;
use crate::procfs;
use crate::target_files::open_target_file;

/// BPF programs, built by `cargo xtask bpf`.
pub(super) static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("MEMTRACE_BPF_OBJECT"));

/// The loaded BPF programs. Dropping this value detaches them.
pub struct Kernel {
    bpf: Bpf,
    /// Programs for uprobe_multi links; `None` if aya attaches the probes as perf events.
    multi: Option<UprobeMulti>,
    /// Locks of memory maps, from the first attach on; `None` if the kernel does not show them.
    memory_locks: OnceLock<Option<Arc<MemoryLocks>>>,
    unwind_maps: UnwindMaps,
    log: Option<EbpfLogger<&'static dyn log::Log>>,
    gate: Gate,
    timer: ProgramTimer,
    missing_tracepoints: Vec<&'static str>,
    /// True if each huge page is recorded at its fault.
    records_huge_pages: bool,
    /// True if allocations are recorded with the usable size of the block instead of the requested size.
    usable_sizes: bool,
    records_activity: bool,
    /// True if calls of allocators are timed.
    times_calls: bool,
    /// True if probes count the usage of threads and record nothing.
    counts_threads: bool,
    /// Functions and USDT probes that report samples of targets.
    sampled: SampledFunctions,
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
        // The programs have no relocations (CO-RE), so aya need not parse the kernel's BTF, which takes megabytes.
        loader.btf(None);
        // aya has no type for `BPF_MAP_TYPE_TASK_STORAGE`.
        loader.allow_unsupported_maps();
        loader.override_global("SETTINGS", &settings_entry, true);
        options.map_sizes.apply(&mut loader, options.counts_threads);
        let mut ebpf = loader.load(OBJECT).map_err(|error| KernelError::from_error("load the BPF programs", &error))?;
        // `UprobeMulti` needs all maps, so no map may be taken out before.
        let multi = UprobeMulti::new(OBJECT, &ebpf)?;
        release_object();
        let log = EbpfLogger::init(&mut ebpf)
            .inspect_err(|error| log::warn!("cannot read the log of the BPF programs: {error}"))
            .ok();
        let mut bpf = Bpf::new(ebpf);
        let unwind_maps = UnwindMaps::take(&mut bpf, options.map_sizes)?;
        let gate = Gate::new()?;
        size_filter::set_min_size(&mut bpf, options.min_size)?;
        let readers = make_rings(&mut bpf, options)?;
        if options.counts_threads {
            // Attached before the programs that forget a process at its exit.
            thread_usage::TRACEPOINTS.iter().try_for_each(|(name, at)| bpf.attach_tracepoint(name, at))?;
        }
        if let Some(options) = &options.activity {
            activity::attach(&mut bpf, options)?;
        }
        let is_after_others = options.counts_threads || options.activity.is_some();
        tracepoints::attach_process(&mut bpf, is_after_others)?;
        tracepoints::attach_filter(&mut bpf, &options.filter)?;
        if let Err(error) = tracepoints::attach_cgroup_removal(&mut bpf) {
            log::info!("cgroups that are removed have no name: {error}");
        }
        file_id::load(&mut bpf)?;
        if options.page_sample.is_some() {
            faults::attach(&mut bpf)?;
        }
        let records_huge_pages = settings.huge_fault.known != 0
            && faults::attach_huge_pages(&mut bpf).inspect_err(|error| log::info!("{error}")).is_ok();
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
            memory_locks: if settings.memory_lock.known == 0 { OnceLock::from(None) } else { OnceLock::new() },
            unwind_maps,
            log,
            gate,
            timer,
            missing_tracepoints: missing,
            records_huge_pages,
            usable_sizes,
            records_activity: activity.is_some(),
            times_calls: activity.is_some_and(|activity| activity.min_call.is_some()),
            counts_threads,
            sampled: SampledFunctions::default(),
        };
        Ok((kernel, readers))
    }

    /// Returns the tracepoints of reclaim that the kernel lacks.
    #[must_use]
    pub fn missing_tracepoints(&self) -> &[&'static str] {
        &self.missing_tracepoints
    }

    /// Returns true if each huge page of anonymous memory is recorded at its fault.
    #[must_use]
    pub const fn records_huge_pages(&self) -> bool {
        self.records_huge_pages
    }

    /// Traces the process `pid` in each executable that it runs, and records its exec and exit.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the map of decisions is full.
    pub fn follow(&mut self, pid: Pid) -> Result<(), KernelError> {
        process_filter::decide(&mut self.bpf, pid, true)
    }

    /// Returns true if `pid` is traced because of [`Self::follow`], or because a traced process has started it.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the map of decisions cannot be read.
    pub fn follows(&mut self, pid: Pid) -> Result<bool, KernelError> {
        process_filter::is_decided(&mut self.bpf, pid)
    }

    /// Ends [`Self::follow`] of a process that may have exited before the call. Its pid may be reused.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the map of decisions cannot be changed.
    pub fn unfollow(&mut self, pid: Pid) -> Result<(), KernelError> {
        process_filter::forget(&mut self.bpf, pid)
    }

    /// Stops recording blocks below `min_size` from now on. Frees are recorded for blocks of any size, so blocks that are
    /// recorded already stay known until they are freed.
    ///
    /// # Errors
    ///
    /// Errors of the map update.
    pub fn raise_min_size(&mut self, min_size: Bytes) -> Result<(), KernelError> {
        size_filter::set_min_size(&mut self.bpf, min_size)
    }

    /// Stops recording the blocks of `pid` below `min_size`. They are added up until the process exits. Returns true if
    /// the process was not demoted before.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if too many processes are demoted.
    pub fn demote(&mut self, pid: Pid, min_size: Bytes) -> Result<bool, KernelError> {
        demotions::demote(&mut self.bpf, pid, min_size)
    }

    /// Returns the blocks of `pid` that were not recorded since its demotion; `None` if its memory has ended or it was not
    /// demoted.
    #[must_use]
    pub fn dropped(&self, pid: Pid) -> Option<Amount> {
        demotions::dropped(&self.bpf, pid)
    }

    /// Returns true if other processes share the memory of `pid`, which may have exited.
    #[must_use]
    pub fn is_memory_shared(&self, pid: Pid) -> bool {
        demotions::is_memory_shared(&self.bpf, pid)
    }

    /// Returns true if the process `pid` shares the memory of another process, as after vfork(2).
    #[must_use]
    pub fn is_memory_sharer(&self, pid: Pid) -> bool {
        demotions::is_memory_sharer(&self.bpf, pid)
    }

    /// Ends the demotion of a process that has exited. Its pid may be reused.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if there is no map of demoted processes.
    pub fn forget_demotion(&mut self, pid: Pid) -> Result<(), KernelError> {
        demotions::forget(&mut self.bpf, pid)
    }

    /// Stops recording the page faults of `pid`, and of its later children if `with_children` is true, until they call exec.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the map of these processes is full.
    pub fn leave_out_pages(&mut self, pid: Pid, with_children: bool) -> Result<(), KernelError> {
        sampled_processes::add(&mut self.bpf, pid, with_children)
    }

    /// Ends [`Self::leave_out_pages`] of a process that may have exited before the call.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if there is no map of these processes.
    pub fn record_pages(&mut self, pid: Pid) -> Result<(), KernelError> {
        sampled_processes::remove(&mut self.bpf, pid)
    }

    /// Returns the reader of the table requests.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the reader was taken before.
    pub fn take_table_requests(&mut self) -> Result<TableRequestReader, KernelError> {
        TableRequestReader::take(&mut self.bpf)
    }

    /// Returns the reader of the stack copies.
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

    /// Returns the maps with the unwind tables.
    pub fn unwind_maps(&mut self) -> &mut UnwindMaps {
        &mut self.unwind_maps
    }

    /// Returns the id that the file at `path` has for the BPF programs; `None` if it cannot be mapped.
    pub fn file_id(&mut self, path: &Path) -> Option<ObjectKey> {
        Some(file_id::of_path(&mut self.bpf, path)?.object)
    }

    /// Attaches the probes `sites` to the object at `path`, except the ones that are already attached. An object whose pages a
    /// user serves gets no probes ([`Probes::refusals`]). This holds for all functions that attach probes.
    ///
    /// # Errors
    ///
    /// [`KernelError::TargetEnded`] if the process has exited; [`KernelError::LockedMemory`] if a process holds the lock of
    /// its memory map; otherwise the kernel's error. Probes that were attached before the error stay only after
    /// [`KernelError::LockedMemory`]. With [`Scope::AllProcesses`], [`KernelError::NotInserted`] is no error, but a [`Refusal`]
    /// of the object. If the kernel finds no memory for a probe, that is no error either: the probes wait
    /// ([`Probes::waiting`]).
    pub fn attach(
        &mut self,
        probes: &mut Probes,
        scope: Scope,
        path: &Path,
        sites: &[Probe],
    ) -> Result<(), KernelError> {
        let result = if self.counts_threads {
            self.attach_with(probes, path, |probes, backend| probes.attach_counting(backend, scope, path, sites))
        } else {
            let sites: Vec<_> = sites.iter().map(|site| self.adapted(site)).collect();
            self.attach_with(probes, path, |probes, backend| probes.attach(backend, scope, path, &sites))
        };
        probes.refuse_failed(scope, path, result)
    }

    /// Tries again to attach the probes that wait for memory. Returns the objects that have all their probes now.
    pub fn attach_waiting(&mut self, probes: &mut Probes, now: Instant) -> Vec<PathBuf> {
        let mut complete = Vec::new();
        while let Some(set) = probes.take_waiting(now) {
            let result = self.attach_with(probes, &set.object, |probes, backend| probes.attach_set(backend, &set));
            complete.extend(probes.finish_attempt(set, result, now));
        }
        complete
    }

    /// Attaches the probes that record calls of one function of the object at `path`, but no probes at its returns.
    ///
    /// # Errors
    ///
    /// The same as for [`Kernel::attach`].
    pub fn attach_entry(
        &mut self,
        probes: &mut Probes,
        scope: Scope,
        path: &Path,
        site: &Probe,
    ) -> Result<(), KernelError> {
        let site = self.adapted(site);
        let result = self.attach_with(probes, path, |probes, backend| probes.attach_entry(backend, scope, path, &site));
        probes.refuse_failed(scope, path, result)
    }

    /// Returns true if the result sites of the function are probed. If calls are timed, result sites are not probed, because
    /// the programs at these sites do not time calls.
    pub fn uses_results(&self, probe: &Probe) -> bool {
        probe.results.is_some() && !self.times_calls
    }

    /// Returns `probe` without the usable sizes and durations that this run does not record. Both need a BPF cookie,
    /// and durations need the returns of all functions.
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

    /// Attaches a probe that records each entry of the function at `offset` of the object at `path`. `function` is its
    /// number in the records.
    ///
    /// # Errors
    ///
    /// The same as for [`Kernel::attach`].
    pub fn attach_mark(
        &mut self,
        probes: &mut Probes,
        scope: Scope,
        path: &Path,
        offset: FileOffset,
        function: u32,
    ) -> Result<(), KernelError> {
        self.attach_with(probes, path, |probes, backend| probes.attach_mark(backend, scope, path, offset, function))
    }

    /// Attaches the probes at `sites` of the object at `path` that change the current tag.
    ///
    /// # Errors
    ///
    /// The same as for [`Kernel::attach`].
    pub fn attach_tags(
        &mut self,
        probes: &mut Probes,
        scope: Scope,
        path: &Path,
        sites: &[TagSite],
    ) -> Result<(), KernelError> {
        self.attach_with(probes, path, |probes, backend| probes.attach_tags(backend, scope, path, sites))
    }

    /// Attaches the probes at `sites` of the object at `path` that record steps of threads.
    ///
    /// # Errors
    ///
    /// The same as for [`Kernel::attach`].
    pub fn attach_steps(
        &mut self,
        probes: &mut Probes,
        scope: Scope,
        path: &Path,
        sites: &[StepSite],
    ) -> Result<(), KernelError> {
        self.attach_with(probes, path, |probes, backend| probes.attach_steps(backend, scope, path, sites))
    }

    /// Attaches the probes at `sites` of the object at `path`, where targets report samples. Returns false if too many different
    /// sites are in use, by all objects or by the objects of the file's owner. A later attempt can succeed after
    /// [`Self::forget_sampled`].
    ///
    /// # Errors
    ///
    /// The same as for [`Kernel::attach`], and errors of open(2).
    pub fn attach_sampled(
        &mut self,
        probes: &mut Probes,
        scope: Scope,
        path: &Path,
        sites: &[SampledSite],
    ) -> Result<bool, KernelError> {
        let owner = open_target_file(path)
            .and_then(|file| ObjectOwner::of(&file))
            .map_err(|error| KernelError::from_error("open a file with functions that report samples", &error))?;
        let Self { sampled, bpf, .. } = self;
        let write = |index, function| sampled::write(bpf, index, function);
        let Some(points) = sampled.points(path, owner, sites, write)? else { return Ok(false) };
        let result =
            self.attach_with(probes, path, |probes, backend| probes.attach_sampled(backend, scope, path, points));
        probes.refuse_failed(scope, path, result).map(|()| true)
    }

    /// Forgets the sites that reported samples in the objects at `paths`. No process maps these objects
    /// any more.
    pub fn forget_sampled(&mut self, paths: &HashSet<PathBuf>) {
        self.sampled.remove_objects(paths);
    }

    /// Returns the reader of the activity of threads; `None` if activity is not recorded.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the reader was taken before.
    pub fn take_activity(&mut self) -> Result<Option<ActivityReader>, KernelError> {
        self.records_activity.then(|| ActivityReader::take(&mut self.bpf)).transpose()
    }

    /// Returns the states of the threads that have taken steps and have not exited.
    #[must_use]
    pub fn active_threads(&self) -> BTreeMap<(Pid, Tid), ActiveThreadState> {
        activity::active_threads(&self.bpf)
    }

    /// Returns the numbers of spans that have begun, including those with lost records.
    #[must_use]
    pub fn begun_spans(&self) -> SpanCounts {
        activity::begun_spans(&self.bpf)
    }

    /// Returns the count, the total time and the histogram of the timed allocator calls, by the number of the function.
    #[must_use]
    pub fn call_times(&self) -> BTreeMap<u32, CallSums> {
        activity::call_times(&self.bpf)
    }

    /// Returns the tags that targets have set so far.
    #[must_use]
    pub fn tags(&self) -> BTreeMap<TagId, TagName> {
        tags::read(&self.bpf)
    }

    /// Prepares the counts of a function that changes tags, and the position of the field that contains the tag. `index`: number
    /// of the function, from 0. The probe must not be attached yet.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if there are more than [`memtrace_model::MAX_TAG_FUNCTIONS`] functions.
    pub fn add_tag_function(&mut self, index: u8, effect: TagEffect) -> Result<(), KernelError> {
        tags::add_function(&mut self.bpf, index, effect)
    }

    /// Returns the calls so far of a function that changes tags; `None` if they cannot be read. `rule`: the function with its
    /// effect, as the user gave it.
    #[must_use]
    pub fn tag_function_calls(&self, index: u8, effect: TagEffect, rule: &str) -> Option<TagFunctionCalls> {
        tags::calls(&self.bpf, index, effect, rule)
    }

    /// Returns the reader of the entries of functions that set marks.
    ///
    /// # Errors
    ///
    /// [`KernelError::Failed`] if the reader was taken before.
    pub fn take_mark_entries(&mut self) -> Result<MarkEntryReader, KernelError> {
        MarkEntryReader::take(&mut self.bpf)
    }

    /// Returns true if probes use uprobe_multi links. Otherwise, each probe is a perf event, and the removal is slow.
    #[must_use]
    pub fn has_uprobe_multi(&self) -> bool {
        self.multi.is_some()
    }

    /// Calls `attach` to attach probes to the object at `path`, unless a user could block the whole machine through this file.
    fn attach_with(
        &mut self,
        probes: &mut Probes,
        path: &Path,
        attach: impl FnOnce(&mut Probes, &mut AttachBackend<'_>) -> Result<(), KernelError>,
    ) -> Result<(), KernelError> {
        if probes.refusal(path) == Some(Refusal::Served) {
            return Ok(());
        }
        match ProbedFile::find(&mut self.bpf, path)? {
            Ok(file) => {
                probes.clear_refusal(path, Refusal::Unknown);
                let locks = self.memory_locks();
                attach(probes, &mut AttachBackend::new(self.interface(), Some(file), locks))
            }
            Err(refusal) => {
                probes.set_refusal(path, refusal);
                Ok(())
            }
        }
    }

    /// Returns the backend for files that are known to be safe.
    pub(super) fn attach_backend(&mut self) -> AttachBackend<'_> {
        let locks = self.memory_locks();
        AttachBackend::new(self.interface(), None, locks)
    }

    /// Returns the locks of memory maps; `None` if the kernel does not show them.
    pub(super) fn memory_locks(&mut self) -> Option<Arc<MemoryLocks>> {
        let load = || {
            MemoryLocks::load(&mut self.bpf)
                .inspect_err(|error| log::warn!("the locks of memory maps are not checked: {error}"))
                .ok()
                .map(Arc::new)
        };
        self.memory_locks.get_or_init(load).clone()
    }

    fn interface(&mut self) -> Interface<'_> {
        match &mut self.multi {
            Some(multi) => Interface::UprobeMulti(multi),
            None => Interface::PerfEvent(&mut self.bpf),
        }
    }

    #[cfg(test)]
    pub(super) fn perf_event_backend(&mut self) -> AttachBackend<'_> {
        AttachBackend::new(Interface::PerfEvent(&mut self.bpf), None, None)
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

    /// Lets the BPF programs count the usage of threads, and record nothing.
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
    /// Errors of the kernel. [`KernelError::Failed`] if the reader was taken before.
    pub fn take_thread_usage(&mut self) -> Result<ThreadUsageReader, KernelError> {
        ThreadUsageReader::take(&mut self.bpf)
    }

    /// Lets the BPF programs read the counters that an allocator keeps in the memory of its process, at the exit of each
    /// thread. `processes`: pids, each with the offsets of two counters from the thread pointer, in bytes: the counter of
    /// allocated bytes, and the counter of freed bytes. The offsets are valid until the process calls exec.
    ///
    /// # Errors
    ///
    /// Errors of the map update, such as too many processes.
    pub fn read_counters_at_exit(
        &mut self,
        processes: impl IntoIterator<Item = (Pid, [i64; 2])>,
    ) -> Result<(), KernelError> {
        let mut is_needed = false;
        for (pid, distances) in processes {
            thread_usage::read_at_exit(&mut self.bpf, pid, distances)?;
            is_needed = true;
        }
        // The programs at system calls slow down the whole machine, so they are attached only if they are needed.
        if is_needed && !settings::has_memory_at_exit() {
            thread_usage::attach_before_exit(&mut self.bpf);
        }
        Ok(())
    }

    /// Stops recording. On return, all records are in their rings.
    ///
    /// # Errors
    ///
    /// Errors of the map updates.
    pub fn close(&mut self) -> Result<(), KernelError> {
        self.gate.close(&mut self.bpf)
    }

    /// Counts the allocation calls, and the hits of other probes, at the attached probes for `period`.
    ///
    /// # Errors
    ///
    /// Errors of the map operations.
    pub fn count_calls(&mut self, period: Duration) -> Result<CallRate, KernelError> {
        self.gate.count_calls(&mut self.bpf, period)
    }

    /// Enables or disables timing of the BPF programs. With timing, each run of a program reads the clock twice.
    pub fn time_programs(&mut self, on: bool) {
        self.timer.enable(on);
    }

    /// Returns the run time of the BPF programs while timing was enabled.
    #[must_use]
    pub fn program_time(&self) -> ProgramTime {
        ProgramTimer::read(self.programs().map(|(_, program)| program), |_| true)
    }

    /// Returns the run time of the BPF programs at uprobes while timing was enabled.
    #[must_use]
    pub fn probe_time(&self) -> ProgramTime {
        ProgramTimer::read(self.programs().map(|(_, program)| program), program_time::is_at_uprobes)
    }

    /// Returns the names and descriptors of all loaded programs.
    fn programs(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        let others = self.bpf.programs().filter_map(|(name, program)| Some((name, program.fd().ok()?.as_fd())));
        others.chain(self.multi.iter().flat_map(UprobeMulti::programs))
    }

    /// Reads the counters of the BPF programs.
    #[must_use]
    pub fn counters(&self) -> Counters {
        // Read the misses first: if the counters came first, a redundant program that runs between the two reads would
        // be missing from them.
        let missed: BTreeMap<&str, u64> =
            self.programs().map(|(name, program)| (name, counters::missed(program))).collect();
        let map = counters::map(&self.bpf);
        let (mut counters, redundant_runs) = map.map_or_else(Default::default, |map| counters::read(&map));
        let nonzero: Vec<_> = missed.iter().filter(|(_, missed)| **missed > 0).collect();
        if !nonzero.is_empty() {
            log::debug!("missed runs of BPF programs: {nonzero:?}, {redundant_runs:?}");
        }
        counters.losses.add(LossReason::ProbeMissed, tracepoints::missed(&missed, redundant_runs));
        counters
    }

    /// Returns the number of hits of probes that are not at calls of allocators, such as probes of samples. This call
    /// takes far less time than [`Self::counters`].
    #[must_use]
    pub fn other_hits(&self) -> u64 {
        counters::map(&self.bpf).map_or(0, |map| counters::other_hits(&map))
    }

    /// Returns the counters of reclaim by all processes. Programs may increment counters during the read.
    #[must_use]
    pub fn reclaim_counters(&self) -> ReclaimCounters {
        reclaim::counters(&self.bpf)
    }

    /// Returns the number of inactive pages that were scanned for the limit of each memcg. If there are too many
    /// memcgs, the least recently used ones are missing.
    #[must_use]
    pub fn scanned_by_memcg(&self) -> BTreeMap<CgroupId, u64> {
        reclaim::scanned_by_memcg(&self.bpf)
    }

    /// Forwards new messages of the BPF programs to `log`.
    pub fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}

/// Removes the pages of [`OBJECT`] from the RSS of memtrace. Nothing reads them after the load; otherwise, the kernel maps them
/// again.
fn release_object() {
    let Some(page) = procfs::page_size().ok().and_then(|page| usize::try_from(page.0).ok()) else { return };
    let Some(pages) = OBJECT.get(OBJECT.as_ptr().align_offset(page)..) else { return };
    let length = pages.len() / page * page;
    // SAFETY: the range has whole pages of bytes in read-only data of the executable. Such pages have no relocations, so
    // they are not modified, and the kernel maps the same contents again.
    let result = unsafe { libc::madvise(pages.as_ptr().cast_mut().cast(), length, libc::MADV_DONTNEED) };
    if result != 0 {
        // With `--protect`, the pages are locked.
        log::debug!("the pages of the BPF object stay resident: {}", std::io::Error::last_os_error());
    }
}

fn make_rings(bpf: &mut Bpf, options: &Options) -> Result<Vec<RingReader>, KernelError> {
    let readers = (0..options.rings).map(|_| RingReader::create(options.ring_size)).collect::<Result<Vec<_>, _>>()?;
    let mut rings = bpf.rings()?;
    for (index, reader) in (0u32..).zip(&readers) {
        rings
            .set(index, reader.map(), 0)
            .map_err(|error| KernelError::from_error("pass a ring to the BPF programs", &error))?;
    }
    Ok(readers)
}

#[cfg(test)]
mod tests;
