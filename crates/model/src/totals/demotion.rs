//! Demotion of process images with too many live blocks.

use crate::{Amount, Bytes, Tick};

/// Demotion of a process image. Its user had more live blocks than a fair share of the ledger, so blocks below a
/// minimum size are not followed any more: their frees are not known, and they do not count as live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demotion {
    /// Time of the first demotion of the process. Several shards can demote it, some milliseconds apart. Then this is the time
    /// of the last of these shards. In a profile, the time is relative to the start of the period, and 0 if the process was
    /// demoted before the period.
    pub at: Tick,
    /// Size of the smallest block that is followed; 0 if the process was not demoted.
    pub min_size: Bytes,
    /// Allocated blocks that are not followed. The allocated amount of the image includes them.
    pub dropped: Amount,
    /// Number of frees of unknown blocks since the demotion.
    pub frees: u64,
}

impl Demotion {
    /// Returns true if the process was not demoted.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.min_size.0 == 0
    }

    /// Adds the demotion of another shard, period or image.
    pub fn merge(&mut self, other: Self) {
        self.at = self.at.max(other.at);
        self.min_size = self.min_size.max(other.min_size);
        self.dropped += other.dropped;
        self.frees = self.frees.wrapping_add(other.frees);
    }

    /// Returns the change since `earlier`. A time and a size that have not changed are 0.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            at: if self.at == earlier.at { Tick(0) } else { self.at },
            min_size: if self.min_size == earlier.min_size { Bytes(0) } else { self.min_size },
            dropped: self.dropped - earlier.dropped,
            frees: self.frees.wrapping_sub(earlier.frees),
        }
    }

    /// Returns the share of followed blocks in the bytes that the image `allocated`, from 0 to 1.
    #[must_use]
    pub fn followed_share(&self, allocated: Bytes) -> f64 {
        let followed = allocated.0.saturating_sub(self.dropped.bytes.0);
        if allocated.0 == 0 { 1.0 } else { followed as f64 / allocated.0 as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLIER: Demotion =
        Demotion { at: Tick(5), min_size: Bytes(16), dropped: Amount { bytes: Bytes(80), count: 10 }, frees: 3 };

    #[test]
    fn a_change_and_the_earlier_demotion_give_the_later_one() {
        let later = Demotion { min_size: Bytes(64), dropped: EARLIER.dropped + EARLIER.dropped, frees: 4, ..EARLIER };
        let change = later.since(&EARLIER);
        assert_eq!((change.at, change.min_size, change.frees), (Tick(0), Bytes(64), 1));
        let mut sum = EARLIER;
        sum.merge(change);
        assert_eq!(sum, later);
        assert_eq!(EARLIER.since(&EARLIER), Demotion::default());
        assert_eq!(EARLIER.since(&Demotion::default()), EARLIER);
    }

    #[test]
    fn the_followed_share_is_of_all_allocated_bytes() {
        assert_eq!(EARLIER.followed_share(Bytes(320)), 0.75);
        assert_eq!(EARLIER.followed_share(Bytes(40)), 0.0);
        assert_eq!(Demotion::default().followed_share(Bytes(0)), 1.0);
    }
}
