//! What was lost, by reason.

pub use memtrace_common::vocabulary::LossReason;

/// How often each [`LossReason`] applied. Additive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Losses([u64; LossReason::COUNT]);

impl Default for Losses {
    fn default() -> Self {
        Self([0; LossReason::COUNT])
    }
}

impl Losses {
    /// Counts `count` more losses for `reason`.
    pub fn add(&mut self, reason: LossReason, count: u64) {
        let total = &mut self.0[reason.index()];
        *total = total.saturating_add(count);
    }

    /// How often `reason` applied.
    #[must_use]
    pub fn get(&self, reason: LossReason) -> u64 {
        self.0[reason.index()]
    }

    /// Every reason with its count, zeros included, in the order of [`LossReason::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (LossReason, u64)> + '_ {
        LossReason::ALL.iter().map(|&reason| (reason, self.get(reason)))
    }

    /// All losses together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Adds another count of losses to this one.
    pub fn merge(&mut self, other: &Self) {
        for (reason, count) in other.iter() {
            self.add(reason, count);
        }
    }

    /// The losses since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = Self::default();
        for (reason, count) in self.iter() {
            difference.add(reason, count.saturating_sub(earlier.get(reason)));
        }
        difference
    }
}
