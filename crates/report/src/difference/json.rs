//! The comparison as JSON.

use std::io;

use memtrace_json::{ComparedReport, Difference, SCHEMA_VERSION, SiteChange};

use super::side::{Side, uncertainty_of_total};
use super::sites::{Compared, Site};
use crate::estimate::Uncertainty;
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
    let [change_low, change_high] = ends(uncertainty_of_total([before, after], view), change(first, last));
    let difference = Difference {
        schema_version: SCHEMA_VERSION,
        tool: TOOL,
        events: after.profile.run.class.name().into(),
        metric: view.name().into(),
        before: compared_report(before, first, view),
        after: compared_report(after, last, view),
        change: change(first, last),
        change_low,
        change_high,
        sites: sites.iter().map(|site| site_change(site, compared)).collect(),
    };
    json_lines::write(&difference, out)
}

fn compared_report<'a>(side: &'a Side, value: u64, view: MetricView<'_>) -> ComparedReport<'a> {
    let uncertainty = side.samples(view).uncertainty();
    let [value_low, value_high] = uncertainty.map_or([None; 2], |uncertainty| uncertainty.ends(value).map(Some));
    ComparedReport {
        name: side.name.as_str().into(),
        subject: side.subject.as_str().into(),
        duration_s: side.profile.run.duration.as_secs_f64(),
        lost: side.profile.losses.total(),
        value,
        value_low,
        value_high,
    }
}

fn site_change<'a>(site: &'a Site, compared: &[Compared<'_>; 2]) -> SiteChange<'a> {
    let (report, stack) = site.example(compared);
    let frames = match stack.frames.is_empty() {
        true => vec![escape::missing_frames(stack.end).into()],
        false => stack.frames.iter().map(|frame| report.profile.frames[frame.index()].label().into()).collect(),
    };
    let [change_low, change_high] = ends(site.uncertainty, change(site.before, site.after));
    SiteChange {
        kind: site.kind().name().into(),
        process: site.process.as_str().into(),
        before: site.before,
        after: site.after,
        change: change(site.before, site.after),
        change_low,
        change_high,
        frames,
    }
}

fn change(before: u64, after: u64) -> i128 {
    i128::from(after) - i128::from(before)
}

/// Returns the ends of the interval of a change.
fn ends(uncertainty: Option<Uncertainty>, change: i128) -> [Option<i128>; 2] {
    let margin = uncertainty.map(Uncertainty::margin);
    [margin.map(|margin| change - i128::from(margin.below)), margin.map(|margin| change + i128::from(margin.above))]
}
