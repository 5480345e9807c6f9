//! The comparison as JSON.

use std::io;

use memtrace_json::{ComparedReport, Difference, SCHEMA_VERSION, SiteChange};

use super::side::Side;
use super::sites::{Compared, Site};
use crate::json::TOOL;
use crate::metrics::MetricView;
use crate::{escape, json_lines};

/// Writes the totals of both reports and all sites.
pub(super) fn write(
    [before, after]: [&Side; 2],
    compared: &[Compared<'_>; 2],
    sites: &[Site],
    view: MetricView<'_>,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let [first, last] = [before, after].map(|side| side.value(view));
    let difference = Difference {
        schema_version: SCHEMA_VERSION,
        tool: TOOL,
        events: after.profile.run.class.name().into(),
        metric: view.name().into(),
        before: compared_report(before, first),
        after: compared_report(after, last),
        change: change(first, last),
        sites: sites.iter().map(|site| site_change(site, compared)).collect(),
    };
    json_lines::write(&difference, out)
}

fn compared_report(side: &Side, value: u64) -> ComparedReport<'_> {
    ComparedReport {
        name: side.name.as_str().into(),
        subject: side.subject.as_str().into(),
        duration_s: side.profile.run.duration.as_secs_f64(),
        lost: side.profile.losses.total(),
        value,
    }
}

fn site_change<'a>(site: &'a Site, compared: &[Compared<'_>; 2]) -> SiteChange<'a> {
    let (report, stack) = site.example(compared);
    let frames = match stack.frames.is_empty() {
        true => vec![escape::missing_frames(stack.end).into()],
        false => stack.frames.iter().map(|frame| report.profile.frames[frame.index()].label().into()).collect(),
    };
    SiteChange {
        kind: site.kind().name().into(),
        process: site.process.as_str().into(),
        before: site.before,
        after: site.after,
        change: change(site.before, site.after),
        frames,
    }
}

fn change(before: u64, after: u64) -> i128 {
    i128::from(after) - i128::from(before)
}
