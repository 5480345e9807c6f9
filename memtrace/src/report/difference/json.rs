//! The comparison as JSON. `docs/json.md` documents the fields.

use std::io;

use serde::Serialize;

use super::side::Side;
use super::sites::{Compared, Site};
use crate::model::Metric;
use crate::report::escape;
use crate::report::json_lines::Lines;
use crate::report::tool::Tool;

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Difference<'a> {
    schema_version: u32,
    tool: Tool,
    events: &'static str,
    metric: &'static str,
    before: SideFields<'a>,
    after: SideFields<'a>,
    change: i128,
    sites: Vec<SiteFields<'a>>,
}

#[derive(Serialize)]
struct SideFields<'a> {
    name: &'a str,
    subject: &'a str,
    duration_s: f64,
    lost: u64,
    value: u64,
}

#[derive(Serialize)]
struct SiteFields<'a> {
    kind: &'static str,
    process: &'a str,
    before: u64,
    after: u64,
    change: i128,
    frames: Vec<String>,
}

/// Writes all sites.
pub(super) fn write(
    [before, after]: [&Side; 2],
    compared: &[Compared<'_>; 2],
    sites: &[Site],
    metric: Metric,
    mut out: &mut dyn io::Write,
) -> io::Result<()> {
    let [first, last] = [before, after].map(|side| side.value(metric));
    let difference = Difference {
        schema_version: SCHEMA_VERSION,
        tool: Tool::THIS,
        events: after.profile.class.name(),
        metric: metric.name(),
        before: fields_of_side(before, first),
        after: fields_of_side(after, last),
        change: change(first, last),
        sites: sites.iter().map(|site| fields_of(site, compared)).collect(),
    };
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Lines::default());
    difference.serialize(&mut serializer)?;
    out.write_all(b"\n")
}

fn fields_of_side(side: &Side, value: u64) -> SideFields<'_> {
    SideFields {
        name: &side.name,
        subject: &side.subject,
        duration_s: side.profile.duration.as_secs_f64(),
        lost: side.profile.losses.total(),
        value,
    }
}

fn fields_of<'a>(site: &'a Site, compared: &[Compared<'_>; 2]) -> SiteFields<'a> {
    let (report, stack) = site.example(compared);
    let frames: Vec<String> = match stack.frames.is_empty() {
        true => vec![String::from(escape::missing_frames(stack.end))],
        false => stack.frames.iter().map(|frame| report.profile.frames[frame.index()].label()).collect(),
    };
    SiteFields {
        kind: site.kind().name(),
        process: &site.process,
        before: site.before,
        after: site.after,
        change: change(site.before, site.after),
        frames,
    }
}

fn change(before: u64, after: u64) -> i128 {
    i128::from(after) - i128::from(before)
}
