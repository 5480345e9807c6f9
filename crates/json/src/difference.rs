//! Comparison of two reports.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Text, Tool};

/// `memtrace diff --format json` writes this object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference<'a> {
    /// Version of this format: 1.
    pub schema_version: u32,
    /// Program that wrote the object.
    pub tool: Tool<'a>,
    /// Event class of both reports.
    pub events: Text<'a>,
    /// Compared metric. All values below have its unit: bytes, blocks, pages, nanoseconds or stalls. If the processes run
    /// in one report and have ended in the other, it is `exit-bytes`, and live blocks count as held at exit.
    pub metric: Text<'a>,
    /// The first report.
    pub before: ComparedReport<'a>,
    /// The second report.
    pub after: ComparedReport<'a>,
    /// `after.value` - `before.value`.
    pub change: i128,
    /// Only with sampled blocks: lower end of the 95 % interval of `change`. The interval is too wide for blocks that are in
    /// both reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_low: Option<i128>,
    /// Only with sampled blocks: upper end of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_high: Option<i128>,
    /// Sites with a value in either report, the greatest change first. The values of all sites add up to the values
    /// of the reports.
    pub sites: Vec<SiteChange<'a>>,
}

/// A report of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedReport<'a> {
    /// Name of the file as given, with the moment if the file is a recording.
    pub name: Text<'a>,
    /// `subject` of the report.
    pub subject: Text<'a>,
    /// `duration_s` of the report.
    pub duration_s: f64,
    /// Number of lost events: the sum of the report's losses.
    pub lost: u64,
    /// Sum of the metric over all stacks.
    pub value: u64,
    /// Only with sampled blocks: lower end of the 95 % interval of `value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_low: Option<u64>,
    /// Only with sampled blocks: upper end of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_high: Option<u64>,
}

/// Change of a site.
///
/// A site is the set of all stacks that have the same function names in the lines of the text report, in processes
/// with the same short name. Frames of language libraries are folded, deep stacks are cut, and source lines are
/// ignored. A function without a name is identified by its object and offset. All merged stacks of a process name are
/// one site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SiteChange<'a> {
    /// `within_error`: the interval of the change contains 0, only with sampled blocks; `new`: not in the first report;
    /// `vanished`: not in the second; `stable`: changed by at most 5 % of the first value; else `grown` or `shrunk`.
    pub kind: Text<'a>,
    /// Short name of the processes.
    pub process: Text<'a>,
    /// Value in the first report.
    pub before: u64,
    /// Value in the second report.
    pub after: u64,
    /// `after` - `before`.
    pub change: i128,
    /// Only with sampled blocks: lower end of the 95 % interval of `change`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_low: Option<i128>,
    /// Only with sampled blocks: upper end of the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_high: Option<i128>,
    /// Frames of one stack of the site, the outermost first: the function's name, or object and offset.
    pub frames: Vec<Text<'a>>,
}
