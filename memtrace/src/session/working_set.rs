//! Measurement of working sets: references are cleared, and read after a time.

mod config;
mod measured;
mod outputs;

use std::time::{Duration, Instant};

pub(crate) use self::config::{WorkingSetConfig, WorkingSetMode};

use self::measured::{Measured, Selection};
use self::outputs::WorkingSetOutputs;
use super::error::Error;
use super::observer::Observer;
use super::run::{Signals, until};
use crate::model::WorkingSets;
use crate::model::format::short;
use crate::procfs;

/// Shorter times are slept through: the timer of the event loop has a resolution of a millisecond.
const SHORT: Duration = Duration::from_millis(20);

/// Effects of clearing the references, for the user.
const SIDE_EFFECTS: &str = "method referenced: clears the accessed bits and the soft-dirty bits of all pages, which can mislead \
                            reclaim and other users of these bits, and flushes the TLBs; reading holds the mmap lock";

/// Measures working sets as `config` says.
///
/// # Errors
///
/// No process can be measured, or an output cannot be written.
pub(crate) fn measure_working_sets(config: &WorkingSetConfig, observer: &mut dyn Observer) -> Result<(), Error> {
    if !procfs::has_clear_refs() {
        return Err(Error::Kernel {
            missing: String::from("accessed bits for user space (CONFIG_PROC_PAGE_MONITOR)"),
            remedy: String::from("use a kernel with this option"),
        });
    }
    let selection = Selection::of(&config.target)?;
    let mut outputs = WorkingSetOutputs::open(config)?;
    observer.note(SIDE_EFFECTS);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Failed(format!("cannot start the event loop: {error}")))?;
    let cost = runtime.block_on(measure(config, &selection, &mut outputs, observer))?;
    match cost {
        Some(cost) => observer.note(&cost.to_string()),
        None => observer.note("stopped before the first reading"),
    }
    outputs.finish(observer)
}

/// Time that the measurements took.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Longest time that clearing and reading a process took.
    longest: Duration,
    /// Shortest requested time.
    requested: Duration,
}

impl Cost {
    fn add(&mut self, sets: &WorkingSets) {
        self.longest = self.longest.max(sets.longest_cost());
        self.requested = self.requested.min(sets.requested);
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (longest, requested) = (short(self.longest), short(self.requested));
        write!(out, "clearing and reading a process took {longest} at most")?;
        if self.longest > self.requested {
            write!(out, ", longer than the requested {requested}: references are counted that were made meanwhile")?;
        }
        Ok(())
    }
}

/// Clears and reads until the schedule, the duration or all processes end, or a signal arrives.
async fn measure(
    config: &WorkingSetConfig,
    selection: &Selection,
    outputs: &mut WorkingSetOutputs,
    observer: &mut dyn Observer,
) -> Result<Option<Cost>, Error> {
    let mut signals =
        Signals::listen().map_err(|error| Error::Failed(format!("cannot install signal handlers: {error}")))?;
    let start = Instant::now();
    let deadline = config.duration.map(|duration| start + duration);
    let mut cost: Option<Cost> = None;
    let mut number = 0;
    loop {
        let mut measured = Measured::clear(selection, start)?;
        let cleared = Instant::now();
        let mut reading = 0;
        while let Some(wait) = config.mode.wait(reading) {
            if !sleep(cleared + wait, deadline, &mut signals).await {
                return Ok(cost);
            }
            let sets = measured.read(wait);
            if sets.processes.is_empty() {
                break;
            }
            cost.get_or_insert(Cost { longest: Duration::ZERO, requested: wait }).add(&sets);
            outputs.add(sets);
            if outputs.is_closed() {
                return Ok(cost);
            }
            reading += 1;
        }
        if measured.is_empty() && selection.is_final() {
            if cost.is_none() {
                return Err(ended());
            }
            observer.note("all measured processes have ended");
            return Ok(cost);
        }
        number += 1;
        let is_over = match config.mode.period() {
            Some(period) => !sleep(start + period.saturating_mul(number), deadline, &mut signals).await,
            None => true,
        };
        if is_over {
            return if cost.is_some() { Ok(cost) } else { Err(ended()) };
        }
    }
}

fn ended() -> Error {
    Error::NothingSelected {
        message: String::from("no selected process ran long enough to be measured"),
        remedy: String::from("`ps -e` lists the running processes; a shorter duration needs less time"),
    }
}

/// Waits until `time`. Returns false if the deadline is before it, or a signal arrives.
async fn sleep(time: Instant, deadline: Option<Instant>, signals: &mut Signals) -> bool {
    let is_last = deadline.is_some_and(|deadline| deadline < time);
    let end = if is_last { deadline.unwrap_or(time) } else { time };
    let coarse = end.checked_sub(SHORT).unwrap_or(end);
    // Signals are only received while the event loop runs.
    tokio::task::yield_now().await;
    tokio::select! {
        biased;
        () = signals.any() => return false,
        () = until(Some(tokio::time::Instant::from_std(coarse))) => {}
    }
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    !is_last
}
