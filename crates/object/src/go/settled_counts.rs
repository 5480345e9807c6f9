//! Numbers of all buckets, read until two readings are equal.

use memtrace_model::AbsAddr;

use super::bucket_list::BucketList;
use super::bucket_record::{Counts, CycleSum, RecordLayout};
use super::profile_error::{BucketFault, ProfileError};
use super::target_memory::{Blocks, TargetMemory};

/// Maximum number of readings after the first one.
const TRIES: usize = 3;

/// Numbers of all buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SettledCounts {
    /// Numbers of each bucket; `None` if they contradicted each other in each reading.
    pub(super) counts: Vec<Option<Counts>>,
    /// Number of buckets whose numbers differed between the last two readings of the cycle.
    pub(super) changed: u64,
    /// Number of the cycle that did not change during the last reading; `None` if it changed, or was not observed.
    pub(super) cycle: Option<u32>,
    /// False if there is no earlier reading of the same cycle, so that `changed` is not known.
    is_compared: bool,
}

/// Reader of the numbers of all buckets.
pub(super) struct CountsReader<'a, 'm, M> {
    pub(super) blocks: &'a mut Blocks<'m, M>,
    pub(super) list: &'a BucketList,
    pub(super) layout: RecordLayout,
}

impl<M: TargetMemory> CountsReader<'_, '_, M> {
    /// Reads the published numbers until two readings of the same cycle are equal. `cycle` returns the number of the cycle. If
    /// the number changes during each reading, only the published profile is read. The numbers of its buckets can belong to
    /// different cycles.
    pub(super) fn published(
        &mut self,
        cycle: impl Fn() -> Result<u32, ProfileError>,
    ) -> Result<SettledCounts, ProfileError> {
        let mut last: Option<SettledCounts> = None;
        for _ in 0..=TRIES {
            let Some(settled) = self.of_one_cycle(&cycle, last.as_ref())? else { continue };
            if settled.is_compared && settled.changed == 0 {
                return Ok(settled);
            }
            last = Some(settled);
        }
        match last {
            Some(last) if last.is_compared => Ok(last),
            // The last complete reading was the only one of its cycle, so one more reading is compared with it.
            Some(last) => {
                let again = self.of_one_cycle(&cycle, Some(&last))?;
                Ok(again.filter(|again| again.is_compared).unwrap_or(last))
            }
            None => self.settled(CycleSum::Published),
        }
    }

    /// Reads the published numbers; `None` if the cycle changes. `last`: the last reading.
    fn of_one_cycle(
        &mut self,
        cycle: impl Fn() -> Result<u32, ProfileError>,
        last: Option<&SettledCounts>,
    ) -> Result<Option<SettledCounts>, ProfileError> {
        let before = cycle()?;
        let counts = self.read(CycleSum::PublishedWith(before))?;
        if cycle()? != before {
            return Ok(None);
        }
        let earlier = last.filter(|last| last.cycle == Some(before));
        let changed = earlier.map_or(0, |earlier| changed(&earlier.counts, &counts));
        Ok(Some(SettledCounts { changed, cycle: Some(before), is_compared: earlier.is_some(), counts }))
    }

    /// Reads the sum of these cycles until two readings are equal.
    pub(super) fn settled(&mut self, sum: CycleSum) -> Result<SettledCounts, ProfileError> {
        let mut last = SettledCounts { counts: self.read(sum)?, ..SettledCounts::default() };
        for _ in 0..TRIES {
            let counts = self.read(sum)?;
            last = SettledCounts { changed: changed(&last.counts, &counts), cycle: None, is_compared: true, counts };
            if last.changed == 0 {
                break;
            }
        }
        Ok(last)
    }

    /// Reads the numbers of each bucket once.
    fn read(&mut self, sum: CycleSum) -> Result<Vec<Option<Counts>>, ProfileError> {
        self.blocks.forget();
        let mut words = Vec::with_capacity(self.layout.words());
        let counts = self.list.buckets().iter().map(|bucket| {
            words.clear();
            self.blocks.words(bucket.record(), self.layout.words(), &mut words)?;
            Ok(self.layout.counts(&words, bucket.size(), sum))
        });
        counts.collect()
    }
}

impl SettledCounts {
    /// Returns the numbers of each bucket of `list`.
    pub(super) fn checked(&self, list: &BucketList) -> Result<Vec<Counts>, ProfileError> {
        let checked = list.buckets().iter().zip(&self.counts).map(|(bucket, counts)| {
            let address = AbsAddr(bucket.address);
            counts.ok_or(ProfileError::Bucket { address, fault: BucketFault::Numbers })
        });
        checked.collect()
    }
}

/// Returns the number of buckets whose numbers differ, or contradict each other. Buckets without earlier numbers count as
/// different.
fn changed(earlier: &[Option<Counts>], later: &[Option<Counts>]) -> u64 {
    let equal = earlier.iter().zip(later).filter(|(earlier, later)| earlier.is_some() && earlier == later);
    (later.len() - equal.count()) as u64
}
