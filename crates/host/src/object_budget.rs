//! Budget of the time that objects take. No user can use up the time for the objects of other users, or delay a report for
//! ever.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::major;

/// Bytes of debug information that are read in a second: a third of the rate of a build without optimisations.
const BYTES_PER_SECOND: u64 = 32 << 20;
/// Maximum time of an owner, whatever the size of the objects.
const MAX_TIME: Duration = Duration::from_secs(60);
/// With less time, no object is read.
const SHORTEST_TIME: Duration = Duration::from_millis(100);
/// Half of the used time is forgiven at this interval.
const FORGIVEN_EACH: Duration = Duration::from_secs(60);

/// Owners with less used time are removed.
const NEGLIGIBLE: Duration = Duration::from_millis(10);

/// File system and user of an object. A container can have a root user of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectOwner {
    device: u64,
    user: u32,
}

impl ObjectOwner {
    /// Returns the owner of an open file. A copy in memory has the owner of its original.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let original = with_originals(|originals| originals.get(&[metadata.dev(), metadata.ino()]).copied());
        Ok(original.unwrap_or(Self { device: metadata.dev(), user: metadata.uid() }))
    }

    /// Remembers the file system and the user of the original of `copy`, which is a copy in memory.
    pub(crate) fn set_original(copy: &File, device: u64, user: u32) -> io::Result<()> {
        let metadata = copy.metadata()?;
        with_originals(|originals| {
            if originals.len() >= MOST_ORIGINALS {
                originals.clear();
            }
            originals.insert([metadata.dev(), metadata.ino()], Self { device, user });
        });
        Ok(())
    }

    /// Returns true for a file of root on a disk. No user can make such a file, not even in own namespaces. Device numbers of
    /// other file systems have the major number 0 (`get_anon_bdev`, fs/super.c).
    pub(crate) fn is_root_of_disk(self) -> bool {
        self.user == 0 && major(self.device) != 0
    }
}

/// Maximum number of known copies.
const MOST_ORIGINALS: usize = 4096;

/// Owners of the originals of copies, by device and inode number of the copy.
static ORIGINALS: Mutex<BTreeMap<[u64; 2], ObjectOwner>> = Mutex::new(BTreeMap::new());

