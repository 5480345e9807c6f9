//! The thread monitor: usage of threads and processes at each interval, without events and stacks.

mod attachment;
mod cgroup_readings;
mod config;
mod jemalloc;
mod marks;
mod output_thread;
mod outputs;
mod process_readings;
mod process_selection;
mod reading;
mod recording;
mod run;
mod sampler;
mod samples;
mod sampling_thread;
mod trace_thread;
mod triggered_traces;

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

pub(crate) use self::config::{SourceChoice, ThreadsConfig, ThreadsFormat, TriggeredTrace};

use self::run::{FinishedRun, ThreadsRun};
use self::sampler::Request;
use crate::run_kit::error::Error;
use crate::run_kit::event_loop::{Signals, event_loop, process_exit, register, until};
use crate::run_kit::observer::Observer;
use crate::run_kit::outcome::Outcome;
use crate::run_kit::service_manager;

/// Interval between two polls for new mappings. Few processes map an allocator after their start, so the interval can be long.
const MAPPINGS: Duration = Duration::from_millis(100);

/// Monitors threads according to `config`.
///
/// # Errors
///
/// Until [`Observer::attached`] is called, every error ends the run and removes its probes. After that, the errors are
/// failures to wait for the targets, to read the counters, or to write the trace.
pub(crate) fn run(config: &ThreadsConfig, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    event_loop()?.block_on(async {
        let mut signals = Signals::listen()?;
        let (mut run, pidfds) = ThreadsRun::start(config, observer).await?;
        let pidfds = pidfds.into_iter().map(register).collect::<Result<Vec<_>, _>>();
        let mut pidfds = pidfds.map_err(|error| Error::Failed(format!("cannot wait for the targets: {error}")))?;
        let deadline = config.duration.map(|duration| Instant::now() + duration);
        let mut mappings = interval(MAPPINGS);
        mappings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let exec_stopped = run.exec_stopped();
        let mut reason = None;
        while reason.is_none() {
            tokio::select! {
                () = signals.any() => reason = Some("stopped"),
                () = until(deadline) => reason = Some("the duration is over"),
                was_last = process_exit(&mut pidfds) => {
                    if was_last {
                        reason = Some("all monitored processes have ended");
                    }
                }
                _ = mappings.tick() => run.update(observer),
                () = exec_stopped.notified() => run.update(observer),
                request = run.marks.next() => run.mark(request),
                reading = run.sampling.next() => match reading {
                    Some(reading) => {
                        if !run.observe(reading, observer) {
                            reason = Some("");
                        }
                    }
                    None => reason = Some("the counters can no longer be read"),
                },
            }
        }
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            observer.note(reason);
        }
        service_manager::stopping();
        run.sampling.request(Request::Stop);
        while let Some(reading) = run.sampling.next().await {
            run.observe(reading, observer);
        }
        let FinishedRun { outcome, detach, answers, trace } = run.finish(observer)?;
        if let Some(answers) = answers {
            answers.sent().await;
        }
        detach.wait(&mut signals, observer).await;
        trace.map(|()| outcome).map_err(|failure| Error::NotWritten(vec![failure]))
    })
}
