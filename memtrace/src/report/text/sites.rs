//! The largest sites. A site is a group and the lines that are shown of a stack.

use std::cmp::Reverse;
use std::hash::BuildHasher as _;
use std::io;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use super::frames::Frames;
use super::{histograms, stack};
use crate::model::format as number;
use crate::model::{BlockHistograms, Bytes, GroupBy, LiveChanges, Metric, Profile, StackProfile, Usage, Variance};
use crate::report::groups::Groups;
use crate::report::options::Options;
use crate::report::table;
use crate::report::trend::Trend;
use crate::report::{allocators, escape, estimate, format};

/// Minimum width of a group's name.
const MIN_GROUP_WIDTH: usize = 24;

/// Indentation of the lines below the heading of a site: the column of its share.
const INDENT: usize = 5;

/// All stacks of a group with the same lines.
#[derive(Debug, PartialEq)]
struct Site {
    root: usize,
    /// First of its stacks, from which its lines are made.
    stack: usize,
    /// Value of the metric by which sites are sorted.
    value: u64,
    usage: Usage,
    /// Variance of its numbers.
    variance: Variance,
    resident: Bytes,
    histograms: BlockHistograms,
    live_changes: LiveChanges,
    /// True if one of its stacks passes through an allocator.
    by_allocator: bool,
}

/// Writes the `top` sites.
pub(super) fn write(profile: &Profile, options: &Options, roots: &Groups, out: &mut dyn io::Write) -> io::Result<()> {
    let metric = options.metric;
    let frames = Frames::new(profile);
    let sites = ranked(profile, &frames, roots, metric);
    let what = format::metric_title(profile, metric);
    if sites.is_empty() {
        return writeln!(out, "\nNo sites to list: {}.", format::empty_reason(profile, options));
    }
    if options.top == 0 {
        return Ok(());
    }
    let all = sites.iter().fold(0_u64, |sum, site| sum.saturating_add(site.value));
    match sites.len() {
        1 => writeln!(out, "\nThe one site by {what}")?,
        many if many <= options.top => writeln!(out, "\nAll {} sites by {what}", number::grouped(many as u64))?,
        many => writeln!(
            out,
            "\nTop {} of {} sites by {what}",
            number::grouped(options.top as u64),
            number::grouped(many as u64)
        )?,
    }
    let names_roots = options.by != GroupBy::Process || !profile.is_of_one_image();
    for (index, site) in sites.iter().take(options.top).enumerate() {
        let share = site.value as f64 / all as f64;
        let root = names_roots.then(|| roots.all()[site.root].label.as_str());
        writeln!(out, "\n{}", heading(profile, metric, index + 1, site, share, root))?;
        if let Some(times) = histograms::times(&site.histograms) {
            writeln!(out, "{:INDENT$}{times}", "")?;
        }
        if let Some(trend) = trend(profile, metric, site) {
            writeln!(out, "{:INDENT$}{}", "", trend.text())?;
        }
        stack::write(&stack::lines(&frames, &profile.stacks[site.stack]), &frames, out)?;
    }
    Ok(())
}

/// Returns the trend of the live memory of a site, if `metric` is one of live memory.
fn trend(profile: &Profile, metric: Metric, site: &Site) -> Option<Trend> {
    let is_of_live = matches!(metric, Metric::LiveBytes | Metric::LiveCount | Metric::NetGrowth);
    is_of_live.then(|| Trend::of(&profile.parts, &site.live_changes)).flatten()
}

/// Writes the sites with the largest decreases of live memory in a window of a recording.
pub(super) fn write_shrunk(
    profile: &Profile,
    options: &Options,
    roots: &Groups,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    if options.metric != Metric::NetGrowth || options.top == 0 {
        return Ok(());
    }
    let shrunk = negated(profile);
    let frames = Frames::new(&shrunk);
    let sites = ranked(&shrunk, &frames, roots, Metric::NetGrowth);
    if sites.is_empty() {
        return Ok(());
    }
    let shown = options.top.min(sites.len());
    writeln!(out, "\nSites that shrank: {} of {}", number::grouped(shown as u64), number::grouped(sites.len() as u64))?;
    for (index, site) in sites.iter().take(shown).enumerate() {
        let bytes = Bytes(site.usage.live.bytes.0.wrapping_neg());
        let blocks = site.usage.live.count.wrapping_neg();
        let blocks = format::change_in_blocks(profile.class, blocks);
        let rank = index + 1;
        let root = &roots.all()[site.root].label;
        let root = if options.by != GroupBy::Process || !profile.is_of_one_image() {
            format!(", {}", format::shortened(&escape::visible(root), MIN_GROUP_WIDTH))
        } else {
            String::new()
        };
        writeln!(out, "\n{rank:>3}. {} in {blocks}{root}", format::change(bytes))?;
        stack::write(&stack::lines(&frames, &shrunk.stacks[site.stack]), &frames, out)?;
    }
    Ok(())
}

/// Returns the profile with the decreases of live memory in place of its growth.
fn negated(profile: &Profile) -> Profile {
    let mut profile = profile.clone();
    for stack in &mut profile.stacks {
        let live = &mut stack.usage.live;
        (live.bytes.0, live.count) = (live.bytes.0.wrapping_neg(), live.count.wrapping_neg());
    }
    profile
}

