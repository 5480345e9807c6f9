//! Reads reports in JSON for comparisons.

use std::path::PathBuf;
use std::time::Duration;

use memtrace_json::{self as schema, NumberMut, Numbers, Object, SCHEMA_VERSION};
use memtrace_model::{
    AbsAddr, Amount, Bytes, Demotion, EventClass, Frame, FrameId, ImageEnd, LossReason, Losses, Metric, Name,
    ObjectName, Part, Pid, ProcessProfile, Profile, ProfileRows, Quantities, Quantity, RunFacts, SampleSource, Sampler,
    Samplers, StackEnd, StackProfile, Unnamed, Variance, VirtOffset,
};
use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny, Unexpected};

use crate::estimate::Margin;

/// A report that was read from JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedReport {
    /// Traced target, for titles: `pid 4711 (redis-server)`.
    pub subject: String,
    /// Sort key of the stacks in the report.
    pub metric: Metric,
    /// Profile with the processes, stacks, frames, losses, event class, duration, minimum age and samplers of the report.
    /// Everything else has its default.
    pub profile: Profile,
}

/// Error of reading a report.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The text is not JSON, or lacks a key of a report.
    #[error("it is not a report in JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The report has another version of the format.
    #[error("it has version {0} of the format, and this memtrace reads version {SCHEMA_VERSION}")]
    Version(u32),
    /// A value is a name that this version of memtrace does not know.
    #[error("its {key} is {value:?}, which this memtrace does not know")]
    Unknown {
        /// Key of the value.
        key: &'static str,
        /// The unknown name.
        value: String,
    },
    /// The report has the changes between two moments, not totals.
    #[error("it shows the changes between two moments, not the totals at one")]
    Window,
    /// A stack has the index of a process or frame that does not exist.
    #[error("a stack refers to a {0} that is not in the report")]
    Missing(&'static str),
}

/// Reads a report in JSON.
///
/// # Errors
///
/// Returns an error if `text` is not a report of totals in a version of the format that this memtrace reads.
pub fn read(text: &str) -> Result<SavedReport, ReadError> {
    let Header { schema_version } = serde_json::from_str(text)?;
    if schema_version != SCHEMA_VERSION {
        return Err(ReadError::Version(schema_version));
    }
    let report: ComparableReport = serde_json::from_str(text)?;
    if report.window.is_some() {
        return Err(ReadError::Window);
    }
    let metric = Metric::from_name(&report.metric);
    let class = EventClass::ALL.iter().copied().find(|class| class.name() == report.events);
    let run = RunFacts {
        class: class.ok_or_else(|| unknown("events", &report.events))?,
        duration: seconds(report.duration_s),
        older: report.older_s.map(seconds),
        samplers: samplers(&report)?,
        ..RunFacts::default()
    };
    let mut rows = ProfileRows {
        losses: losses(&report.losses),
        processes: report.processes.into_iter().map(process).collect(),
        frames: report.frames.into_iter().map(frame).collect(),
        ..ProfileRows::default()
    };
    for ReadStack(stack) in report.stacks {
        let stack = stack?;
        let process = rows.processes.get_mut(stack.process).ok_or(ReadError::Missing("process"))?;
        if stack.frames.iter().any(|frame| frame.index() >= rows.frames.len()) {
            return Err(ReadError::Missing("frame"));
        }
        process.total += stack.usage.additive();
        rows.stacks.push(stack);
    }
    let metric = metric.ok_or_else(|| unknown("metric", &report.metric))?;
    let profile = Profile::new(run, Vec::new(), rows, |_| None);
    Ok(SavedReport { subject: report.subject.into_owned(), metric, profile })
}

