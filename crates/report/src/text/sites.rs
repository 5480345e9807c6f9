//! The largest sites. A site is the set of all stacks of a group that have the same lines in the text.

use std::cmp::Reverse;
use std::hash::BuildHasher as _;
use std::io;

use hashbrown::HashTable;
use memtrace_model::format as number;
use memtrace_model::{
    Amount, BlockHistograms, Bytes, LiveChanges, Measure, Profile, Quantities, Quantity, StackProfile,
};
use rustc_hash::FxBuildHasher;

use super::frames::Frames;
use super::text_writer::{TextWriter, line_count};
use super::{histograms, stack};
use crate::estimate::SampledPart;
use crate::groups::Groups;
use crate::metrics::MetricView;
use crate::options::Options;
use crate::trend::Trend;
use crate::{allocators, escape, format};

/// Minimum width of the name of a group, in characters.
const MIN_GROUP_WIDTH: usize = 24;

/// Indentation of the lines below the heading of a site: they start at the column of its share.
const INDENT: usize = 5;

/// Minimum share of a site in a list of large sites.
const LARGE: f64 = 0.01;

/// Number of lines of a list without its sites: the heading, the number of sites that are left out, and a blank line before
/// each.
const LINES_OF_LIST: usize = 4;

/// Bounds of a list of sites.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Maximum number of sites.
    pub(super) most: usize,
    /// True to leave out sites with a share of less than [`LARGE`].
    pub(super) only_large: bool,
    /// Number of lines that the list should fit in; `None` without a limit.
    pub(super) lines: Option<usize>,
}

/// All stacks of a group with the same lines.
#[derive(Debug, PartialEq)]
struct Site {
    root: usize,
    /// Index of the first stack of the site. It has the lines of the site.
    stack: usize,
    /// Value of the metric. Sites are sorted by it.
    value: u64,
    usage: Quantities,
    histograms: BlockHistograms,
    live_changes: LiveChanges,
    /// True if a stack of the site passes through an allocation function.
    by_allocator: bool,
    /// True if the resident memory of a process with a stack of the site is unknown.
    resident_is_unknown: bool,
}

/// Writes the largest sites within the bounds.
pub(super) fn write(
    profile: &Profile,
    options: &Options,
    bounds: Bounds,
    roots: &Groups,
    out: &mut TextWriter<'_>,
) -> io::Result<()> {
    let view = MetricView::new(profile, options.metric);
    let frames = Frames::new(profile);
    let sites = ranked(view, &frames, roots);
    let what = view.title();
    if sites.is_empty() {
        return writeln!(out, "\nNo sites to list: {}.", view.empty_reason());
    }
    if bounds.most == 0 {
        return Ok(());
    }
    let all = sum(&sites);
    let names_roots = !options.by.is_process() || !profile.is_of_one_image();
    let write_site = |index: usize, site: &Site, out: &mut TextWriter<'_>| {
        let share = site.value as f64 / all as f64;
        let root = names_roots.then(|| roots.all()[site.root].label.as_str());
        writeln!(out, "\n{}", heading(view, index + 1, site, share, root, out.columns()))?;
        if let Some(times) = histograms::times(&site.histograms) {
            writeln!(out, "{}", out.wrapped(&times, INDENT))?;
        }
        if let Some(trend) = trend(view, site) {
            writeln!(out, "{}", out.wrapped(&trend.text(), INDENT))?;
        }
        stack::write(&stack::lines(&frames, &profile.stacks[site.stack]), &frames, out)
    };
    let shown = bounds.shown(&sites, out.columns(), write_site)?;
    match sites.len() {
        1 => writeln!(out, "\nThe one site by {what}")?,
        many if many == shown => writeln!(out, "\nAll {} sites by {what}", number::grouped(many as u64))?,
        many => {
            let (shown, many) = (number::grouped(shown as u64), number::grouped(many as u64));
            writeln!(out, "\nTop {shown} of {many} sites by {what}")?;
        }
    }
    for (index, site) in sites.iter().take(shown).enumerate() {
        write_site(index, site, out)?;
    }
    bounds.write_rest(&sites, shown, out)
}