fn with_originals<T>(work: impl FnOnce(&mut BTreeMap<[u64; 2], ObjectOwner>) -> T) -> T {
    work(&mut ORIGINALS.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
impl ObjectOwner {
    /// A user on a file system of its own without a disk.
    pub(crate) const fn user(user: u32) -> Self {
        Self { device: 1, user }
    }

    pub(crate) fn root() -> Self {
        Self { device: rustix::fs::makedev(254, 1), user: 0 }
    }
}

/// Returns the bytes that a file system has stored for a file: a sparse file can have any size at no cost. `st_blocks` is in
/// units of 512 bytes (stat(3type)).
pub(crate) fn stored_bytes(metadata: &Metadata) -> u64 {
    metadata.blocks().saturating_mul(512).min(metadata.len())
}

/// Time that objects may take. The objects of each owner share a limit that grows with their size. All objects that users can
/// have made share another limit of this kind.
#[derive(Debug)]
pub(crate) struct ObjectBudget {
    /// Time of objects without any bytes.
    time: Duration,
    used: BTreeMap<ObjectOwner, Used>,
    forgiven: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    time: Duration,
    bytes: u64,
}

impl Used {
    /// Returns the time that is left for further files with this number of stored bytes. The limit is `time` plus `reserve`,
    /// and grows with the bytes.
    fn left_of(self, time: Duration, reserve: Duration, bytes: u64) -> Duration {
        let bytes = self.bytes.saturating_add(bytes);
        let limit = (time + Duration::from_secs(bytes / BYTES_PER_SECOND)).min(MAX_TIME);
        (limit + reserve).saturating_sub(self.time)
    }
}

impl ObjectBudget {
    pub(crate) fn new(time: Duration) -> Self {
        Self { time, used: BTreeMap::new(), forgiven: Instant::now() }
    }

    /// Returns the time that files with this number of stored bytes may take; `None` if they are not read.
    pub(crate) fn left(&mut self, owner: ObjectOwner, bytes: u64) -> Option<Duration> {
        while self.forgiven.elapsed() >= FORGIVEN_EACH && !self.used.is_empty() {
            self.forgiven += FORGIVEN_EACH;
            self.used.values_mut().for_each(|used| *used = Used { time: used.time / 2, bytes: used.bytes / 2 });
            self.used.retain(|_, used| used.time >= NEGLIGIBLE);
        }
        let of_owner = self.used.get(&owner).copied().unwrap_or_default();
        let mut left = of_owner.left_of(self.time, Duration::ZERO, bytes);
        if !owner.is_root_of_disk() {
            let others = self.used.iter().filter(|(owner, _)| !owner.is_root_of_disk());
            let all = others.fold(Used::default(), |sum, (_, used)| Used {
                time: sum.time + used.time,
                bytes: sum.bytes.saturating_add(used.bytes),
            });
            // Owners that have used little time get more of it.
            let has_used_little = of_owner.time < self.time / 6;
            let reserve = if has_used_little { self.time / 2 } else { Duration::ZERO };
            left = left.min(all.left_of(self.time, reserve, bytes));
        }
        (left >= SHORTEST_TIME).then_some(left)
    }

    /// Adds the time that an object with this number of stored bytes has cost.
    pub(crate) fn add(&mut self, owner: ObjectOwner, bytes: u64, time: Duration) {
        if self.used.is_empty() {
            self.forgiven = Instant::now();
        }
        let used = self.used.entry(owner).or_default();
        *used = Used { time: used.time + time, bytes: used.bytes.saturating_add(bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(6);
    const ONE: ObjectOwner = ObjectOwner::user(1);

    fn seconds(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    #[test]
    fn time_grows_with_the_size_up_to_a_limit() {
        let mut budget = ObjectBudget::new(TIME);
        assert_eq!(budget.left(ONE, 0), seconds(6));
        assert_eq!(budget.left(ONE, 320 << 20), seconds(16));
        assert_eq!(budget.left(ONE, u64::MAX), Some(MAX_TIME));
    }

    #[test]
    fn objects_of_a_user_share_their_time() {
        let mut budget = ObjectBudget::new(TIME);
        for _ in 0..5 {
            budget.add(ONE, 64 << 20, Duration::from_secs(2));
        }
        assert_eq!(budget.left(ONE, 0), seconds(6));
        budget.add(ONE, 0, Duration::from_secs(6));
        assert_eq!(budget.left(ONE, 0), None);
        budget.forgiven = Instant::now().checked_sub(FORGIVEN_EACH).unwrap();
        assert_eq!(budget.left(ONE, 0), seconds(3));
    }

    #[test]
    fn objects_of_all_users_share_a_time_that_leaves_some_to_others() {
        let (mut budget, disk) = (ObjectBudget::new(TIME), ObjectOwner::root());
        budget.add(ONE, 0, Duration::from_secs(6));
        let other = ObjectOwner::user(2);
        assert_eq!([ONE, other, disk].map(|owner| budget.left(owner, 0)), [None, seconds(3), seconds(6)]);
        budget.add(other, 0, Duration::from_secs(1));
        assert_eq!([other, ObjectOwner::user(0)].map(|owner| budget.left(owner, 0)), [None, seconds(2)]);
        (3..5).for_each(|user| budget.add(ObjectOwner::user(user), 0, Duration::from_secs(1)));
        assert_eq!([ObjectOwner::user(5), disk].map(|owner| budget.left(owner, 0)), [None, seconds(6)]);
    }

    #[test]
    fn user_with_large_objects_leaves_the_reserve_to_others() {
        let mut budget = ObjectBudget::new(TIME);
        budget.add(ONE, 1 << 40, MAX_TIME);
        assert_eq!([ONE, ObjectOwner::user(2)].map(|owner| budget.left(owner, 0)), [None, seconds(3)]);
    }

    #[test]
    fn objects_of_root_on_a_disk_cost_users_nothing() {
        let (mut budget, disk) = (ObjectBudget::new(TIME), ObjectOwner::root());
        assert_eq!(budget.left(disk, 0), seconds(6));
        budget.add(disk, 0, Duration::from_secs(6));
        assert_eq!((budget.left(disk, 0), budget.left(ONE, 0)), (None, seconds(6)));
    }

    #[test]
    fn root_of_a_file_system_without_a_disk_can_be_anyone() {
        assert!(ObjectOwner::root().is_root_of_disk());
        assert!(!ObjectOwner::user(0).is_root_of_disk());
        assert!(!ObjectOwner { user: 1000, ..ObjectOwner::root() }.is_root_of_disk());
    }

    #[test]
    fn copy_has_the_owner_of_its_original() {
        let copy = File::from(rustix::fs::memfd_create("copy", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        assert_ne!(ObjectOwner::of(&copy).unwrap(), ObjectOwner::root());
        ObjectOwner::set_original(&copy, ObjectOwner::root().device, 0).unwrap();
        assert_eq!(ObjectOwner::of(&copy).unwrap(), ObjectOwner::root());
    }
}
