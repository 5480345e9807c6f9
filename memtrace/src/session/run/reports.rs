//! The reports of a run, one for each class of events: opened before it, written after it.

use std::ops::Range;
use std::time::Duration;

use super::cost;
use crate::kernel::{Counters, ProgramTime};
use crate::model::{EventClass, Losses, Profile, Snapshots, Tick};
use crate::report;
use crate::session::config::{Config, Destination, Output};
use crate::session::error::Error;
use crate::session::malloc_trim;
use crate::session::observer::Observer;
use crate::session::outputs::Outputs;
use crate::session::sample::{memcgs, reclaim};
use crate::session::track::Followed;
use crate::symbolize::Symbolizer;

/// Reports that can be written.
pub(super) struct Reports(Vec<(EventClass, Outputs)>);

/// What is told of a run beside its books.
pub(super) struct Told<'run> {
    /// What reports call who was traced.
    pub(super) subject: &'run str,
    /// What the user should know of it.
    pub(super) notes: &'run [String],
    pub(super) followed: &'run Followed,
    pub(super) counters: &'run Counters,
    pub(super) programs: &'run ProgramTime,
    /// What the machine did to find memory; `None` where that was not followed.
    pub(super) reclaim: Option<reclaim::Ended>,
    /// How many events there were.
    pub(super) events: u64,
    pub(super) window: Range<Tick>,
    pub(super) duration: Duration,
}

impl Reports {
    /// Opens the files of every report, or none.
    pub(super) fn open(config: &Config) -> Result<Self, Error> {
        let open = |&class: &EventClass| Ok((class, Outputs::open(&output_of(config, class))?));
        config.events.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Writes every report; what was lost is returned.
    pub(super) fn write(
        self,
        config: &Config,
        mut snapshots: Snapshots,
        mut told: Told<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Losses, Error> {
        let symbolizer = Symbolizer::new();
        let mut losses = Losses::default();
        for (class, outputs) in self.0 {
            let snapshot = snapshots.0.remove(&class).unwrap_or_default();
            let mut profile = symbolizer.profile(snapshot, told.followed.images(), &told.window);
            malloc_trim::give_back();
            profile.class = class;
            if class.counts_pages() {
                profile.page_sample = config.page_sample.get();
            }
            if class.counts_stalls()
                && let Some(reclaim) = told.reclaim.take()
            {
                reclaim.tell(&mut profile);
            }
            memcgs::name_kills(&mut profile);
            profile.duration = told.duration;
            profile.notes = told.notes.to_vec();
            let hits = if class.probes_allocators() { profile.total().alloc.count } else { 0 };
            profile.cost = cost::so_far(told.events, told.counters.nested, told.programs, hits);
            if class.probes_allocators() {
                profile.allocators = told.followed.allocators.names().clone();
                profile.filtered = told.counters.filtered;
                profile.older = config.older;
            }
            write(config, told.subject, outputs, &profile, observer)?;
            // What was lost before there were classes is in each of them; only frames are lost of one.
            if profile.losses.total() > losses.total() {
                losses = profile.losses;
            }
        }
        Ok(losses)
    }
}

/// The files of `class`'s report: where there are several classes, with its name before the extension.
fn output_of(config: &Config, class: EventClass) -> Vec<Output> {
    let mut outputs = config.outputs.clone();
    if config.events.len() > 1 {
        for output in &mut outputs {
            if let Destination::File(path) = &mut output.destination {
                let extension = path.extension().unwrap_or_default().to_os_string();
                path.set_extension(class.name());
                path.as_mut_os_string().push(".");
                path.as_mut_os_string().push(extension);
            }
        }
    }
    outputs
}

/// Writes `profile` to its outputs, and shows its summary.
fn write(
    config: &Config,
    subject: &str,
    outputs: Outputs,
    profile: &Profile,
    observer: &mut dyn Observer,
) -> Result<(), Error> {
    let options = report::Options {
        metric: profile.class.metric_or_default(config.metric),
        by: config.by,
        top: config.top,
        subject: subject.to_owned(),
    };
    let (written, failure) = outputs.write(profile, &options);
    let mut summary = Vec::new();
    report::write(report::Format::Text, profile, &options, &mut summary)
        .map_err(|error| Error::Failed(format!("the summary could not be written: {error}")))?;
    observer.summary(&String::from_utf8_lossy(&summary));
    for path in written {
        observer.note(&format!("wrote {}", path.display()));
    }
    failure.map_or(Ok(()), Err)
}