impl Bounds {
    /// Returns the number of sites to list, at least one. `sites`: all sites, the largest first, at least one. `write`:
    /// function that writes the site with the given index.
    fn shown(
        self,
        sites: &[Site],
        columns: usize,
        write: impl Fn(usize, &Site, &mut TextWriter<'_>) -> io::Result<()>,
    ) -> io::Result<usize> {
        let all = sum(sites);
        let is_large = |site: &&Site| site.value as f64 / all as f64 >= LARGE;
        let sites = &sites[..self.most.min(sites.len())];
        let sites = match self.only_large {
            true => &sites[..sites.iter().take_while(is_large).count().max(1)],
            false => sites,
        };
        let Some(lines) = self.lines else { return Ok(sites.len()) };
        let mut room = lines.saturating_sub(LINES_OF_LIST);
        for (index, site) in sites.iter().enumerate() {
            let mut text = Vec::new();
            write(index, site, &mut TextWriter::new(&mut text, columns))?;
            let height = line_count(&text);
            if height > room && index > 0 {
                return Ok(index);
            }
            room = room.saturating_sub(height);
        }
        Ok(sites.len())
    }

    /// Writes the number and the share of the sites after the first `shown`, unless the user has given the number of sites.
    fn write_rest(self, sites: &[Site], shown: usize, out: &mut TextWriter<'_>) -> io::Result<()> {
        let rest = &sites[shown..];
        if rest.is_empty() || !self.only_large {
            return Ok(());
        }
        let share = number::percent(sum(rest) as f64 / sum(sites) as f64);
        let rest = number::counted(rest.len() as u64, "smaller site", "smaller sites");
        writeln!(out, "\n{:INDENT$}{rest} with {share}; --top N lists N sites", "")
    }
}

/// Returns the sum of the values of sites.
fn sum(sites: &[Site]) -> u64 {
    sites.iter().fold(0, |sum, site| sum.saturating_add(site.value))
}

/// Returns the trend of the live memory of a site; `None` if the metric is not live memory, or counts only blocks
/// that were allocated between two marks, or if the changes of a stack of the site are unknown.
fn trend(view: MetricView<'_>, site: &Site) -> Option<Trend> {
    let is_known = Bytes(site.live_changes.total().live.cast_unsigned()) == site.usage.live().bytes;
    let is_shown = view.is_of_live() && !view.is_of_marks() && is_known;
    is_shown.then(|| Trend::of(view.profile(), &site.live_changes, &site.usage)).flatten()
}

/// Writes the sites with the largest decreases of live memory in a window of a recording, within the bounds.
pub(super) fn write_shrunk(
    profile: &Profile,
    options: &Options,
    bounds: Bounds,
    roots: &Groups,
    out: &mut TextWriter<'_>,
) -> io::Result<()> {
    let view = MetricView::new(profile, options.metric);
    if !view.is_net_growth() || bounds.most == 0 {
        return Ok(());
    }
    let shrunk = negated(profile);
    let frames = Frames::new(&shrunk);
    let sites = ranked(MetricView::new(&shrunk, options.metric), &frames, roots);
    if sites.is_empty() {
        return Ok(());
    }
    let write_site = |index: usize, site: &Site, out: &mut TextWriter<'_>| {
        let live = Amount::default() - site.usage.live();
        let sampled = SampledPart::of_stack(&site.usage.with_amount(Quantity::LiveBytes, live));
        let uncertainty = |quantity| sampled.uncertainty(profile, quantity);
        let error = uncertainty(Quantity::LiveBytes).map(|bytes| bytes.suffix(Measure::Bytes, live.bytes.0));
        let error = error.unwrap_or_default();
        let blocks = format::change_in_blocks(profile.run.class, live.count, uncertainty(Quantity::LiveCount));
        let rank = index + 1;
        let root = &roots.all()[site.root].label;
        let root = if !options.by.is_process() || !profile.is_of_one_image() {
            format!(", {}", format::shortened_middle(&escape::visible(root), MIN_GROUP_WIDTH))
        } else {
            String::new()
        };
        writeln!(out, "\n{rank:>3}. {}{error} in {blocks}{root}", format::change(live.bytes))?;
        stack::write(&stack::lines(&frames, &shrunk.stacks[site.stack]), &frames, out)
    };
    let shown = bounds.shown(&sites, out.columns(), write_site)?;
    writeln!(out, "\nSites that shrank: {} of {}", number::grouped(shown as u64), number::grouped(sites.len() as u64))?;
    for (index, site) in sites.iter().take(shown).enumerate() {
        write_site(index, site, out)?;
    }
    bounds.write_rest(&sites, shown, out)
}

/// Returns the profile with the decreases of live memory in place of its growth.
fn negated(profile: &Profile) -> Profile {
    let mut profile = profile.clone();
    for stack in &mut profile.stacks {
        stack.usage = stack.usage.with_amount(Quantity::LiveBytes, Amount::default() - stack.usage.live());
    }
    profile
}

