//! Compares two saved reports. A saved report is a JSON report, or a moment of a recording.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use memtrace_model::{EventClass, Metric, printable};
use memtrace_report::{Format, SavedReport, Side};

use crate::replay;
use crate::run_kit::config::{Moment, Output};
use crate::run_kit::error::Error;
use crate::run_kit::outputs::{Content, Outputs};
use crate::run_kit::privileges;

/// Configuration of `memtrace diff`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) before: Source,
    pub(crate) after: Source,
    /// Event class to compare if a report is a recording; `None` selects the first class of the recording.
    pub(crate) events: Option<EventClass>,
    /// Metric to compare; `None` selects the metric of the reports.
    pub(crate) metric: Option<Metric>,
    pub(crate) outputs: Vec<Output>,
    /// Number of sites in the text output.
    pub(crate) top: usize,
}

/// A report to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// Name of the report as the user gave it: the file, and the moment.
    pub(crate) name: String,
    /// Path of the JSON report or of the recording.
    pub(crate) path: PathBuf,
    /// Moment of a recording; `None` selects its end.
    pub(crate) at: Option<Moment>,
}

/// Reads both reports and writes their difference.
///
/// # Errors
///
/// A report cannot be read, the reports cannot be compared, or an output cannot be written.
pub(crate) fn run(config: &Config) -> Result<(), Error> {
    privileges::keep_for_reports();
    privileges::forbid_dumps();
    let read = |source: &Source| read(source, config.events).map_err(|error| of_other_format(source, error));
    let [before, after] = [&config.before, &config.after].map(read);
    let (before, after) = (before?, after?);
    let metric = comparable_metric(&before, &after, config.metric)?;
    // If no metric was chosen and the metrics of the reports differ, one report has live bytes, and the other one bytes
    // held at exit.
    let is_end = config.metric.is_none() && before.metric != after.metric;
    let outputs = Outputs::open(&config.outputs)?;
    let side = |source: &Source, SavedReport { subject, profile, .. }| {
        let side = Side::new(source.name.clone(), subject, profile);
        if is_end { side.held() } else { side }
    };
    let (before, after) = (side(&config.before, before), side(&config.after, after));
    let content: &Content<'_> =
        &|format, _, out| memtrace_report::write_difference(format, &before, &after, metric, config.top, out);
    // A comparison can be made again, so it needs no rescue file.
    let (_, failures) = outputs.fill(content, &[]);
    if failures.is_empty() { Ok(()) } else { Err(Error::NotWritten(failures)) }
}

/// Returns the error for a report that cannot be read. If its name has the extension of a format that memtrace only
/// writes, the error says so: the user may have meant the name of an output.
fn of_other_format(source: &Source, error: Error) -> Error {
    let format = Format::of_path(&source.path).filter(|format| *format != Format::Json);
    let (Some(format), Error::Recording { .. } | Error::BadReport { .. }) = (format, &error) else { return error };
    let name = printable(&source.path);
    let output = match Format::OF_DIFFERENCES.contains(&format) {
        true => format!("; to write the comparison to {name}, add -o before it"),
        false => String::new(),
    };
    Error::NotComparable {
        message: format!("{name} cannot be compared: memtrace writes {}, but does not read it", format.name()),
        remedy: format!("give two reports in JSON, as -o FILE.json writes them, or recordings{output}"),
    }
}

