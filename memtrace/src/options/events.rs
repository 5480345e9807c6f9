//! Options that choose the event classes, and options of a single event class.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use memtrace_model::EventClass;

use crate::options::headings::{FILTERS, TARGET};
use crate::options::possible_values;
use crate::options::units;

/// The event classes to trace.
#[derive(Debug, Default, Args)]
pub(crate) struct EventArgs {
    /// Trace these event classes, as in heap,reclaim [default: heap]
    ///
    /// Each class has a report of its own, since classes overlap. With several classes, file names contain the class:
    /// memtrace.heap.svg. With --all and samples of allocations, the default is heap,fault.
    #[arg(long, value_name = "EVENTS", value_delimiter = ',', value_parser = possible_values::event_classes(), hide_short_help = true, help_heading = TARGET)]
    pub(crate) events: Vec<EventClass>,
}

/// Options of traces with page faults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct PageArgs {
    /// Sample one page in N [default: 1]
    ///
    /// For page faults, to trace them all the time. The numbers of stacks are then estimates, except those of huge
    /// pages. They are shown with the error (±) that five of a hundred estimates exceed; folded stacks have no errors.
    /// The resident bytes and page faults of a process remain exact, since the kernel counts them. With --all and samples of
    /// allocations, the default is 64, and only processes without such samples are in the report of page faults.
    #[arg(long, value_name = "N", hide_short_help = true, help_heading = FILTERS)]
    pub(crate) sample: Option<NonZeroU32>,
}

/// Options of the touches of live memory, for heap and map events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct TouchArgs {
    /// Measure which live bytes are cold: not touched for this time
    ///
    /// Before the report is written, memtrace watches for this time which pages the traced processes touch. The report has
    /// the metrics hot-bytes and cold-bytes, and draws cold-bytes by default. Needs a kernel with
    /// CONFIG_IDLE_PAGE_TRACKING; with CONFIG_MEM_SOFT_DIRTY only, pages that are only read are cold too.
    #[arg(long, value_name = "DURATION", value_parser = units::duration, hide_short_help = true, help_heading = FILTERS)]
    pub(crate) cold_after: Option<Duration>,
}

impl EventArgs {
    /// Returns the traced event classes, each once.
    pub(crate) fn classes(&self) -> Vec<EventClass> {
        let mut events = self.events.clone();
        events.sort_unstable();
        events.dedup();
        if events.is_empty() {
            events.push(EventClass::default());
        }
        events
    }
}

impl PageArgs {
    /// Returns N if one page in N is traced; 1 if all pages are.
    pub(crate) fn one_in(&self) -> NonZeroU32 {
        self.sample.unwrap_or(NonZeroU32::MIN)
    }
}
