//! The kernel half: loaded, told its settings, and asked what it has to say beside its rings.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use aya::maps::{ArrayOfMaps, MapData, PerCpuArray, RingBuf};
use aya::programs::{Program, RawTracePoint};
use aya::{Ebpf, EbpfLoader};
use aya_log::EbpfLogger;
use memtrace_common::wire::Settings;

use super::attach::{Probe, Probes, Scope};
use super::attach_backend::Way;
use super::bpf_variant::Programs;
use super::counters::{self, Counters};
use super::error::KernelError;
use super::faults;
use super::file_id;
use super::program_time::{Meter, ProgramTime};
use super::reclaim;
use super::rings::RingReader;
use super::settings::{Options, settings};
use super::tracepoints;
use super::unwind_maps::{TableRequestReader, Tables};
use super::uprobe_multi::Multi;
use crate::model::{Bytes, LossReason, Pid};

/// The least that a ring can have: a page of any size that Linux runs with.
const SPARE_SIZE: Bytes = Bytes(1 << 16);

/// The kernel half. Everything that it placed goes when this is dropped.
pub struct Kernel {
    pub(super) ebpf: Ebpf,
    /// The programs for probes; `None` where they are aya's.
    multi: Option<Multi>,
    tables: Tables,
    log: Option<EbpfLogger<&'static dyn log::Log>>,
    /// A ring that nothing is written to; see [`Kernel::close`].
    pub(super) spare: RingReader,
    meter: Meter,
    /// Tracepoints that were asked for and that the kernel does not have.
    missing: Vec<&'static str>,
}

/// The settings as the loader takes them.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Plain(Settings);

// SAFETY: `Settings` is `repr(C)`, made of integers only, and its asserted size leaves no padding.
unsafe impl aya::Pod for Plain {}

impl Kernel {
    /// Loads the kernel half and makes its rings; nothing counts until [`Kernel::open`].
    ///
    /// # Errors
    ///
    /// [`KernelError`], with the verifier's words where a program was refused.
    pub fn load(options: &Options) -> Result<(Self, Vec<RingReader>), KernelError> {
        let settings = settings(options)?;
        let programs = Programs::fitting(settings.vma.known != 0);
        if programs == Programs::Plain {
            log::info!("the kernel half takes turns by the kernel's locks, and is told of mappings");
        }
        let mut ebpf = EbpfLoader::new()
            .override_global("SETTINGS", &Plain(settings), true)
            .load(programs.object())
            .map_err(|error| KernelError::from_error("load the kernel half", &error))?;
        // Before anybody takes a map out.
        let multi = Multi::new(programs.object(), &ebpf)?;
        let log = EbpfLogger::init(&mut ebpf)
            .inspect_err(|error| log::warn!("the kernel half's log cannot be read: {error}"))
            .ok();
        let tables = Tables::take(&mut ebpf, programs == Programs::Usual)?;
        let spare = RingReader::create(SPARE_SIZE)?;
        let mut kernel = Self { ebpf, multi, tables, log, spare, meter: Meter::default(), missing: Vec::new() };
        let readers = kernel.make_rings(options)?;
        tracepoints::follow(&mut kernel)?;
        file_id::load(&mut kernel)?;
        if options.page_sample.is_some() {
            faults::follow(&mut kernel)?;
        }
        if options.reclaim {
            kernel.missing = reclaim::follow(&mut kernel)?;
        }
        if let Err(error) = kernel.follow_tracepoint("mark_victim", "mark_victim") {
            log::info!("nobody is seen to be killed for want of memory: {error}");
        }
        tracepoints::follow_calls(&mut kernel, settings.syscall_programs)?;
        options.filter.write(&mut kernel.ebpf, Pid(std::process::id()))?;
        Ok((kernel, readers))
    }

    fn make_rings(&mut self, options: &Options) -> Result<Vec<RingReader>, KernelError> {
        let readers =
            (0..options.rings).map(|_| RingReader::create(options.ring_size)).collect::<Result<Vec<_>, _>>()?;
        let mut rings = rings(&mut self.ebpf)?;
        for (index, reader) in (0u32..).zip(&readers) {
            rings.set(index, reader.ring(), 0).map_err(|error| KernelError::from_error("hand over a ring", &error))?;
        }
        Ok(readers)
    }

    /// Has the program `name` run at `tracepoint` from now on.
    pub(super) fn follow_tracepoint(&mut self, name: &str, tracepoint: &str) -> Result<(), KernelError> {
        let action = format!("follow {tracepoint}");
        let program: &mut RawTracePoint = self.program(name)?;
        program.load().map_err(|error| KernelError::from_load(&action, &error))?;
        self.attach_tracepoint(name, tracepoint)
    }