fn unknown(key: &'static str, value: &str) -> ReadError {
    ReadError::Unknown { key, value: value.to_owned() }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Returns the losses. Losses with an unknown name are counted as [`LossReason::BadRecord`].
fn losses(by_name: &Object<'_, u64>) -> Losses {
    let mut losses = Losses::default();
    for (name, &count) in by_name {
        let known = LossReason::ALL.iter().copied().find(|reason| reason.name() == name);
        losses.add(known.unwrap_or(LossReason::BadRecord), count);
    }
    losses
}

#[derive(Deserialize)]
struct Header {
    schema_version: u32,
}

/// A report without the parts that comparisons do not need. Each stack is converted as soon as it is read, because
/// a [`schema::Stack`] takes more memory than a [`StackProfile`].
type ComparableReport = schema::Report<
    'static,
    Vec<schema::Process<'static>>,
    IgnoredAny,
    Vec<schema::Frame<'static>>,
    Vec<ReadStack>,
    IgnoredAny,
>;

/// Returns the samplers of the processes, and the samplers of the report.
fn samplers(report: &ComparableReport) -> Result<Samplers, ReadError> {
    let mut samplers = Samplers::default();
    let of_processes =
        report.processes.iter().flat_map(|process| process.samplers.iter().map(move |one| (process.pid, one)));
    let of_report = report.samplers.iter().map(|one| (None, one));
    for (pid, schema::Sampler { source, interval_bytes }) in of_processes.chain(of_report) {
        let source = SampleSource::from_name(source).ok_or_else(|| unknown("source", source))?;
        let sampler = Sampler { source, interval: interval_bytes.map(Bytes) };
        match pid {
            Some(pid) => samplers.add(Pid(pid), sampler),
            None => samplers.add_of_unknown(sampler),
        }
    }
    Ok(samplers)
}

fn process(process: schema::Process<'_>) -> ProcessProfile {
    // Comparisons need to know that a process has ended, but not how. A group has no PID.
    let ended = process.ended.map(|_| ImageEnd::Exit);
    // Comparisons show which processes are demoted, because their live numbers are lower bounds.
    let min_size = Bytes(process.demotion.map_or(0, |demotion| demotion.min_size_bytes));
    let demotion = Demotion { min_size, ..Demotion::default() };
    ProcessProfile { ended, demotion, ..ProcessProfile::new(Pid(process.pid.unwrap_or_default()), process.comm) }
}

fn frame(frame: schema::Frame<'_>) -> Frame {
    let object = frame.object.map(|path| ObjectName { path: PathBuf::from(path.into_owned()), build_id: None });
    // Comparisons do not need the reason for a missing name.
    let name = frame.name.map(|name| Name(name.into_owned())).ok_or(Unnamed::NoMapping);
    Frame {
        object,
        offset: frame.offset.map(VirtOffset),
        address: frame.address.map(AbsAddr),
        inlined: frame.inlined,
        ..Frame::new(name)
    }
}

/// A stack, or the error of reading it.
#[derive(Deserialize)]
#[serde(from = "schema::Stack<'static>")]
struct ReadStack(Result<StackProfile, ReadError>);

impl From<schema::Stack<'static>> for ReadStack {
    fn from(stack: schema::Stack<'static>) -> Self {
        Self(convert(stack))
    }
}

fn convert(stack: schema::Stack<'_>) -> Result<StackProfile, ReadError> {
    let end = StackEnd::ALL.iter().copied().find(|end| end.name() == stack.end);
    let end = end.ok_or_else(|| unknown("end", &stack.end))?;
    let frames = stack.frames.into_iter().map(FrameId::new).collect();
    Ok(StackProfile {
        usage: usage(stack.totals)?
            .with(Quantity::AtPeakBytes, stack.peak_bytes.unwrap_or_default())
            .with(Quantity::MergedStacks, stack.merged_stacks),
        ..StackProfile::new(stack.process, Part::WHOLE, frames, end)
    })
}

fn usage(mut numbers: Numbers) -> Result<Quantities, ReadError> {
    // Only changes can be negative, and a report of changes is refused.
    let total = |number: i64| {
        u64::try_from(number).map_err(|_| serde_json::Error::invalid_value(Unexpected::Signed(number), &"a total"))
    };
    let mut usage = Quantities::ZERO;
    for quantity in Quantity::ALL {
        usage[quantity] = match numbers.number_mut(quantity.facts().name) {
            Some(NumberMut::Signed(number)) => total(*number)?,
            Some(NumberMut::Unsigned(number)) => *number,
            Some(NumberMut::Optional(number)) => number.unwrap_or_default(),
            Some(NumberMut::OptionalSigned(number)) => total(number.unwrap_or_default())?,
            None => 0,
        };
    }
    add_samples(&mut usage, &numbers);
    Ok(usage.with_free(Amount { bytes: Bytes(numbers.free_bytes), count: numbers.free_count }))
}

