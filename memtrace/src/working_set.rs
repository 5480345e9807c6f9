//! Measurement of working sets: clears the references of pages, waits, and reads the references. A reference is the
//! record of an access, such as the accessed bit of a page table entry.

mod cache_meter;
mod cleared;
mod config;
mod cost;
mod fault_tracer;
mod limits;
mod machine;
mod method;
mod outputs;
mod selection;

use std::time::{Duration, Instant};

use memtrace_host::procfs::{self, UnmappedCache};
use memtrace_model::format::{counted, percent};
use memtrace_model::{Fit, UnknownFrames, UnmeasuredProcesses, WorkingSets};

pub(crate) use self::config::{WorkingSetConfig, WorkingSetMode};

use self::cache_meter::CacheMeter;
use self::cleared::ClearedProcesses;
use self::cost::Cost;
use self::machine::MachineReader;
use self::method::Method;
use self::outputs::WorkingSetOutputs;
use self::selection::Selection;
use crate::run_kit::descriptors;
use crate::run_kit::error::Error;
use crate::run_kit::event_loop::{Signals, event_loop, until};
use crate::run_kit::observer::Observer;
use crate::run_kit::privileges;
use crate::run_kit::start_progress::StartProgress;
use crate::targets::select::LeftOut;

/// Duration of the `thread::sleep` at the end of a wait. The timer of the event loop has a resolution of only a
/// millisecond.
const SHORT: Duration = Duration::from_millis(20);

/// Measures working sets according to `config`. Returns false if readings are missing in the outputs.
///
/// # Errors
///
/// No process can be measured, or an output cannot be written.
pub(crate) fn measure_working_sets(config: &WorkingSetConfig, observer: &mut dyn Observer) -> Result<bool, Error> {
    privileges::keep_for_tracing();
    let progress = StartProgress::start("looking for other memtraces", observer.step_display());
    let left_out = LeftOut::find(&config.target);
    progress.begin("preparing the measurement");
    let method = Method::open(config.method, &config.target, &left_out)?;
    drop(progress);
    privileges::forbid_dumps();
    // The measurement holds a pidfd for each process.
    descriptors::raise_limit();
    let selection = Selection::resolve(&config.target, &left_out)?;
    let mut outputs = WorkingSetOutputs::open(config)?;
    observer.note(&format!("method {}: {}", method.kind().name(), method.kind().side_effects()));
    left_out.note().iter().for_each(|note| observer.note(note));
    let mut cost = Cost::default();
    let measured = event_loop()?.block_on(measure(config, &method, &selection, &mut outputs, &mut cost, observer));
    if cost.is_empty() {
        return measured;
    }
    observer.note(&cost.text());
    method.tracing_cost().iter().for_each(|line| observer.note(line));
    privileges::priority_note().into_iter().for_each(|line| observer.note(line));
    if let Some(warning) = cost.warning() {
        log::warn!("{warning}");
    }
    // Write the outputs even after an error: the earlier readings are valid.
    let written = outputs.finish(observer);
    let (is_complete, are_written) = (measured?, written?);
    Ok(is_complete && are_written)
}

/// Clears and reads until a signal arrives, or the schedule, the duration or the last process ends. Returns false if named
/// processes could not be read to the end.
async fn measure(
    config: &WorkingSetConfig,
    method: &Method,
    selection: &Selection,
    outputs: &mut WorkingSetOutputs,
    cost: &mut Cost,
    observer: &mut dyn Observer,
) -> Result<bool, Error> {
    let mut signals = Signals::listen()?;
    let mut machine = MachineReader::start();
    let cache = method.unmapped_cache(&Selection::groups(&config.target))?;
    let mut meter = CacheMeter::default();
    let first_wait = config.mode.wait(0).unwrap_or_default();
    let start = Instant::now();
    let (mut deadline, mut most_unreadable) = (None, 0);
    let unmeasured = 'measurements: loop {
        let mut cleared = ClearedProcesses::clear(method, selection, config.pause, first_wait, start)?;
        if let Some(cache) = &cache {
            cache.clear().map_err(|error| unreadable(&error))?;
        }
        let at = Instant::now();
        let pids = cleared.pids();
        machine.limits.watch(&pids);
        meter.start(&pids, observer);
        deadline = deadline.or_else(|| config.duration.map(|duration| at + duration));
        let mut reading = 0;
        while let Some(wait) = config.mode.wait(reading).filter(|_| !cleared.is_empty()) {
            let is_over = !sleep(at + wait, deadline, &mut signals, &mut machine).await;
            // If there is no reading yet, a reading over a shorter time than requested is better than
            // none.
            if is_over && !cost.is_empty() {
                break 'measurements cleared.unmeasured();
            }
            let mut sets = cleared.read(if is_over { at.elapsed() } else { wait }, config.fit);
            sets.cache = meter.read(observer);
            sets.is_cumulative = config.mode.is_cumulative();
            (sets.seconds, sets.kswapd_runs) = machine.result();
            (sets.limits, sets.limits_left_out) = (machine.limits.result(), machine.limits.left_out());
            sets.unmapped_cache =
                cache.as_ref().map(UnmappedCache::read).transpose().map_err(|error| unreadable(&error))?;
            sets.fit = match config.fit.then(|| fit(&sets)).transpose() {
                // The other readings are valid.
                Err(error) if !cost.is_empty() => {
                    observer.note(&format!("this reading has no estimate: {error}"));
                    None
                }
                fit => fit?,
            };
            if !sets.processes.is_empty() {
                cost.add(&sets);
                outputs.add(sets);
            }
            if is_over || outputs.is_closed() {
                break 'measurements cleared.unmeasured();
            }
            reading += 1;
        }
        if selection.has_ended() && !cost.is_empty() {
            observer.note("all measured processes have ended");
            break cleared.unmeasured();
        }
        let unmeasured = cleared.unmeasured();
        most_unreadable = most_unreadable.max(unmeasured.unreadable);
        // Dropping ends the monitors of DAMON before the pause.
        drop(cleared);
        let next = config.mode.next(start.elapsed()).map(|time| start + time).filter(|_| !selection.has_ended());
        let has_time = |next: &Instant| deadline.is_none_or(|deadline| *next + first_wait <= deadline);
        let is_over = match next.filter(has_time) {
            Some(next) => !sleep(next, deadline, &mut signals, &mut machine).await,
            None => true,
        };
        if is_over {
            break unmeasured;
        }
    };
    if cost.is_empty() {
        return Err(nothing_measured(unmeasured));
    }
    // A named process is in each reading until it ends.
    let most_unreadable = most_unreadable.max(unmeasured.unreadable);
    let is_complete = most_unreadable == 0 || !matches!(selection, Selection::Named(_));
    if !is_complete {
        let processes = counted(most_unreadable, "process", "processes");
        observer.note(&format!("{processes} could not be read to the end: {WAITS}"));
    }
    Ok(is_complete)
}

