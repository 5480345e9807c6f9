//! Changes of live memory over time.

/// Changes of a stack in each [period](crate::RunFacts::parts) of a recorded run; empty if the changes are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveChanges(Vec<PartChange>);

/// Change of a stack in one period of a recorded run, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartChange {
    /// Live bytes at the end of the period minus live bytes at its begin.
    pub live: i64,
    /// Bytes allocated in the period.
    pub alloc: u64,
}

impl LiveChanges {
    /// Adds a change in the period with the index `part`. `parts`: number of periods.
    pub fn add(&mut self, part: usize, parts: usize, change: PartChange) {
        self.0.resize(parts.max(self.0.len()), PartChange::default());
        if let Some(sum) = self.0.get_mut(part) {
            sum.add(change);
        }
    }

    /// Adds the changes of another stack.
    pub fn merge(&mut self, other: &Self) {
        self.0.resize(other.0.len().max(self.0.len()), PartChange::default());
        self.0.iter_mut().zip(&other.0).for_each(|(ours, theirs)| ours.add(*theirs));
    }

    /// Removes the change in the period with the index `part`.
    pub fn clear(&mut self, part: usize) {
        if let Some(change) = self.0.get_mut(part) {
            *change = PartChange::default();
        }
    }

    /// Returns the sum over all periods.
    #[must_use]
    pub fn total(&self) -> PartChange {
        self.0.iter().fold(PartChange::default(), |mut sum, change| {
            sum.add(*change);
            sum
        })
    }

    /// Returns the changes in the order of the periods.
    #[must_use]
    pub fn as_slice(&self) -> &[PartChange] {
        &self.0
    }
}

impl PartChange {
    const fn add(&mut self, other: Self) {
        self.live = self.live.wrapping_add(other.live);
        self.alloc = self.alloc.wrapping_add(other.alloc);
    }
}