/// Sets the numbers of samples, and the variances that follow from the ends of the intervals.
fn add_samples(usage: &mut Quantities, numbers: &Numbers) {
    let Some(held) = numbers.samples else { return };
    let total = |end: Option<i64>| end.map(|end| end.max(0).cast_unsigned());
    let intervals = [
        (Variance::HeldBytes, Quantity::LiveBytes, total(numbers.live_bytes_low), total(numbers.live_bytes_high)),
        (Variance::HeldBytes, Quantity::ExitBytes, numbers.exit_bytes_low, numbers.exit_bytes_high),
        (Variance::HeldCount, Quantity::LiveCount, total(numbers.live_count_low), total(numbers.live_count_high)),
        (Variance::HeldCount, Quantity::ExitCount, numbers.exit_count_low, numbers.exit_count_high),
        (Variance::AllocBytes, Quantity::AllocBytes, numbers.alloc_bytes_low, numbers.alloc_bytes_high),
        (Variance::AllocCount, Quantity::AllocCount, numbers.alloc_count_low, numbers.alloc_count_high),
    ];
    for (variance, quantity, low, high) in intervals {
        if let (Some(low), Some(high)) = (low, high) {
            let value = usage[quantity];
            let margin = Margin { below: value.saturating_sub(low), above: high.saturating_sub(value) };
            usage.add_variance(variance, margin.variance());
        }
    }
    usage[Quantity::HeldSamples] = held;
    usage[Quantity::AllocSamples] = numbers.alloc_samples.unwrap_or_default().max(held);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use memtrace_model::{Activity, GroupBy};

    use super::*;
    use crate::options::Options;

    /// Returns a profile with two processes, a sum of merged stacks, and a frame without a name.
    fn profile() -> Profile {
        let amount = |bytes| Amount { bytes: Bytes(bytes), count: bytes / 16 };
        let usage = |live, freed| {
            Quantities::ZERO
                .with_amount(Quantity::LiveBytes, amount(live))
                .with_amount(Quantity::AllocBytes, amount(live + freed))
                .with_free(amount(freed))
        };
        let object = ObjectName { path: PathBuf::from("/usr/lib/libx.so"), build_id: None };
        let unnamed =
            Frame { object: Some(object), offset: Some(VirtOffset(0x1234)), ..Frame::new(Err(Unnamed::NoMapping)) };
        let frames = vec![Frame::new(Ok(Name(String::from("main")))), unnamed];
        let stack = |process, frames: &[usize], usage| StackProfile {
            usage,
            ..StackProfile::new(
                process,
                Part::WHOLE,
                frames.iter().copied().map(FrameId::new).collect(),
                StackEnd::Complete,
            )
        };
        let merged =
            StackProfile { end: StackEnd::Merged, ..stack(1, &[], usage(64, 0).with(Quantity::MergedStacks, 12)) };
        let mut losses = Losses::default();
        losses.add(LossReason::PendingFull, 3);
        let mut profile = Profile {
            run: RunFacts { duration: Duration::from_millis(2500), ..RunFacts::default() },
            losses,
            processes: vec![ProcessProfile::new(Pid(7), "one"), ProcessProfile::new(Pid(8), "two")],
            frames,
            stacks: vec![stack(0, &[0, 1], usage(1024, 16)), merged],
            ..Profile::default()
        };
        for stack in &profile.stacks {
            profile.processes[stack.process].total += stack.usage.additive();
        }
        profile
    }

    fn written(profile: &Profile) -> String {
        let options = Options {
            metric: Metric::LiveBytes,
            by: GroupBy::Process,
            top: 10,
            all_stacks: true,
            subject: String::from("two processes"),
        };
        let mut bytes = Vec::new();
        super::super::write(profile, &options, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn report_is_read_as_it_was_written() {
        let profile = profile();
        let report = read(&written(&profile)).unwrap();
        assert_eq!((report.subject.as_str(), report.metric), ("two processes", Metric::LiveBytes));
        assert_eq!(report.profile, profile);
    }

    #[test]
    fn each_number_is_a_quantity() {
        let numbers = Numbers {
            live_bytes: 1,
            live_count: 2,
            exit_bytes: 3,
            exit_count: 4,
            alloc_bytes: 1000,
            alloc_count: 100,
            free_bytes: 900,
            free_count: 90,
            temporary_bytes: Some(5),
            temporary_count: Some(6),
            hot_bytes: Some(7),
            cold_bytes: Some(8),
            stall_ns: Some(9),
            stall_count: Some(10),
            ..Numbers::default()
        };
        let amount = |bytes, count| Amount { bytes: Bytes(bytes), count };
        let expected = Quantities::of_blocks([amount(1, 2), amount(1000, 100), amount(5, 6)])
            .with_amount(Quantity::ExitBytes, amount(3, 4))
            .with_amount(Quantity::LeftOutBytes, amount(96, 4))
            .with(Quantity::HotBytes, 7)
            .with(Quantity::ColdBytes, 8)
            .with(Quantity::StallTime, 9)
            .with(Quantity::StallCount, 10);
        assert_eq!(usage(numbers).unwrap(), expected);
    }

    #[test]
    fn intervals_are_read_as_variances() {
        // One block of 64 bytes in eight is sampled, so that each of 40 samples has the variance 512² · 7/8 = 229,376.
        let sampled = |samples: u64| {
            let live = Amount { bytes: Bytes(512 * samples), count: 8 * samples };
            let mut usage = Quantities::of_blocks([live, live, Amount::default()])
                .with(Quantity::HeldSamples, samples)
                .with(Quantity::AllocSamples, samples);
            for variance in [Variance::HeldBytes, Variance::AllocBytes] {
                usage.add_variance(variance, 229_376 * u128::from(samples));
            }
            for variance in [Variance::HeldCount, Variance::AllocCount] {
                usage.add_variance(variance, 56 * u128::from(samples));
            }
            usage
        };
        let mut profile = profile();
        profile.stacks[0].usage = sampled(40);
        let sampler = Sampler { source: SampleSource::OtelMemory, interval: Some(Bytes(512)) };
        profile.run.samplers.add(Pid(7), sampler);
        let read = read(&written(&profile)).unwrap().profile;
        assert_eq!(read.run.samplers.of(Pid(7)).collect::<Vec<_>>(), [sampler]);
        let usage = read.stacks[0].usage;
        assert_eq!((usage[Quantity::HeldSamples], usage.live()), (40, profile.stacks[0].usage.live()));
        assert_eq!(usage[Quantity::AllocSamples], 40);
        for variance in [Variance::HeldBytes, Variance::AllocBytes, Variance::HeldCount, Variance::AllocCount] {
            let expected = sampled(40).variance(variance) as f64;
            let ratio = usage.variance(variance) as f64 / expected;
            assert!((1.0..1.05).contains(&ratio), "{variance:?}: {ratio}");
        }
        assert_eq!(read.stacks[1].usage, profile.stacks[1].usage, "exact stacks have no samples");
        let unknown = written(&profile).replace("otel_memory", "dice");
        let error = super::read(&unknown).unwrap_err().to_string();
        assert_eq!(error, "its source is \"dice\", which this memtrace does not know");
    }

    #[test]
    fn unknown_keys_are_ignored() {
        let text = written(&profile());
        let newer = text.replace("{\"pid\"", "{\"new_key\":[{}],\"pid\"").replace("\n\"by\"", "\"new_key\":0,\n\"by\"");
        assert_ne!(newer, text);
        assert_eq!(read(&newer).unwrap().profile, profile());
    }

    #[test]
    fn activity_is_ignored() {
        let traced =
            Profile { run: RunFacts { activity: Some(Arc::new(Activity::default())), ..profile().run }, ..profile() };
        let text = written(&traced);
        assert!(text.contains("\"activity\":{"));
        assert_eq!(read(&text).unwrap().profile, profile());
    }

    #[test]
    fn other_texts_and_versions_are_refused() {
        let text = written(&profile());
        let reason = |text: &str| read(text).unwrap_err().to_string();
        assert!(reason("").starts_with("it is not a report in JSON"));
        assert!(reason("{}").contains("schema_version"));
        let newer = text.replace("\"schema_version\":1", "\"schema_version\":2");
        assert_eq!(reason(&newer), "it has version 2 of the format, and this memtrace reads version 1");
        let foreign = text.replace("\"metric\":\"live-bytes\"", "\"metric\":\"warmth\"");
        assert_eq!(reason(&foreign), "its metric is \"warmth\", which this memtrace does not know");
        let window = text.replace("\"metric\":", "\"window\":{\"from_s\":1.0,\"to_s\":2.0},\n\"metric\":");
        assert_eq!(reason(&window), "it shows the changes between two moments, not the totals at one");
        let negative = text.replace("\"live_bytes\":1024", "\"live_bytes\":-1024");
        assert!(reason(&negative).starts_with("it is not a report in JSON: invalid value: integer `-1024`"));
        let damaged = text.replace("\"frames\":[0,1]", "\"frames\":[0,2]");
        assert_eq!(reason(&damaged), "a stack refers to a frame that is not in the report");
    }
}