/// Likely reason that a process cannot be read although memtrace has the permission.
const WAITS: &str = "perhaps it holds a lock of its memory and waits for a FUSE or NFS server";

/// Returns the error for page cache that cannot be read.
fn unreadable(error: &std::io::Error) -> Error {
    Error::Failed(format!("cannot read the page cache of the control groups: {error}"))
}

/// Estimates the memory that the measured processes need.
///
/// # Errors
///
/// The processes share pages, and the page frames are unknown.
fn fit(sets: &WorkingSets) -> Result<Fit, Error> {
    let memory = sets.memory_for_limit().map_err(|reason| without_frames(sets, reason))?;
    let cache = sets.unmapped_cache.map(|(_, touched)| touched).unwrap_or_default();
    let high = if let [process] = &sets.processes[..] { procfs::memory_high(process.pid) } else { None };
    Ok(Fit::of(&memory, cache, procfs::has_swap(), high))
}

/// Returns the error for processes that share pages with unknown frames.
fn without_frames(sets: &WorkingSets, reason: UnknownFrames) -> Error {
    let remedy = match reason {
        UnknownFrames::NotPermitted => "run memtrace with CAP_SYS_ADMIN, as root has it, or measure one process",
        UnknownFrames::Late => "measure fewer processes",
        UnknownFrames::Unreadable => "add --verbose for the reason",
    };
    Error::CannotMeasure {
        message: format!(
            "--fit cannot count each page once: {} of the pages are shared, and {}",
            percent(sets.shared_part()),
            reason.reason()
        ),
        remedy: remedy.to_owned(),
    }
}

/// Returns the error for a measurement without a reading.
fn nothing_measured(unmeasured: UnmeasuredProcesses) -> Error {
    let UnmeasuredProcesses { exited, not_permitted, unreadable } = unmeasured;
    if not_permitted > 0 {
        return Error::Permission {
            action: String::from("read the selected processes"),
            capability: String::from("CAP_SYS_PTRACE and CAP_DAC_OVERRIDE, and no sandbox that refuses it"),
        };
    }
    if unreadable > 0 {
        return Error::CannotMeasure {
            message: format!("{} cannot be read", counted(unreadable, "process", "processes")),
            remedy: format!("look at the threads in the state D of `ps -L`: {WAITS}"),
        };
    }
    let message = match exited {
        0 => "no running process is selected",
        _ => "all selected processes ended before they were read",
    };
    Error::NothingSelected {
        message: message.to_owned(),
        remedy: String::from("`ps -e` lists the running processes; a shorter time of measurement may help"),
    }
}

/// Waits until `time` or an earlier deadline. Returns false if the deadline or a signal ended the
/// wait.
async fn sleep(time: Instant, deadline: Option<Instant>, signals: &mut Signals, machine: &mut MachineReader) -> bool {
    let is_last = deadline.is_some_and(|deadline| deadline < time);
    let end = if is_last { deadline.unwrap_or(time) } else { time };
    let coarse = end.checked_sub(SHORT).unwrap_or(end);
    // Signals are only received while the event loop runs.
    tokio::task::yield_now().await;
    loop {
        let until_next = coarse.min(machine.next());
        tokio::select! {
            biased;
            () = signals.any() => return false,
            () = until(Some(tokio::time::Instant::from_std(until_next))) => {}
        }
        machine.tick();
        if until_next == coarse {
            break;
        }
    }
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    machine.tick();
    !is_last
}
