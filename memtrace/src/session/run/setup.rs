//! The kernel half loaded for a run: what it is told, and, with its help, what tracing will cost.

use std::thread;
use std::time::Duration;

use crate::kernel::{self, Kernel, Probes, ProcessFilter, RingReader};
use crate::model::{Bytes, EventClass, Metric, PartitionBy, Pid};
use crate::session::config::Config;
use crate::session::error::Error;
use crate::session::error::from_engines;
use crate::session::overhead::{self, Overhead};
use crate::session::select::filter;
use crate::session::select::{Site, Subject};
use crate::session::track::Followed;

/// By default one shard a processor, but no more than this: one already takes millions of events in a second.
const DEFAULT_SHARDS: usize = 4;

/// The kernel half, loaded, and what was placed to foretell the cost.
pub(super) struct Loaded {
    pub(super) kernel: Kernel,
    pub(super) readers: Vec<RingReader>,
    /// Who is traced, as the kernel half was told.
    pub(super) selection: ProcessFilter,
    /// The first of the targets' probes.
    pub(super) probes: Probes,
    /// Those in memtrace itself.
    pub(super) own_probes: Probes,
}

impl Loaded {
    /// Loads the kernel half as `config` says. Where `sites` are of processes that run already, their calls are counted, and
    /// what tracing will cost is noted with the subject; where that is more than it may, the kernel half is told to filter.
    pub(super) fn load(
        config: &Config,
        clock_start: Duration,
        subject: &mut Subject,
        sites: &[Site],
        followed: &mut Followed,
    ) -> Result<Self, Error> {
        let selection = filter::of(&config.target, config.events.iter().all(|class| class.probes_allocators()))?;
        let mut options = options(config, clock_start, selection);
        let mut probes = Probes::default();
        let mut own_probes = Probes::default();
        let pids: Vec<_> = subject.pids().collect();
        let (mut kernel, mut readers) = load(&options, &pids)?;
        if subject.is_running() && config.follows(EventClass::probes_allocators) {
            let takes_stacks = config.max_depth > 0;
            let prices = overhead::prices(&mut kernel, &mut own_probes, followed, sites, takes_stacks)?;
            let overhead = Overhead::measure(&mut kernel, &mut probes, sites, &pids, prices)?;
            subject.expected.push(overhead::describe(overhead.foretell(options.min_size)));
            if let Some(limit) = config.max_overhead {
                let size = overhead.within(limit, options.min_size)?;
                if size > options.min_size {
                    subject.expected.push(format!("so as not to, only allocations of at least {size} are traced"));
                    // What the programs filter is fixed when they are loaded.
                    options.min_size = size;
                    probes = Probes::default();
                    (kernel, readers) = load(&options, &pids)?;
                }
            }
        }
        Ok(Self { kernel, readers, selection: options.filter, probes, own_probes })
    }
}

/// Loads the BPF programs, and lists the processes to trace.
fn load(options: &kernel::Options, pids: &[Pid]) -> Result<(Kernel, Vec<RingReader>), Error> {
    let (mut kernel, readers) = Kernel::load(options).map_err(|error| from_engines::kernel(None, error))?;
    for &pid in pids {
        kernel.follow(pid).map_err(|error| from_engines::kernel(Some(pid), error))?;
    }
    Ok((kernel, readers))
}

fn options(config: &Config, clock_start: Duration, selection: ProcessFilter) -> kernel::Options {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let default = u32::try_from(processors.min(DEFAULT_SHARDS)).unwrap_or(1);
    kernel::Options {
        // A peak needs the true order of all events, which only one ring keeps.
        rings: if config.metric == Metric::PeakBytes { 1 } else { config.shards.map_or(default, u32::from) },
        ring_size: config.ring_size,
        max_depth: config.max_depth,
        min_size: config.min_size.unwrap_or(Bytes(0)),
        max_size: config.max_size.unwrap_or(Bytes(u64::MAX)),
        start_ns: u64::try_from(clock_start.as_nanos()).unwrap_or(u64::MAX),
        filter: selection,
        records_allocators: config.by.parts() == PartitionBy::Allocators,
        page_sample: config.follows(EventClass::counts_pages).then_some(config.page_sample),
        reclaim: config.follows(EventClass::counts_stalls),
        records_mappings: config.follows(EventClass::holds_mappings),
    }
}
