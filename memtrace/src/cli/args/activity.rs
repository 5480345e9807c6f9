//! Options of the activity of threads.

use std::time::Duration;

use clap::Args;

use super::headings::ACTIVITY;
use crate::cli::spans::{SpanArg, span};
use crate::cli::units;

/// Activity of threads to trace.
#[derive(Debug, Default, Args)]
pub(in crate::cli) struct ActivityArgs {
    /// Trace tasks, or the calls of a function, in each thread over time
    ///
    /// `probes` traces the tasks, locks and events that programs with memtrace.h name, in all objects of the targets,
    /// and FILE:probes those of one file. EXE:FUNCTION traces the calls of any function of an executable or library, by
    /// its symbol or demangled name. EXE:FUNCTION(id=argN) labels each call by a number, (id=argN:32) by one of 32 bits,
    /// and (name=argN) by a C string; arg0 is the first argument. Each span has its CPU time and the bytes that the
    /// thread allocates in it. The summary has totals; .html, .pftrace and .json have each span. The two probes of a task
    /// cost less than 2 µs. Those of a call cost several, and 10 to 25 µs on a virtual machine, because the kernel
    /// single-steps the return on x86-64. May be given more than once.
    #[arg(long = "span", value_name = "EXE:FUNCTION", value_parser = span, hide_short_help = true, help_heading = ACTIVITY)]
    pub(in crate::cli) spans: Vec<SpanArg>,

    /// Trace waits for futexes of at least this duration, as in 1ms
    ///
    /// Mutexes, condition variables and semaphores wait for futexes. A wait is recorded when it ends, with its stack
    /// and, for mutexes of glibc, the thread that held the lock. Units are ns, us, ms, s, m and h.
    #[arg(long, value_name = "DURATION", value_parser = units::short_duration, hide_short_help = true, help_heading = ACTIVITY)]
    pub(in crate::cli) min_wait: Option<Duration>,

    /// Time the calls of allocators, and trace those of at least this duration, as in 100us
    ///
    /// The report has a histogram of the durations for each function. They contain a part of the cost of the probes,
    /// about 1 µs. Frees are probed at their return too, which makes them as expensive as allocations. Units are those
    /// of --min-wait.
    #[arg(long, value_name = "DURATION", value_parser = units::short_duration, hide_short_help = true, help_heading = ACTIVITY)]
    pub(in crate::cli) allocator_latency: Option<Duration>,
}

impl ActivityArgs {
    /// Returns an option that is given.
    pub(in crate::cli) fn given(&self) -> Option<&'static str> {
        let options = [
            ("--span", !self.spans.is_empty()),
            ("--min-wait", self.min_wait.is_some()),
            ("--allocator-latency", self.allocator_latency.is_some()),
        ];
        options.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }
}
