//! A run of a command that traces, from its configuration to its report.

mod account_interval;
mod account_text;
mod activity_changes;
pub(crate) mod config;
mod context;
mod cost;
mod debug_files;
mod ended_images;
mod facts;
mod function_site;
mod mark_functions;
mod marks;
mod memory;
mod overhead;
mod part;
mod parts;
mod recorder;
mod reports;
mod run;
mod run_report;
mod setup;
mod snapshots;
mod stack_copies;
mod tag_functions;
mod tag_presets;
mod tag_probes;
mod touch_meter;
mod user_probe_sites;
mod wait;

use self::config::Config;
use self::marks::MarkSources;
use self::reports::Reports;
use self::run::start::start;
use self::touch_meter::TouchMeter;
use self::wait::{Stop, Wakeups};
use crate::run_kit::error::Error;
use crate::run_kit::event_loop::{Signals, event_loop, register};
use crate::run_kit::forced_end;
use crate::run_kit::observer::Observer;
use crate::run_kit::outcome::Outcome;
use crate::run_kit::own_allocator;
use crate::run_kit::privileges;
use crate::run_kit::protection;
use crate::run_kit::service_manager;
use crate::run_kit::start_progress::StartProgress;

/// Traces according to `config`, and writes the reports.
///
/// # Errors
///
/// Until [`Observer::attached`] is called, every error ends the run and removes its probes. After that, only a report
/// that cannot be written is an error; everything else is a loss, or a warning and an incomplete outcome.
pub(crate) fn run(config: &Config, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    own_allocator::return_pages_at_once();
    let reports = Reports::open(config)?;
    event_loop()?.block_on(trace(config, reports, observer))
}

async fn trace(config: &Config, reports: Reports, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    let mut signals = Signals::listen()?;
    let meter = config.touches.cold_after.map(TouchMeter::open).transpose()?;
    let mut marks = MarkSources::listen(config, observer)?;
    forced_end::set_attaching(true);
    let progress = StartProgress::start("checking the kernel", observer.step_display());
    let mut trace = start(config, &progress, observer)?;
    drop(progress);
    forced_end::set_attaching(false);
    let mut wakeups = Wakeups::listen(trace.wakeup_sources()?)
        .map_err(|error| Error::Failed(format!("cannot wait for the BPF programs: {error}")))?;
    if config.tuning.protect {
        protection::protect().iter().for_each(|warning| log::warn!("{warning}"));
    }
    privileges::forbid_dumps();
    if let Some(descriptor) = trace.mark_descriptor() {
        let functions = register(descriptor);
        marks.add_functions(
            functions.map_err(|error| Error::Failed(format!("cannot wait for functions that set marks: {error}")))?,
        );
    }
    trace.release_command()?;
    service_manager::ready();
    // The countdown starts before the message, so that a reader of the message can rely on the end.
    let deadline = trace.count_down(config.duration);
    observer.attached(&trace.description());
    for note in trace.waiting_note(config).iter().chain(trace.notes()) {
        observer.note(note);
    }
    let handle = |due| trace.handle(due, observer);
    let stop = wait::wait(&mut signals, deadline, &mut wakeups, &mut marks, handle).await;
    observer.note(match stop {
        Stop::Signal => "stopped",
        Stop::Duration => "the duration is over",
        Stop::TargetsExited => "all traced processes have ended",
        Stop::OverheadLimit => "tracing costs the targets more than --max-overhead allows",
    });
    let mut touches = None;
    if let Some(meter) = meter.filter(|_| !matches!(stop, Stop::TargetsExited | Stop::OverheadLimit)) {
        observer.note(&meter.description());
        let cleared = meter.clear(&trace.running());
        let deadline = trace.count_down(Some(meter.window()));
        let handle = |due| trace.handle(due, observer);
        wait::wait(&mut signals, deadline, &mut wakeups, &mut marks, handle).await;
        touches = meter.read(&cleared);
    }
    service_manager::stopping();
    let answers = marks.close();
    let finished = trace.finish(config, touches, reports, &mut signals, observer).await;
    if let Some(answers) = answers {
        answers.sent().await;
    }
    let (outcome, detach) = finished?;
    detach.wait(&mut signals, observer).await;
    Ok(outcome)
}