/// Returns the share of temporary blocks among the allocated ones.
fn part(usage: &Usage) -> f64 {
    usage.temporary.count as f64 / usage.alloc.count.max(1) as f64
}

/// Returns the sites with a value of `metric`, the largest first; equal ones keep the order of the profile.
fn ranked(profile: &Profile, frames: &Frames<'_>, roots: &Groups, metric: Metric) -> Vec<Site> {
    let mut sites: Vec<Site> = Vec::new();
    // Lines are made again for each comparison: those of all sites would take more memory than all else.
    let mut known: HashTable<(u64, usize)> = HashTable::new();
    let lines_of = |stack: usize| stack::lines(frames, &profile.stacks[stack]);
    // A stack with value 0 makes no site, but belongs to a site with the same lines.
    let has_value = |&(_, stack): &(usize, &StackProfile)| stack.value(metric) > 0;
    let (with, without): (Vec<_>, Vec<_>) = profile.stacks.iter().enumerate().partition(has_value);
    for (index, stack) in with.into_iter().chain(without) {
        let root = roots.of_stack(index);
        let lines = lines_of(index);
        let hash = FxBuildHasher.hash_one((root, &lines));
        let is_same = |&(other, site): &(u64, usize)| {
            other == hash && sites[site].root == root && lines_of(sites[site].stack) == lines
        };
        let site = match known.find(hash, is_same) {
            Some(&(_, site)) => site,
            None if stack.value(metric) == 0 => continue,
            None => {
                known.insert_unique(hash, (hash, sites.len()), |&(hash, _)| hash);
                sites.push(Site {
                    root,
                    stack: index,
                    value: 0,
                    usage: Usage::default(),
                    variance: Variance::default(),
                    resident: Bytes(0),
                    histograms: BlockHistograms::default(),
                    live_changes: LiveChanges::default(),
                    by_allocator: false,
                });
                sites.len() - 1
            }
        };
        let site = &mut sites[site];
        site.value = site.value.saturating_add(stack.value(metric));
        site.usage += stack.usage;
        site.resident.0 = site.resident.0.saturating_add(stack.resident.0);
        site.live_changes.merge(&stack.live_changes);
        site.by_allocator |= profile.class.holds_mappings() && allocators::is_within(profile, stack);
        site.variance += stack.variance;
        site.histograms.add(&stack.histograms);
    }
    if metric == Metric::NetGrowth {
        // Stacks of a site that grew and those that shrank cancel each other.
        sites.iter_mut().for_each(|site| site.value = metric.of_usage(&site.usage).unwrap_or_default());
        sites.retain(|site| site.value > 0);
    }
    sites.sort_by_key(|site| Reverse(site.value));
    sites
}

fn heading(profile: &Profile, metric: Metric, rank: usize, site: &Site, share: f64, root: Option<&str>) -> String {
    let usage = &site.usage;
    let class = profile.class;
    let error = estimate::error(profile, metric, usage, site.variance);
    let error = estimate::format_error(error, metric);
    let live = class.words().live;
    let aside = match metric {
        Metric::LiveBytes | Metric::Growth => format!(" in {}", format::blocks(class, usage.live.count)),
        Metric::ExitBytes => format!(" in {}", format::blocks(class, usage.exit.count)),
        Metric::AllocBytes => format!(" in {}", format::blocks(class, usage.alloc.count)),
        Metric::LiveCount => format!(" of {}", usage.live.bytes),
        Metric::ExitCount => format!(" of {}", usage.exit.bytes),
        Metric::AllocCount => format!(" of {}", usage.alloc.bytes),
        Metric::Temporary => format!(" of {}, {} of its blocks", usage.temporary.bytes, number::percent(part(usage))),
        Metric::HotBytes | Metric::ColdBytes => format!(" of {} {live}", usage.live.bytes),
        Metric::StallTime => format!(" in {}", format::blocks(class, usage.stalls.count)),
        Metric::StallCount => format!(" of {}", usage.stalls.time),
        Metric::NetGrowth => format!(" in {}", format::change_in_blocks(class, usage.live.count)),
        Metric::PeakBytes if usage.exit.bytes != Bytes(0) => format!(", {} held at exit", usage.exit.bytes),
        Metric::PeakBytes if usage.live.bytes == Bytes(0) => format!(", none of it {live} at the end"),
        Metric::PeakBytes => format!(", {} {live} at the end", usage.live.bytes),
    };
    let mut aside = aside;
    if class.holds_mappings() && usage.live.bytes != Bytes(0) {
        aside.push_str(&format!(", {} touched", site.resident));
    }
    if site.by_allocator {
        aside.push_str(", in an allocator");
    }
    let heading =
        format!("{rank:>3}. {:>6}  {}{error}{aside}", number::percent(share), format::value(class, metric, site.value));
    let Some(root) = root else { return heading };
    // The path of a control group may exceed the line, and is still worth showing.
    let room = table::COLUMNS.saturating_sub(heading.chars().count() + 2).max(MIN_GROUP_WIDTH);
    format!("{heading}, {}", format::shortened(&escape::visible(root), room))
}

#[cfg(test)]
mod tests;
