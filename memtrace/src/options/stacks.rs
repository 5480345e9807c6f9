//! Options of reports with stacks.

use clap::Args;
use memtrace_host::debuginfod::Servers;
use memtrace_model::{Metric, Requirement};

use super::events::TouchArgs;
use super::heap::BlockArgs;
use crate::options::conflict::ArgConflict;
use crate::options::headings::OUTPUT;
use crate::options::possible_values;
use crate::options::units;
use crate::run_kit::config::{Moment, Output};
use crate::run_kit::reports::heap_profiles::MAX_HEAP_PROFILES;

/// Options of reports with stacks.
#[derive(Debug, Default, Args)]
pub(crate) struct StackArgs {
    /// Add a heap profile of this time to Perfetto traces, as in +60s, in addition to those of marks and of the end
    ///
    /// Perfetto shows the differences between consecutive heap profiles. May be given more than once; at most 32 are written. The
    /// trace is recorded for it, into a temporary file without --record.
    #[arg(
        long = "heap-profile",
        value_name = "TIME",
        value_parser = units::moment,
        allow_hyphen_values = true,
        hide_short_help = true, help_heading = OUTPUT
    )]
    pub(crate) heap_profiles: Vec<Moment>,

    /// Download debug files of stripped objects after the trace [default: as DEBUGINFOD_URLS]
    ///
    /// From debuginfod servers at these URLs, separated by blanks, or else at those in DEBUGINFOD_URLS or in
    /// /etc/debuginfod. Build IDs are sent to the servers. 'off' contacts none. Files are stored in
    /// DEBUGINFOD_CACHE_PATH or ~/.cache/debuginfod_client. DEBUGINFOD_TIMEOUT and DEBUGINFOD_MAXSIZE apply.
    #[arg(long, value_name = "URLS", num_args = 0..=1, require_equals = true, default_missing_value = "", hide_short_help = true, help_heading = OUTPUT)]
    pub(crate) debuginfod: Option<String>,

    /// Draw this metric, and rank stacks by it [default: live-bytes]
    ///
    /// If all traced processes have ended, nothing is live, and the default is exit-bytes; alloc-bytes for page faults
    /// and mappings. For reclaim it is stall-time.
    #[arg(short, long, value_parser = possible_values::metrics(), help_heading = OUTPUT)]
    pub(crate) metric: Option<Metric>,

    /// Write every stack and process
    ///
    /// By default, a JSON file has at most 40MiB and a picture at most 5MiB: the smallest stacks and processes are shown
    /// as sums, as in [other: 12,345 stacks]. Sums are exact. The summary always includes every stack.
    #[arg(long, hide_short_help = true, help_heading = OUTPUT)]
    pub(crate) all_stacks: bool,
}

impl StackArgs {
    /// Refuses metrics that only a report of a recording can have.
    pub(crate) fn check(&self) -> Result<(), ArgConflict> {
        self.metric.and_then(metric_of_recordings).map_or(Ok(()), Err)
    }

    /// Returns the metric to draw. If touches are measured, the default is cold-bytes.
    pub(crate) fn resolve_metric(
        &self,
        touches: &TouchArgs,
        blocks: &BlockArgs,
    ) -> Result<Option<Metric>, ArgConflict> {
        match (self.metric, touches.cold_after) {
            (Some(metric), None) if metric.needs(Requirement::Touches) => Err(ArgConflict::new(
                format!("--metric {} needs --cold-after", metric.name()),
                "give the time after which memory is cold, as in --cold-after 10s",
            )),
            (_, Some(time)) if time.is_zero() => {
                Err(ArgConflict::new("--cold-after 0s measures no touches", "give a longer time, as in 10s"))
            }
            (_, Some(_)) if blocks.older.is_some() => {
                Err(ArgConflict::new("--cold-after counts blocks of any age", "remove --older, or --cold-after"))
            }
            (None, Some(_)) => Ok(Some(Metric::ColdBytes)),
            (metric, _) => Ok(metric),
        }
    }

    /// Returns the debuginfod servers to ask for debug files.
    pub(crate) fn servers(&self) -> Servers {
        match self.debuginfod.as_deref().map(str::trim) {
            None => Servers::Environment,
            Some("") => Servers::Known,
            Some("off") => Servers::None,
            Some(urls) => Servers::Urls(urls.to_owned()),
        }
    }
}

/// Returns the error for a metric that only a report of a recording can have; `None` for another metric.
fn metric_of_recordings(metric: Metric) -> Option<ArgConflict> {
    let (needs, steps) = match metric.requirement() {
        Requirement::Moments => ("two moments", "and write: `memtrace report --from +10s --to -5s run.memtrace`"),
        Requirement::Marks => (
            "two marks",
            "set marks with `memtrace mark`, and write: `memtrace report --between MARK MARK run.memtrace`",
        ),
        _ => return None,
    };
    let message = format!("--metric {} needs {needs} of a recording", metric.name());
    Some(ArgConflict::new(message, format!("record the trace, {steps}")))
}

/// Checks the number of given heap profiles, and that an output can show heap profiles of several moments.
pub(crate) fn check_heap_profiles(moments: &[Moment], outputs: &[Output]) -> Result<(), ArgConflict> {
    if moments.len() > MAX_HEAP_PROFILES {
        return Err(ArgConflict::new("--heap-profile is given more than 32 times", "give fewer times"));
    }
    if !moments.is_empty() && !outputs.iter().any(|output| output.format.shows_moments()) {
        return Err(ArgConflict::new(
            "--heap-profile applies to Perfetto traces of stacks",
            "add one, as in -o run.pftrace, or show one time with `memtrace report --at`",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{refusal_of_trace as refused, resolved_trace as resolved};

    #[test]
    fn cold_memory_is_measured_on_request() {
        let metric = |line: &str| resolved(line).map(|config| config.metric);
        assert_eq!(metric("-p 1 --cold-after 10s"), Ok(Some(Metric::ColdBytes)));
        assert_eq!(metric("-p 1 --events map --cold-after 10s -m hot-bytes"), Ok(Some(Metric::HotBytes)));
        assert_eq!(refused("-p 1 -m cold-bytes"), "--metric cold-bytes needs --cold-after");
        assert_eq!(refused("-p 1 --cold-after 0s"), "--cold-after 0s measures no touches");
        assert_eq!(refused("-p 1 --cold-after 1s --older 1s"), "--cold-after counts blocks of any age");
        let other_events = refused("-p 1 --events fault --cold-after 1s");
        assert!(other_events.starts_with("--cold-after needs heap or map events"), "{other_events}");
    }
}
