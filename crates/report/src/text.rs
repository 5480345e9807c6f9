//! The text report: totals, tables, sites, and the quality of the numbers.

mod activity;
mod assessment;
mod cells;
pub(super) mod frames;
mod groups;
mod histograms;
mod memcg;
mod oom_kills;
mod page_columns;
mod processes;
mod quality;
mod reclaim;
mod residency;
mod sites;
pub(super) mod stack;
mod stack_advice;
mod stall_columns;
pub(super) mod text_writer;
mod totals;
mod untraced;
mod waits;

use std::io;

use memtrace_model::format as number;
use memtrace_model::{Profile, plain};

use self::sites::Bounds;
use self::text_writer::{TextWriter, line_count};
use crate::groups::Groups;
use crate::metrics::MetricView;
use crate::options::{ListedSites, Options, TextLayout};
use crate::resident_sets;

/// If a report must fit in a terminal, each list other than the sites has at most 1/`LISTS` of its lines as rows.
const LISTS: usize = 4;

/// Writes the text report. It has no colours, and the line feed is its only control character.
pub(super) fn write(
    profile: &Profile,
    options: &Options,
    layout: TextLayout,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let TextLayout { columns, sites } = layout;
    let view = MetricView::new(profile, options.metric);
    let roots = Groups::of(profile, options.by);
    let rows = match sites {
        ListedSites::Rows | ListedSites::Large => options.top,
        ListedSites::Fitting(lines) => options.top.min((lines / LISTS).max(1)),
    };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let lists = Options { top: rows, ..options.clone() };
    write_before_sites(profile, &lists, &roots, &mut TextWriter::new(&mut before, columns))?;
    quality::write(profile, &mut TextWriter::new(&mut after, columns))?;
    after.extend_from_slice(totals::in_one_line(view, columns).as_bytes());
    after.push(b'\n');
    // In a window of a recording, growth and decreases have a list each.
    let site_lists = if view.is_net_growth() { 2 } else { 1 };
    let room = |lines: usize| lines.saturating_sub(line_count(&before) + line_count(&after)) / site_lists;
    let bounds = match sites {
        ListedSites::Rows => Bounds { most: options.top, only_large: false, lines: None },
        ListedSites::Large => Bounds { most: options.top, only_large: true, lines: None },
        ListedSites::Fitting(lines) => Bounds { most: usize::MAX, only_large: true, lines: Some(room(lines)) },
    };
    let mut out = TextWriter::new(out, columns);
    out.write_all(&before)?;
    sites::write(profile, options, bounds, &roots, &mut out)?;
    sites::write_shrunk(profile, options, bounds, &roots, &mut out)?;
    out.write_all(&after)
}

fn write_before_sites(
    profile: &Profile,
    options: &Options,
    roots: &Groups,
    out: &mut TextWriter<'_>,
) -> io::Result<()> {
    let time = match &profile.run.window {
        Some(window) => {
            format!("changes from +{} to +{}", number::duration(window.start), number::duration(window.end))
        }
        None => format!("traced for {}", number::duration(profile.run.duration)),
    };
    // Further lines are indented, so that no line begins with text from the target.
    let head = out.wrapped(&format!("memtrace: {}, {time}", plain(&options.subject)), 2);
    writeln!(out, "{}\n", head.trim_start())?;
    totals::write(MetricView::new(profile, options.metric), out)?;
    oom_kills::write(profile, out)?;
    residency::write(profile, out)?;
    if let Some(sentences) = resident_sets::sentences(profile) {
        writeln!(out, "\n{}", out.wrapped(&sentences, 0))?;
    }
    reclaim::write(profile, options, out)?;
    if !profile.processes.is_empty() && !profile.is_of_one_image() {
        processes::write(profile, options, out)?;
    }
    untraced::write(profile, options, out)?;
    groups::write(profile, options, roots, out)?;
    histograms::write(profile, out)?;
    activity::write(profile, options, out)
}
