//! Finds the sites of both reports, and computes the change of each site.

use std::collections::BTreeSet;

use memtrace_model::{Bytes, Profile, StackProfile};
use rustc_hash::FxHashMap;

use super::side;
use crate::estimate::{self, Samples, Uncertainty};
use crate::groups::Groups;
use crate::library::Library;
use crate::metrics::MetricView;
use crate::text::frames::Frames;
use crate::text::stack::{self, Line};

/// A site is stable if its value changes by at most 1/`STABLE_PARTS` (5 %) of the value in the first report.
pub(super) const STABLE_PARTS: u64 = 20;

/// A profile with its groups and the texts of its frames.
pub(super) struct Compared<'a> {
    pub(super) profile: &'a Profile,
    pub(super) frames: Frames<'a>,
    groups: Groups,
}

impl<'a> Compared<'a> {
    pub(super) fn new(profile: &'a Profile) -> Self {
        Self { profile, frames: Frames::new(profile), groups: Groups::by_comm(profile) }
    }
}

/// Kind of change of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    New,
    Grown,
    Stable,
    Shrunk,
    Vanished,
    /// The interval of the change contains 0. Only estimates from samples have an interval.
    WithinError,
}

impl Kind {
    /// Every kind, ordered as in the table in the text.
    pub(super) const ALL: [Self; 6] =
        [Self::New, Self::Grown, Self::Stable, Self::Shrunk, Self::Vanished, Self::WithinError];

    /// Returns the name in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Grown => "grown",
            Self::Stable => "stable",
            Self::Shrunk => "shrunk",
            Self::Vanished => "vanished",
            Self::WithinError => "within_error",
        }
    }

    /// Returns the name in the text.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::WithinError => "within the error",
            kind => kind.name(),
        }
    }
}

/// Stacks of both reports that have the same lines, in processes with the same short name.
#[derive(Debug, PartialEq)]
pub(super) struct Site {
    /// Short name of the processes.
    pub(super) process: String,
    /// Value in the first report.
    pub(super) before: u64,
    /// Value in the second report.
    pub(super) after: u64,
    /// Uncertainty of the change; `None` if both values are exact.
    pub(super) uncertainty: Option<Uncertainty>,
    /// One of the stacks of the site: index of the report, and index of the stack.
    example: (usize, usize),
}

impl Site {
    pub(super) fn kind(&self) -> Kind {
        let change = self.before.abs_diff(self.after);
        if change > 0 && side::is_within(self.uncertainty, self.before, self.after) {
            Kind::WithinError
        } else if self.before == 0 {
            Kind::New
        } else if self.after == 0 {
            Kind::Vanished
        } else if change <= self.before / STABLE_PARTS {
            Kind::Stable
        } else if self.after > self.before {
            Kind::Grown
        } else {
            Kind::Shrunk
        }
    }

    /// Returns one of the stacks of the site, and the report that contains it.
    pub(super) fn example<'a>(&self, compared: &'a [Compared<'_>; 2]) -> (&'a Compared<'a>, &'a StackProfile) {
        let (side, stack) = self.example;
        (&compared[side], &compared[side].profile.stacks[stack])
    }
}

/// A line of a stack without its source line and its number of folded frames, because these differ between builds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Function(u32),
    Libraries(BTreeSet<Library>),
    Cut,
    Empty(&'static str),
    Truncated,
}

/// Returns the sites with a value in either report, the greatest change first.
pub(super) fn changes(compared: &[Compared<'_>; 2], view: MetricView<'_>) -> Vec<Site> {
    let mut names: FxHashMap<&str, u32> = FxHashMap::default();
    let mut known: FxHashMap<(&str, Vec<Key>), usize> = FxHashMap::default();
    let mut sites: Vec<Site> = Vec::new();
    // Samples of each site in both reports.
    let mut samples: Vec<[Samples; 2]> = Vec::new();
    for (side, report) in compared.iter().enumerate() {
        for (index, stack) in report.profile.stacks.iter().enumerate() {
            let value = view.value(&stack.usage);
            if value == 0 {
                continue;
            }
            let lines = stack::lines(&report.frames, stack).into_iter();
            let keys = lines.map(|line| match line {
                Line::Frame(id) => {
                    // There are far fewer than 2^32 names.
                    let next = names.len() as u32;
                    Key::Function(*names.entry(report.frames.shown(id).name.as_str()).or_insert(next))
                }
                Line::Library(_, libraries) => Key::Libraries(libraries),
                Line::Cut(_) => Key::Cut,
                Line::Empty(reason) => Key::Empty(reason),
                // Reports of a comparison have no merged stacks.
                Line::Other(_) => Key::Empty(""),
                Line::Truncated => Key::Truncated,
            });
            let keys = keys.collect();
            let process = report.groups.all()[report.groups.of_stack(index)].label.as_str();
            let site = *known.entry((process, keys)).or_insert_with(|| {
                let example = (side, index);
                sites.push(Site { process: process.to_owned(), before: 0, after: 0, uncertainty: None, example });
                samples.push([Samples::default(); 2]);
                sites.len() - 1
            });
            samples[site][side] += view.samples(&stack.usage);
            let site = &mut sites[site];
            let sum = if side == 0 { &mut site.before } else { &mut site.after };
            *sum = sum.saturating_add(value);
        }
    }
    let of_sides = [0, 1].map(|side| intervals(compared[side].profile, &sites));
    for (site, samples) in sites.iter_mut().zip(samples) {
        let interval = |side: usize| of_sides[side].get(&site.process).copied().flatten();
        site.uncertainty = side::uncertainty_of_change(interval, view, samples, [site.before, site.after]);
    }
    sites.sort_by_key(|site| std::cmp::Reverse(site.before.abs_diff(site.after)));
    sites
}

/// Returns the intervals of the samplers of the processes with the short name of each site.
fn intervals(profile: &Profile, sites: &[Site]) -> FxHashMap<String, Option<Bytes>> {
    let names: BTreeSet<_> = sites.iter().map(|site| &site.process).collect();
    let interval = |name: &str| estimate::interval_of(profile, |process| process.comm.raw() == name);
    names.into_iter().map(|name| (name.clone(), interval(name))).collect()
}

/// Returns the number of sites with this kind of change, and the sum of their values in each report.
pub(super) fn sum_of(sites: &[Site], kind: Kind) -> (u64, u64, u64) {
    sites.iter().filter(|site| site.kind() == kind).fold((0, 0, 0), |(count, before, after), site| {
        (count + 1, before.saturating_add(site.before), after.saturating_add(site.after))
    })
}
