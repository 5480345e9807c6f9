//! Reader of the heap profile in the memory of a process.

use std::sync::Arc;

use memtrace_model::{AbsAddr, Bytes, VirtOffset};

use super::bucket_list::BucketList;
use super::bucket_record::{Counts, CycleSum};
use super::executable::GoExecutable;
use super::heap_profile::{Bucket, BucketStack, HeapProfile};
use super::profile_error::ProfileError;
use super::settled_counts::{CountsReader, SettledCounts};
use super::stack_frames::StackFrames;
use super::target_memory::{Blocks, TargetMemory, read};
use super::variables::ProfileVariables;
use crate::elf::{Elf, Source};

/// Maximum sampling rate in bytes: 1 TiB. A program that samples next to nothing has a larger one.
const MAX_RATE: u64 = 1 << 40;

/// Reader of the heap profile of one process image. It keeps 16 bytes for each bucket.
#[derive(Debug)]
pub struct ProfileReader {
    executable: Arc<GoExecutable>,
    /// Address in the process minus address in the object.
    bias: u64,
    list: BucketList,
    /// Sampling rate at the last reading; `None` before the first one.
    rate: Option<Bytes>,
}

/// Request to read a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileRequest {
    /// Number of buckets whose stacks the caller has received. Stacks of the other buckets are in the profile, even if an earlier
    /// one had them.
    pub known: usize,
    /// Maximum number of buckets.
    pub most: usize,
    /// True if the numbers are all samples so far, even if the runtime has published a profile.
    pub with_unpublished: bool,
}

impl ProfileReader {
    /// Creates a reader. `bias`: address in the process minus address in the object, which is 0 for an executable with a fixed
    /// address.
    #[must_use]
    pub fn new(executable: Arc<GoExecutable>, bias: u64) -> Self {
        Self { executable, bias, list: BucketList::default(), rate: None }
    }

    /// Returns the number of collections that have ended. The profile changes when this number does. If the program has called
    /// `runtime.GC`, the profile changes a second time when the memory is swept, which the number does not show.
    ///
    /// # Errors
    ///
    /// The memory cannot be read, or the program keeps no profile.
    pub fn collections(&self, memory: &impl TargetMemory) -> Result<u32, ProfileError> {
        let cycle = self.variables()?.cycle;
        // The lowest bit is set as soon as the runtime publishes the cycle of this number.
        Ok(u32::from_le_bytes(read(memory, self.address(cycle))?) >> 1)
    }

    /// Reads the profile. `file`: the executable, whose table of functions is needed for new stacks.
    ///
    /// # Errors
    ///
    /// The memory or the file cannot be read, the program keeps no profile, or what it keeps is no valid profile.
    pub fn read<M: TargetMemory, S: Source>(
        &mut self,
        memory: &M,
        file: S,
        request: ProfileRequest,
    ) -> Result<HeapProfile, ProfileError> {
        self.list.truncate(request.known);
        let variables = self.variables()?;
        let rate = match u64::from_le_bytes(read(memory, self.address(variables.rate))?) {
            // A program that has stopped sampling still publishes the frees of its samples.
            0 => self.rate.ok_or(ProfileError::RateIsZero)?,
            rate if rate > MAX_RATE => return Err(ProfileError::Rate(rate)),
            rate => Bytes(rate),
        };
        let mut blocks = Blocks::new(memory);
        let new_stacks = self.extend(memory, &mut blocks, file, request.most)?;
        let (settled, is_published) = self.counts(memory, &mut blocks, request.with_unpublished)?;
        let collections = self.collections(memory)?;
        let buckets = self.buckets(&settled)?;
        self.rate = Some(rate);
        Ok(HeapProfile {
            collections: settled.cycle.unwrap_or(collections),
            is_published,
            is_mixed: is_published && settled.cycle.is_none(),
            rate,
            changed: settled.changed,
            buckets,
            new_stacks,
        })
    }

    fn variables(&self) -> Result<ProfileVariables, ProfileError> {
        self.executable.variables.ok_or(ProfileError::NotImported)
    }

    fn address(&self, virt: VirtOffset) -> AbsAddr {
        AbsAddr(virt.0.wrapping_add(self.bias))
    }

    /// Adds new buckets to the list, and returns their stacks. `most`: maximum number of all buckets.
    fn extend<M: TargetMemory, S: Source>(
        &mut self,
        memory: &M,
        blocks: &mut Blocks<'_, M>,
        file: S,
        most: usize,
    ) -> Result<Vec<BucketStack>, ProfileError> {
        let head = u64::from_le_bytes(read(memory, self.address(self.variables()?.buckets))?);
        if head == self.list.newest() {
            return Ok(Vec::new());
        }
        let elf = Elf::parse(file)?;
        let known = self.list.buckets().len();
        let mut frames = StackFrames::new(&self.executable.functions, &elf, self.bias);
        let layout = self.executable.layout;
        let stacks = self.list.extend(blocks, head, layout, most, |stack| frames.frames(stack))?;
        let stack = |(bucket, (frames, is_truncated))| BucketStack { bucket, frames, is_truncated };
        Ok((known..).zip(stacks).map(stack).collect())
    }

    /// Reads the numbers of all buckets. Returns the numbers, and false if they can include samples that are not published.
    fn counts<M: TargetMemory>(
        &self,
        memory: &M,
        blocks: &mut Blocks<'_, M>,
        with_unpublished: bool,
    ) -> Result<(SettledCounts, bool), ProfileError> {
        let layout = self.executable.layout.record;
        let mut reader = CountsReader { blocks, list: &self.list, layout };
        if with_unpublished {
            return Ok((reader.settled(CycleSum::All)?, false));
        }
        let settled = reader.published(|| self.collections(memory))?;
        let is_zero = |counts: &Option<Counts>| *counts == Some(Counts { allocs: 0, frees: 0 });
        // If nothing is published, the program itself shows all cycles (`memProfileInternal`, runtime/mprof.go).
        if settled.counts.iter().all(is_zero) {
            return Ok((reader.settled(CycleSum::All)?, false));
        }
        Ok((settled, true))
    }

    fn buckets(&self, settled: &SettledCounts) -> Result<Vec<Bucket>, ProfileError> {
        let counts = settled.checked(&self.list)?.into_iter();
        let bucket = |(size, Counts { allocs, frees })| Bucket { size, allocs, frees };
        Ok(self.list.buckets().iter().map(|bucket| Bytes(bucket.size())).zip(counts).map(bucket).collect())
    }
}
