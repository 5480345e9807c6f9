//! Reads reports in JSON: the part of them that comparisons need.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::schema::SCHEMA_VERSION;
use crate::model::{
    AbsAddr, Amount, Bytes, EventClass, Frame, FrameId, ImageEnd, LossReason, Losses, Metric, Name, Nanoseconds,
    ObjectName, Part, Pid, ProcessProfile, Profile, StackEnd, StackProfile, StallTotals, Unnamed, Usage, VirtOffset,
};

/// A report that was read from JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedReport {
    /// Target of the trace, for titles.
    pub subject: String,
    /// Metric by which its stacks are sorted.
    pub metric: Metric,
    /// Processes, stacks and frames with their usage, and the losses. Everything else has its default.
    pub profile: Profile,
}

/// Reason why a text is not a report that can be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The text is no JSON, or lacks a key of a report.
    #[error("it is not a report in JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The format has another version.
    #[error("it has version {0} of the format, and this memtrace reads version {SCHEMA_VERSION}")]
    Version(u32),
    /// A name that this memtrace does not know.
    #[error("its {key} is {value:?}, which this memtrace does not know")]
    Unknown {
        /// Key of the value.
        key: &'static str,
        /// The value.
        value: String,
    },
    /// The numbers are changes, not totals.
    #[error("it shows the changes between two moments, not the totals at one")]
    Window,
    /// A stack has the index of an element that does not exist.
    #[error("a stack refers to a {0} that is not in the report")]
    Missing(&'static str),
}

/// Reads a report.
///
/// # Errors
///
/// Returns the reason if the text is not a report, or one of another version.
pub fn read(text: &str) -> Result<SavedReport, ReadError> {
    let Header { schema_version, window } = serde_json::from_str(text)?;
    if schema_version != SCHEMA_VERSION {
        return Err(ReadError::Version(schema_version));
    }
    if window.is_some() {
        return Err(ReadError::Window);
    }
    let report: ReportFields = serde_json::from_str(text)?;
    let metric = Metric::ALL.iter().copied().find(|metric| metric.name() == report.metric);
    let class = EventClass::ALL.iter().copied().find(|class| class.name() == report.events);
    let mut profile = Profile {
        class: class.ok_or_else(|| unknown("events", &report.events))?,
        duration: seconds(report.duration_s),
        older: report.older_s.map(seconds),
        losses: losses(&report.losses),
        processes: report.processes.into_iter().map(ProcessProfile::from).collect(),
        frames: report.frames.into_iter().map(Frame::from).collect(),
        ..Profile::default()
    };
    for stack in report.stacks {
        let stack = stack.convert(&profile)?;
        let process = &mut profile.processes[stack.process];
        process.total += stack.usage;
        profile.stacks.push(stack);
    }
    let metric = metric.ok_or_else(|| unknown("metric", &report.metric))?;
    Ok(SavedReport { subject: report.subject, metric, profile })
}

