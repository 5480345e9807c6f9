//! Memory counters of the kernel, which are exact even if pages are sampled.

use memtrace_model::{Bytes, PageFaults, ProcessProfile, Profile, Quantities, Quantity, ResidentKind};

use crate::estimate;

/// Counters of a process, of a kind of memory of a process, or sums of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelReported {
    /// Resident bytes; `None` for exited processes, or if unknown.
    pub(super) resident: Option<Bytes>,
    /// Page faults; `None` if unknown. A sum includes only known page faults.
    pub(super) faults: Option<PageFaults>,
    /// Upper bound of the resident bytes of the stacks; `None` if unknown.
    most: Option<Bytes>,
}

impl KernelReported {
    pub(super) fn of(process: &ProcessProfile) -> Self {
        let resident = process.resident.as_ref().map(|residence| residence.sum().total);
        // An exited process has no resident memory.
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

    /// Returns the sum of both counters, or the only one that exists.
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

/// Returns the error of the live pages in `usage`, in pages; `None` if numbers have no errors. `known`: the kernel's
/// counters for the process or group with this usage. They limit the error.
pub(super) fn live_error(known: Option<KernelReported>, profile: &Profile, usage: &Quantities) -> Option<u64> {
    let error = estimate::error(profile, Quantity::LiveCount, usage)?;
    let most = known.and_then(|known| known.most);
    let counted = Bytes(usage[Quantity::HugeLiveBytes]);
    Some(most.map_or(error, |most| estimate::limited(error, usage.live().bytes, [counted, most])))
}

/// Returns the sum of the known counts; `None` if none is known.
fn sum(faults: impl Iterator<Item = Option<PageFaults>>) -> Option<PageFaults> {
    faults.flatten().reduce(|sum, faults| PageFaults {
        minor: sum.minor.saturating_add(faults.minor),
        major: sum.major.saturating_add(faults.major),
    })
}

#[cfg(test)]
mod tests {
    use memtrace_model::RunFacts;
    use memtrace_model::{Amount, ImageEnd, MappingKind, PAGE, Pid, Residency};

    use super::*;

    #[test]
    fn an_error_is_limited_by_the_resident_memory() {
        let resident = ResidentKind { total: Bytes(7 * PAGE.0), ..ResidentKind::default() };
        let residence = Residency([(MappingKind::Anonymous, resident)].into());
        let runs = ProcessProfile { resident: Some(residence), ..ProcessProfile::new(Pid(1), "sh") };
        let ended = ProcessProfile { ended: Some(ImageEnd::Exit), ..ProcessProfile::new(Pid(2), "sh") };
        let [runs, ended, unknown] =
            [runs, ended, ProcessProfile::new(Pid(3), "sh")].map(|process| KernelReported::of(&process));
        let profile = Profile { run: RunFacts { page_sample: 64, ..RunFacts::default() }, ..Profile::default() };
        let error = |known: KernelReported, live| {
            let live = Amount { bytes: Bytes(live * PAGE.0), count: live };
            live_error(Some(known), &profile, &Quantities::ZERO.with_amount(Quantity::LiveBytes, live))
        };
        assert_eq!([error(runs, 0), error(ended, 0), error(unknown, 0)], [Some(7), Some(0), Some(246)]);
        assert_eq!(error(runs, 64), Some(64), "less than nothing it is not");
        assert_eq!(error(runs.and(ended), 0), Some(7));
        assert_eq!(error(runs.and(unknown), 0), Some(246));
        assert_eq!(runs.and(ended).resident, Some(Bytes(7 * PAGE.0)));
    }
}
