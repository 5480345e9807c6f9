//! Profile to bytes: one file a format, each over [`std::io::Write`]. Writers know no path, no terminal, no argument.

mod allocators;
mod estimate;
mod explain;
mod fold;
mod folded;
mod json;
mod known;
mod label;
mod phrase;
mod roots;
mod stalls;
mod svg;
mod text;
mod words;

pub use explain::{PageOptions, write_json as write_explanation_json, write_text as write_explanation_text};
pub(crate) use label::plain;

use std::cmp::Reverse;
use std::io::{self, Write as _};

use crate::model::{Bytes, GroupBy, Metric, Profile, StackProfile};

/// The formats that a profile can be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// An interactive flame graph.
    Svg,
    /// Folded stacks, a line each, as flame graph tools read them.
    Folded,
    /// Everything, for programs.
    Json,
    /// A summary for people.
    Text,
}

impl Format {
    /// Every format, in the order in which help lists them.
    pub const ALL: &[Self] = &[Self::Svg, Self::Folded, Self::Json, Self::Text];

    /// The format's name, which is also the extension of its files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Folded => "folded",
            Self::Json => "json",
            Self::Text => "txt",
        }
    }
}

/// How a profile is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What is drawn, and what stacks are ranked by.
    pub metric: Metric,
    /// What stacks are put together under.
    pub by: GroupBy,
    /// How many sites, processes and other roots the text lists.
    pub top: usize,
    /// What was traced, for titles: `pid 4711 (redis-server)`.
    pub subject: String,
}

/// Writes `profile` to `out` as `format`. Equal profiles with equal options give equal bytes.
///
/// # Errors
///
/// What `out` returns.
pub fn write(format: Format, profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    match format {
        Format::Svg => svg::write(profile, options, &mut out)?,
        Format::Folded => folded::write(profile, options, &mut out)?,
        Format::Json => json::write(profile, options, &mut out)?,
        Format::Text => text::write(profile, options, &mut out)?,
    }
    out.flush()
}

/// The stacks by `metric`, with their index, the greatest first, equal ones in the profile's own order.
fn ranked(profile: &Profile, metric: Metric) -> Vec<(usize, &StackProfile)> {
    let mut stacks: Vec<_> = profile.stacks.iter().enumerate().collect();
    stacks.sort_by_key(|(_, stack)| Reverse(metric.of(stack)));
    stacks
}

/// The peak of everything, which is known only where everything is one program run by one process: the peaks of several
/// are of different moments.
fn sole_peak(profile: &Profile) -> Option<Bytes> {
    match profile.processes.as_slice() {
        [process] => process.peak,
        _ => None,
    }
}
