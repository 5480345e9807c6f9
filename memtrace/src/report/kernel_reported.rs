//! What the kernel says of processes' memory, beside what their stacks come to: it is exact, whatever was sampled.

use crate::model::{Bytes, Metric, PageFaults, ProcessProfile, Profile, ResidentKind, Usage, Variance};
use crate::report::estimate;

/// Of a process, of a kind of its memory, or of several of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// All that is resident; `None` where nothing is, the processes having ended, or nothing is known.
    pub(super) resident: Option<Bytes>,
    /// The page faults, as far as they are known.
    pub(super) faults: Option<PageFaults>,
    /// More their stacks cannot have resident, where that is known.
    most: Option<Bytes>,
}

impl Known {
    pub(super) fn of(process: &ProcessProfile) -> Self {
        let resident = process.resident.as_ref().map(|residence| residence.sum().total);
        // What has ended has nothing resident.
        let most = resident.or_else(|| process.ended.map(|_| Bytes(0)));
        Self { resident, faults: process.faults, most }
    }

    pub(super) const fn of_kind(kind: &ResidentKind) -> Self {
        Self { resident: Some(kind.total), faults: None, most: Some(kind.total) }
    }

    pub(super) fn of_all(profile: &Profile) -> Self {
        let none = Self { resident: None, faults: None, most: Some(Bytes(0)) };
        profile.processes.iter().map(Self::of).fold(none, Self::and)
    }

    /// What is known of both together.
    pub(super) fn of_both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        [one, other].into_iter().flatten().reduce(Self::and)
    }

    pub(super) fn and(self, other: Self) -> Self {
        let add = |one: Bytes, other: Bytes| Bytes(one.0.saturating_add(other.0));
        Self {
            resident: [self.resident, other.resident].into_iter().flatten().reduce(add),
            faults: sum([self.faults, other.faults].into_iter()),
            most: self.most.zip(other.most).map(|(one, other)| add(one, other)),
        }
    }
}

/// How far what stacks have resident may be off, in pages; `known` is what the kernel says of those whose stacks they are.
pub(super) fn live_error(known: Option<Known>, profile: &Profile, usage: &Usage, variance: Variance) -> Option<u64> {
    let error = estimate::error(profile, Metric::LiveCount, usage, variance)?;
    let most = known.and_then(|known| known.most);
    Some(most.map_or(error, |most| estimate::within(error, usage.live.bytes, most)))
}

/// All together, as far as they are known; `None` where none are.
fn sum(faults: impl Iterator<Item = Option<PageFaults>>) -> Option<PageFaults> {
    faults.flatten().reduce(|sum, faults| PageFaults {
        minor: sum.minor.saturating_add(faults.minor),
        major: sum.major.saturating_add(faults.major),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Amount, ImageEnd, MappingKind, PAGE, Pid, Residency};

    #[test]
    fn an_estimate_is_not_further_off_than_what_is_resident_allows() {
        let resident = ResidentKind { total: Bytes(7 * PAGE.0), ..ResidentKind::default() };
        let residence = Residency([(MappingKind::Anonymous, resident)].into());
        let runs = ProcessProfile { resident: Some(residence), ..ProcessProfile::new(Pid(1), "sh") };
        let ended = ProcessProfile { ended: Some(ImageEnd::Exit), ..ProcessProfile::new(Pid(2), "sh") };
        let [runs, ended, unknown] =
            [runs, ended, ProcessProfile::new(Pid(3), "sh")].map(|process| Known::of(&process));
        let profile = Profile { page_sample: 64, ..Profile::default() };
        let error = |known: Known, live| {
            let live = Amount { bytes: Bytes(live * PAGE.0), count: live };
            live_error(Some(known), &profile, &Usage { live, ..Usage::default() }, Variance::default())
        };
        assert_eq!([error(runs, 0), error(ended, 0), error(unknown, 0)], [Some(7), Some(0), Some(576)]);
        assert_eq!(error(runs, 64), Some(64), "less than nothing it is not");
        assert_eq!(error(runs.and(ended), 0), Some(7));
        assert_eq!(error(runs.and(unknown), 0), Some(576));
        assert_eq!(runs.and(ended).resident, Some(Bytes(7 * PAGE.0)));
    }
}