#[expect(clippy::disallowed_methods, reason = "the user names the report")]
fn read(source: &Source, class: Option<EventClass>) -> Result<SavedReport, Error> {
    let Source { name, path, at } = source;
    let bad = |reason: String| Error::BadReport { path: path.clone(), reason };
    if !is_json(path).map_err(|error| bad(error.to_string()))? {
        return replay::report_on(path, *at, class);
    }
    if at.is_some() {
        return Err(Error::NotComparable {
            message: format!("{} has no other moment than its end: it is a report in JSON", printable(name)),
            remedy: String::from("remove the part after @, or give a recording"),
        });
    }
    let bytes = fs::read(path).map_err(|error| bad(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| bad(String::from("it is not a report in JSON")))?;
    memtrace_report::read_json(&text).map_err(|error| bad(error.to_string()))
}

/// Returns true for a report in JSON, and false for a recording. The name or the first character decides.
#[expect(clippy::disallowed_methods, reason = "the user names the report")]
fn is_json(path: &Path) -> io::Result<bool> {
    let mut start = [0];
    let length = File::open(path)?.read(&mut start)?;
    let is_named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    Ok(is_named || start.get(..length) == Some(b"{"))
}

/// Returns `chosen`, or the metric that both reports have. Live bytes are comparable with bytes held at exit: these were the
/// live bytes of the processes when they ended.
fn comparable_metric(before: &SavedReport, after: &SavedReport, chosen: Option<Metric>) -> Result<Metric, Error> {
    use Metric::{ExitBytes, LiveBytes};

    let (first, second) = (before.profile.run.class, after.profile.run.class);
    if first != second {
        return Err(Error::NotComparable {
            message: format!("the first report has {} events, the second {} events", first.name(), second.name()),
            remedy: String::from("compare reports of one event class"),
        });
    }
    if let Some(metric) = chosen.filter(|metric| !metric.is_of(first)) {
        let names: Vec<_> = Metric::all_of(first).map(Metric::name).collect();
        return Err(Error::NotComparable {
            message: format!("{} events have no {}", first.name(), metric.name()),
            remedy: format!("give --metric with one of {}", names.join(", ")),
        });
    }
    let metrics = (before.metric, after.metric);
    match chosen {
        Some(metric) => Ok(metric),
        None if before.metric == after.metric => Ok(before.metric),
        None if matches!(metrics, (LiveBytes, ExitBytes) | (ExitBytes, LiveBytes)) => Ok(ExitBytes),
        None => Err(Error::NotComparable {
            message: format!(
                "the first report is sorted by {}, the second by {}",
                before.metric.name(),
                after.metric.name()
            ),
            remedy: format!("choose one: --metric {}", after.metric.name()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use harness::Scratch;
    use memtrace_model::RunFacts;
    use memtrace_model::{EventClass, Profile};

    use super::*;

    fn saved(class: EventClass, metric: Metric) -> SavedReport {
        SavedReport {
            subject: String::new(),
            metric,
            profile: Profile { run: RunFacts { class, ..RunFacts::default() }, ..Profile::default() },
        }
    }

    #[test]
    fn report_in_a_format_that_is_only_written_is_refused() {
        let scratch = Scratch::new();
        fs::write(scratch.path("a.svg"), "<?xml version=\"1.0\"?>").unwrap();
        let error = |name: &str| {
            let source = Source { name: name.to_owned(), path: scratch.path(name), at: None };
            of_other_format(&source, read(&source, None).err().unwrap())
        };
        let formats = [("a.svg", "svg", true), ("b.folded", "folded", true), ("c.html", "html", false)];
        for (name, format, is_output) in formats {
            let Error::NotComparable { message, remedy } = error(name) else { panic!("{name}") };
            let words = format!("/{name} cannot be compared: memtrace writes {format}, but does not read it");
            assert!(message.ends_with(&words), "{message}");
            assert!(remedy.starts_with("give two reports in JSON"), "{remedy}");
            assert_eq!(remedy.ends_with(", add -o before it"), is_output, "{remedy}");
        }
        // The name has no extension of a format, so the error is about the content of the file.
        fs::write(scratch.path("text"), "text").unwrap();
        assert!(matches!(error("text"), Error::Recording { .. }));
        assert!(matches!(error("missing.json"), Error::BadReport { .. }));
    }

    #[test]
    fn metric_is_that_of_both_reports_or_the_chosen_one() {
        let live = saved(EventClass::Heap, Metric::LiveBytes);
        let exit = saved(EventClass::Heap, Metric::ExitBytes);
        let metric =
            |before, after, chosen| comparable_metric(before, after, chosen).map_err(|error| error.to_string());
        assert_eq!(metric(&live, &live, None), Ok(Metric::LiveBytes));
        assert_eq!(metric(&live, &exit, Some(Metric::AllocCount)), Ok(Metric::AllocCount));
        assert_eq!(metric(&live, &exit, None), Ok(Metric::ExitBytes));
        assert_eq!(metric(&exit, &live, None), Ok(Metric::ExitBytes));
        let peak = saved(EventClass::Heap, Metric::PeakBytes);
        let refused = Err(String::from("the first report is sorted by live-bytes, the second by peak-bytes"));
        assert_eq!(metric(&live, &peak, None), refused);
        let refused = Err(String::from("heap events have no stall-time"));
        assert_eq!(metric(&live, &live, Some(Metric::StallTime)), refused);
        let maps = saved(EventClass::Map, Metric::LiveBytes);
        let refused = Err(String::from("the first report has heap events, the second map events"));
        assert_eq!(metric(&live, &maps, None), refused);
    }
}
