//! Losses by reason.

pub use memtrace_common::vocabulary::LossReason;

/// Number of losses for each [`LossReason`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Losses([u64; LossReason::COUNT]);

impl Default for Losses {
    fn default() -> Self {
        Self([0; LossReason::COUNT])
    }
}

impl Losses {
    /// Adds `count` losses for `reason`.
    pub fn add(&mut self, reason: LossReason, count: u64) {
        let total = &mut self.0[reason.index()];
        *total = total.saturating_add(count);
    }

    /// Returns the losses for `reason`.
    #[must_use]
    pub fn get(&self, reason: LossReason) -> u64 {
        self.0[reason.index()]
    }

    /// Iterates over all reasons and their counts, zeros included, ordered like [`LossReason::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (LossReason, u64)> + '_ {
        LossReason::ALL.iter().map(|&reason| (reason, self.get(reason)))
    }

    /// Returns the sum of all losses.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Returns the sum of the losses that make a report incomplete: all except losses with [`LossReason::is_expected`].
    #[must_use]
    pub fn unexpected(&self) -> u64 {
        let unexpected = self.iter().filter(|(reason, _)| !reason.is_expected());
        unexpected.fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Adds the losses in `other`.
    pub fn merge(&mut self, other: &Self) {
        for (reason, count) in other.iter() {
            self.add(reason, count);
        }
    }

    /// Returns the losses since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = Self::default();
        for (reason, count) in self.iter() {
            difference.add(reason, count.saturating_sub(earlier.get(reason)));
        }
        difference
    }
}