fn unknown(key: &'static str, value: &str) -> ReadError {
    ReadError::Unknown { key, value: value.to_owned() }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Returns the losses. Those that this memtrace does not know are counted as damaged records.
fn losses(by_name: &BTreeMap<String, u64>) -> Losses {
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
    /// Only in a report of the changes between two moments.
    window: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct ReportFields {
    subject: String,
    events: String,
    metric: String,
    duration_s: f64,
    older_s: Option<f64>,
    losses: BTreeMap<String, u64>,
    processes: Vec<ProcessFields>,
    frames: Vec<FrameFields>,
    stacks: Vec<StackFields>,
}

#[derive(Deserialize)]
struct ProcessFields {
    /// `None` for a group.
    pid: Option<u32>,
    comm: String,
    ended: Option<String>,
}

impl From<ProcessFields> for ProcessProfile {
    fn from(fields: ProcessFields) -> Self {
        // The kind of the end does not matter, only that there is one.
        let ended = fields.ended.map(|_| ImageEnd::Exit);
        Self { ended, ..Self::new(Pid(fields.pid.unwrap_or_default()), fields.comm) }
    }
}

#[derive(Deserialize)]
struct FrameFields {
    name: Option<String>,
    object: Option<PathBuf>,
    offset: Option<u64>,
    address: Option<u64>,
    inlined: bool,
}

impl From<FrameFields> for Frame {
    fn from(fields: FrameFields) -> Self {
        let object = fields.object.map(|path| ObjectName { path, build_id: None });
        // The reason for a missing name does not matter to comparisons.
        Self {
            object,
            offset: fields.offset.map(VirtOffset),
            address: fields.address.map(AbsAddr),
            inlined: fields.inlined,
            ..Self::new(fields.name.map(Name).ok_or(Unnamed::NoMapping))
        }
    }
}

#[derive(Deserialize)]
struct StackFields {
    process: usize,
    end: String,
    #[serde(default)]
    merged_stacks: u64,
    live_bytes: u64,
    live_count: u64,
    exit_bytes: u64,
    exit_count: u64,
    alloc_bytes: u64,
    alloc_count: u64,
    free_bytes: u64,
    free_count: u64,
    #[serde(default)]
    temporary_bytes: u64,
    #[serde(default)]
    temporary_count: u64,
    #[serde(default)]
    hot_bytes: u64,
    #[serde(default)]
    cold_bytes: u64,
    #[serde(default)]
    stall_ns: u64,
    #[serde(default)]
    stall_count: u64,
    peak_bytes: Option<u64>,
    frames: Vec<usize>,
}

impl StackFields {
    /// `profile` has the processes and frames of the report.
    fn convert(self, profile: &Profile) -> Result<StackProfile, ReadError> {
        if self.process >= profile.processes.len() {
            return Err(ReadError::Missing("process"));
        }
        if self.frames.iter().any(|frame| *frame >= profile.frames.len()) {
            return Err(ReadError::Missing("frame"));
        }
        let end = StackEnd::ALL.iter().copied().find(|end| end.name() == self.end);
        let end = end.ok_or_else(|| unknown("end", &self.end))?;
        let amount = |bytes, count| Amount { bytes: Bytes(bytes), count };
        let usage = Usage {
            live: amount(self.live_bytes, self.live_count),
            exit: amount(self.exit_bytes, self.exit_count),
            alloc: amount(self.alloc_bytes, self.alloc_count),
            free: amount(self.free_bytes, self.free_count),
            temporary: amount(self.temporary_bytes, self.temporary_count),
            hot: Bytes(self.hot_bytes),
            cold: Bytes(self.cold_bytes),
            stalls: StallTotals { time: Nanoseconds(self.stall_ns), count: self.stall_count },
        };
        let frames = self.frames.into_iter().map(FrameId::new).collect();
        Ok(StackProfile {
            merged: self.merged_stacks,
            usage,
            at_peak: self.peak_bytes.map(Bytes),
            ..StackProfile::new(self.process, Part::WHOLE, frames, end)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{Activity, GroupBy};
    use crate::report::options::Options;

    /// A profile with two processes, a merged stack and a frame without a name.
    fn profile() -> Profile {
        let amount = |bytes| Amount { bytes: Bytes(bytes), count: bytes / 16 };
        let usage = |live, freed| Usage {
            live: amount(live),
            alloc: amount(live + freed),
            free: amount(freed),
            ..Usage::default()
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
        let merged = StackProfile { merged: 12, end: StackEnd::Merged, ..stack(1, &[], usage(64, 0)) };
        let mut losses = Losses::default();
        losses.add(LossReason::PendingFull, 3);
        let mut profile = Profile {
            duration: Duration::from_millis(2500),
            losses,
            processes: vec![ProcessProfile::new(Pid(7), "one"), ProcessProfile::new(Pid(8), "two")],
            frames,
            stacks: vec![stack(0, &[0, 1], usage(1024, 16)), merged],
            ..Profile::default()
        };
        for stack in &profile.stacks {
            profile.processes[stack.process].total += stack.usage;
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
    fn activity_is_ignored() {
        let traced = Profile { activity: Some(Arc::new(Activity::default())), ..profile() };
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
        let newer = text.replace("\"schema_version\":3", "\"schema_version\":4");
        assert_eq!(reason(&newer), "it has version 4 of the format, and this memtrace reads version 3");
        let foreign = text.replace("\"metric\":\"live-bytes\"", "\"metric\":\"warmth\"");
        assert_eq!(reason(&foreign), "its metric is \"warmth\", which this memtrace does not know");
        let window = text.replace("\"metric\":", "\"window\":{\"from_s\":1.0,\"to_s\":2.0},\n\"metric\":");
        assert_eq!(reason(&window), "it shows the changes between two moments, not the totals at one");
        let damaged = text.replace("\"frames\":[0,1]", "\"frames\":[0,2]");
        assert_eq!(reason(&damaged), "a stack refers to a frame that is not in the report");
    }
}