/// Returns the sites with a value, the largest first. Sites with equal values keep the order of the profile.
fn ranked(view: MetricView<'_>, frames: &Frames<'_>, roots: &Groups) -> Vec<Site> {
    let profile = view.profile();
    let mut sites: Vec<Site> = Vec::new();
    // Lines are made again for each comparison, because the lines of all sites would take more memory than all other
    // data.
    let mut known: HashTable<(u64, usize)> = HashTable::new();
    let lines_of = |stack: usize| stack::lines(frames, &profile.stacks[stack]);
    // A stack with the value 0 adds its other numbers to a site with the same lines, but makes no site of its own.
    let has_value = |&(_, stack): &(usize, &StackProfile)| view.value(&stack.usage) > 0;
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
            None if view.value(&stack.usage) == 0 => continue,
            None => {
                known.insert_unique(hash, (hash, sites.len()), |&(hash, _)| hash);
                sites.push(Site {
                    root,
                    stack: index,
                    value: 0,
                    usage: Quantities::default(),
                    histograms: BlockHistograms::default(),
                    live_changes: LiveChanges::default(),
                    by_allocator: false,
                    resident_is_unknown: false,
                });
                sites.len() - 1
            }
        };
        let site = &mut sites[site];
        site.value = site.value.saturating_add(view.value(&stack.usage));
        site.usage += stack.usage;
        site.live_changes.merge(&stack.live_changes);
        site.by_allocator |= profile.run.class.holds_mappings() && allocators::is_within(profile, stack);
        site.resident_is_unknown |= profile.processes[stack.process].resident_is_unknown;
        site.histograms.add(&stack.histograms);
    }
    if view.is_net_growth() {
        // In a site, stacks that grew and stacks that shrank cancel each other. Sites without growth are left out.
        sites.iter_mut().for_each(|site| site.value = view.value(&site.usage));
        sites.retain(|site| site.value > 0);
    }
    sites.sort_by_key(|site| Reverse(site.value));
    sites
}

/// Returns the heading of a site: rank, share, value, related numbers, and group. `columns`: width of the line.
fn heading(view: MetricView<'_>, rank: usize, site: &Site, share: f64, root: Option<&str>, columns: usize) -> String {
    let usage = &site.usage;
    let class = view.class();
    let sampled = SampledPart::of_stack(usage);
    let error = view.error_text(usage, &sampled);
    let mut aside = aside(view, usage, &sampled);
    if class.holds_mappings() && usage.live().bytes != Bytes(0) {
        let resident = Bytes(usage[Quantity::ResidentBytes]);
        aside.push_str(&format!(", {} touched", format::resident_bytes(resident, site.resident_is_unknown)));
    }
    if site.by_allocator {
        aside.push_str(", in an allocator");
    }
    let heading = format!("{rank:>3}. {:>6}  {}{error}{aside}", number::percent(share), view.text(site.value));
    let Some(root) = root else { return heading };
    // The name of a group has at least this space, even if the line gets too long.
    let room = columns.saturating_sub(heading.chars().count() + 2).max(MIN_GROUP_WIDTH);
    format!("{heading}, {}", format::shortened_middle(&escape::visible(root), room))
}

/// Returns the numbers that follow the value of a site: the paired number of the same blocks, or the live amount.
/// `sampled`: the sampled part of the site.
fn aside(view: MetricView<'_>, usage: &Quantities, sampled: &SampledPart) -> String {
    let (live, exit) = (usage.live(), usage.exit());
    let word = view.class().words().live;
    let profile = view.profile();
    if view.is_net_growth() {
        let uncertainty = sampled.uncertainty(profile, Quantity::LiveCount);
        return format!(" in {}", format::change_in_blocks(view.class(), live.count, uncertainty));
    }
    let error = |quantity: Quantity| {
        let uncertainty = sampled.uncertainty(profile, quantity);
        uncertainty.map_or_else(String::new, |uncertainty| uncertainty.suffix(Measure::Bytes, usage[quantity]))
    };
    if view.is_of_touches() {
        return format!(" of {}{} {word}", live.bytes, error(Quantity::LiveBytes));
    }
    if view.is_of_peaks() {
        return match (exit.bytes, live.bytes) {
            (Bytes(0), Bytes(0)) => format!(", none of it {word} at the end"),
            (Bytes(0), live) => format!(", {live}{} {word} at the end", error(Quantity::LiveBytes)),
            (exit, _) => format!(", {exit}{} held at exit", error(Quantity::ExitBytes)),
        };
    }
    let Some(pair) = view.text_of_pair(usage, sampled) else { return String::new() };
    let preposition = if view.measure() == Measure::Count { "of" } else { "in" };
    let mut aside = format!(" {preposition} {pair}");
    if view.quantity() == Quantity::TemporaryCount {
        let part = usage.temporary().count as f64 / usage.alloc().count.max(1) as f64;
        aside.push_str(&format!(", {} of its blocks", number::percent(part)));
    }
    aside
}

#[cfg(test)]
mod tests;