    /// Has the program `name`, which is loaded, run at `tracepoint` from now on.
    pub(super) fn attach_tracepoint(&mut self, name: &str, tracepoint: &str) -> Result<(), KernelError> {
        let program: &mut RawTracePoint = self.program(name)?;
        let failed = |error| KernelError::from_error(&format!("follow {tracepoint}"), &error);
        program.attach(tracepoint).map_err(failed)?;
        Ok(())
    }

    /// Tracepoints that were asked for and that the kernel does not have.
    #[must_use]
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }

    pub(super) const fn ebpf(&mut self) -> &mut Ebpf {
        &mut self.ebpf
    }

    pub(super) fn map(&self, name: &str) -> Option<&aya::maps::Map> {
        self.ebpf.map(name)
    }

    /// One of aya's programs.
    pub(super) fn program<'a, P>(&'a mut self, name: &str) -> Result<&'a mut P, KernelError>
    where
        &'a mut P: TryFrom<&'a mut Program>,
    {
        let program = self.ebpf.program_mut(name).ok_or_else(|| missing(name))?;
        program.try_into().map_err(|_| missing(name))
    }

    /// The programs' requests for unwind tables; `None` where they make none, or where somebody has taken it.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn take_wanted(&mut self) -> Result<Option<TableRequestReader>, KernelError> {
        if self.tables.finds_mappings() { TableRequestReader::take(&mut self.ebpf).map(Some) } else { Ok(None) }
    }

    /// The unwind tables. A process that they have mappings for is walked by them, any other by frame pointers.
    pub fn tables(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// Places those probes in the object at `path` that are not in place yet.
    ///
    /// # Errors
    ///
    /// [`KernelError::TargetEnded`] where the process is no more; else what the kernel said.
    pub fn place(
        &mut self,
        probes: &mut Probes,
        scope: Scope,
        path: &Path,
        sites: &[Probe],
    ) -> Result<(), KernelError> {
        probes.place(&mut self.way(), scope, path, sites)
    }

    /// Places a probe at the entry of one function of the object at `path`.
    ///
    /// # Errors
    ///
    /// As [`Kernel::place`].
    pub fn place_entry(
        &mut self,
        probes: &mut Probes,
        scope: Scope,
        path: &Path,
        site: &Probe,
    ) -> Result<(), KernelError> {
        probes.place_entry(&mut self.way(), scope, path, site)
    }

    /// Whether one link places a program at many instructions; else each takes a perf event of its own, and removing those
    /// is slow.
    #[must_use]
    pub fn places_together(&self) -> bool {
        self.multi.is_some()
    }

    pub(super) fn way(&mut self) -> Way<'_> {
        match &mut self.multi {
            Some(multi) => Way::Together(multi),
            None => Way::OneByOne(&mut self.ebpf),
        }
    }

    /// Has the kernel time the programs from now on, or no more. Timing costs each run two readings of the clock.
    pub fn time_programs(&mut self, on: bool) {
        self.meter.turn(on);
    }

    /// How much time the programs took while they were timed.
    #[must_use]
    pub fn program_time(&self) -> ProgramTime {
        Meter::read(self.programs().map(|(_, program)| program))
    }

    /// The way of kernels that know no other.
    #[cfg(test)]
    pub(super) fn one_by_one(&mut self) -> Way<'_> {
        Way::OneByOne(&mut self.ebpf)
    }

    /// Every program that is loaded, with its name.
    fn programs(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        let others = self.ebpf.programs().filter_map(|(name, program)| Some((name, program.fd().ok()?.as_fd())));
        others.chain(self.multi.iter().flat_map(Multi::programs))
    }

    /// What the kernel half has counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        // Read before what was stood in for, of which there must not be less.
        let missed = self.missed();
        let map = self.ebpf.map("COUNTERS").and_then(|map| PerCpuArray::<_, u64>::try_from(map).ok());
        let (mut counters, turns) = map.map_or_else(Default::default, |map| counters::read(&map));
        let seldom: Vec<_> = missed.iter().filter(|(_, missed)| **missed > 0).collect();
        if !seldom.is_empty() {
            log::debug!("how often programs were not run: {seldom:?}, {turns:?}");
        }
        counters.losses.add(LossReason::ProbeMissed, tracepoints::missed(&missed, turns));
        counters
    }

    /// How often each program was not run.
    fn missed(&self) -> BTreeMap<&str, u64> {
        self.programs().map(|(name, program)| (name, counters::missed(program))).collect()
    }

    /// Passes what the kernel half has logged on to memtrace's own log.
    pub fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}

pub(super) fn rings(ebpf: &mut Ebpf) -> Result<ArrayOfMaps<&mut MapData, RingBuf<MapData>>, KernelError> {
    let map = ebpf.map_mut("RINGS").ok_or_else(|| missing("RINGS"))?;
    map.try_into().map_err(|error| KernelError::from_error("use the rings", &error))
}

pub(super) fn missing(name: &str) -> KernelError {
    KernelError::Failed { action: format!("use {name}"), reason: String::from("the kernel half does not have it") }
}

#[cfg(test)]
mod tests;
