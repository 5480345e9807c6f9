//! Counter of page frames, so that a page that several processes map counts once.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use memtrace_model::{
    AbsAddr, Bytes, DistinctFrames, DistinctMemory, MeasuredMapping, Pid, ProcessFrames, TouchedPages, UnknownFrames,
};

use super::error::ProcessError;
use super::locks;
use super::pagemap::{FRAME, MAPPED_ONCE, PRESENT, PageMap, own_entry, page_size};
use super::process::{Process, failure, proc_path};
use super::resident::{ZeroFrames, first_resident};

/// Time that counting may take in a reading, in addition to the time that reading the references has taken. Counting needs a
/// limit, because a process can map much memory many times.
const SPARE_TIME: Duration = Duration::from_secs(10);

/// Number of mappings that are read at once. The kernel takes the lock of the memory map for each of them, and the deadline
/// of [`locks::read`] is for all of them.
const AT_ONCE: usize = 64;

/// Size of the part of a mapping that is read from its first resident page on.
const PART: u64 = 32 << 20;

/// Maximum number of mappings, and of regions of touched pages, that wait for counting. Each takes less than 256 bytes. If
/// there are more, the waiting processes are counted before the end.
const MOST_WAITING: usize = 1 << 18;

/// Counter of the page frames of several processes. It reads the frames after the references of all processes, so that it does
/// not delay the other readings.
#[derive(Debug)]
pub struct FrameCounter {
    frames: Result<Frames, UnknownFrames>,
    waiting: Vec<WaitingProcess>,
    /// Number of mappings and regions of `waiting`.
    size: usize,
    /// Time that is left for counting.
    left: Duration,
    /// Time that counting has taken.
    spent: Duration,
    failed: Vec<(Pid, ProcessError)>,
}

#[derive(Debug)]
struct Frames {
    page: Bytes,
    zeros: ZeroFrames,
    all: DistinctFrames,
}

/// A process with pages that wait for counting.
#[derive(Debug)]
struct WaitingProcess {
    process: Rc<Process>,
    pages: ProcessFrames,
    /// Mappings with shared pages.
    mappings: Vec<MeasuredMapping>,
}

/// Result of counting.
#[derive(Debug)]
pub struct CountedFrames {
    /// Memory of all processes that could be read, or the reason why the page frames are unknown.
    pub memory: Result<DistinctMemory, UnknownFrames>,
    /// Processes that could not be read, with the reasons. Their pages are in no sum.
    pub failed: Vec<(Pid, ProcessError)>,
    /// Time that counting has taken.
    pub time: Duration,
}

impl FrameCounter {
    /// Starts to count the processes of a reading.
    #[must_use]
    pub fn start() -> Self {
        let (frames, waiting, failed) = (Frames::start(), Vec::new(), Vec::new());
        Self { frames, waiting, size: 0, left: SPARE_TIME, spent: Duration::ZERO, failed }
    }

    /// Adds a process. `mappings`: its mappings. `touched`: its touched pages, if the method finds single pages. `read_time`:
    /// time that reading the references has taken.
    pub fn add(
        &mut self,
        process: &Rc<Process>,
        mappings: Vec<MeasuredMapping>,
        touched: Option<TouchedPages>,
        read_time: Duration,
    ) {
        let Ok(frames) = &self.frames else { return };
        self.left += read_time;
        self.size += touched.as_ref().map_or(0, TouchedPages::regions);
        let mut pages = ProcessFrames::new(frames.page, touched);
        let (shared, exclusive): (Vec<_>, Vec<_>) =
            mappings.into_iter().partition(|mapping| mapping.memory.shared.0 > 0);
        exclusive.iter().for_each(|mapping| pages.add_exclusive(mapping));
        self.size += shared.len();
        self.waiting.push(WaitingProcess { process: Rc::clone(process), pages, mappings: shared });
        if self.size > MOST_WAITING {
            self.count();
        }
    }

    /// Counts the pages of the processes that wait.
    fn count(&mut self) {
        self.size = 0;
        for waiting in std::mem::take(&mut self.waiting) {
            let Ok(frames) = &mut self.frames else { return };
            let start = Instant::now();
            let (process, has_shared) = (Rc::clone(&waiting.process), !waiting.mappings.is_empty());
            let read = frames.read(waiting, start + self.left);
            let time = start.elapsed();
            self.left = self.left.saturating_sub(time);
            self.spent += time;
            match read {
                // The kernel frees the memory of a process shortly before its exit.
                _ if has_shared && process.is_ending() => {
                    self.failed.push((process.pid, ProcessError::Exited(process.pid)));
                }
                Ok(Some(pages)) => frames.all.add(pages),
                Ok(None) => self.frames = Err(UnknownFrames::Late),
                Err(error) => {
                    log::info!("the page frames of process {} are unknown: {error}", process.pid);
                    self.failed.push((process.pid, error));
                }
            }
        }
    }

    /// Counts the pages of all added processes.
    #[must_use]
    pub fn finish(mut self) -> CountedFrames {
        self.count();
        let Self { frames, failed, spent, .. } = self;
        CountedFrames { memory: frames.map(|frames| frames.all.memory()), failed, time: spent }
    }
}

impl Frames {
    fn start() -> Result<Self, UnknownFrames> {
        let unreadable = |error| {
            log::info!("page frames are unknown: {error}");
            UnknownFrames::Unreadable
        };
        // The kernel shows frames as 0 without CAP_SYS_ADMIN (`pagemap_read`, fs/proc/task_mmu.c).
        if own_entry().map_err(unreadable)? & FRAME == 0 {
            return Err(UnknownFrames::NotPermitted);
        }
        let page = page_size().map_err(unreadable)?;
        Ok(Self { page, zeros: ZeroFrames::find().map_err(unreadable)?, all: DistinctFrames::new(page) })
    }

    /// Reads the pages of a process; `None` if they cannot be read until `deadline`.
    fn read(&self, waiting: WaitingProcess, deadline: Instant) -> Result<Option<ProcessFrames>, ProcessError> {
        let WaitingProcess { process, pages, mappings } = waiting;
        if mappings.is_empty() {
            return Ok(Some(pages));
        }
        let path = proc_path(process.pid, "pagemap");
        let failed = |error| failure(process.pid, &path, error);
        let map = PageMap::open(process.pid).map_err(failed)?;
        let mut reader = Reader { map, zeros: self.zeros, deadline, is_late: false, pages };
        for mappings in mappings.chunks(AT_ONCE) {
            let mappings = mappings.to_vec();
            let read = move || {
                for mapping in &mappings {
                    reader.add(mapping)?;
                }
                Ok(reader)
            };
            reader = locks::read(process.pid, read).map_err(failed)?;
        }
        Ok((!reader.is_late).then_some(reader.pages))
    }
}

/// Reader of the page frames of a process.
struct Reader {
    map: PageMap,
    zeros: ZeroFrames,
    deadline: Instant,
    /// True if the deadline has passed, so that pages are missing.
    is_late: bool,
    pages: ProcessFrames,
}

impl Reader {
    /// Adds the pages of a mapping.
    fn add(&mut self, mapping: &MeasuredMapping) -> io::Result<()> {
        let Self { map, zeros, deadline, is_late, pages } = self;
        let mut pages = pages.mapping(mapping);
        let mut next = mapping.start;
        while let Some(start) = first_resident(map, next, mapping.end)? {
            if *is_late || Instant::now() > *deadline {
                *is_late = true;
                break;
            }
            next = AbsAddr(start.0.saturating_add(PART).min(mapping.end.0));
            map.each(start, next, |address, entry| {
                let frame = entry & FRAME;
                if entry & PRESENT != 0 && !zeros.contain(frame) {
                    pages.add(address, (entry & MAPPED_ONCE == 0).then_some(frame));
                }
            })?;
        }
        pages.finish();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use memtrace_model::{MappingKind, PAGE, ReferencedMemory};
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;
    use crate::procfs::process::inspect;

    const PAGES: u64 = 16;

    /// Maps the same memory twice, until this process ends.
    fn map_twice() -> [AbsAddr; 2] {
        let file = memfd_create("frames", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, PAGES * PAGE.0).unwrap();
        [(); 2].map(|()| {
            let length = usize::try_from(PAGES * PAGE.0).unwrap();
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
            // SAFETY: the kernel chooses the address of a new mapping.
            let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, file.as_raw_fd(), 0) };
            assert_ne!(start, libc::MAP_FAILED);
            AbsAddr(start as u64)
        })
    }

    /// Returns a mapping that begins at `start`. All its pages are referenced.
    fn mapping(start: AbsAddr, shared: Bytes) -> MeasuredMapping {
        let size = Bytes(PAGES * PAGE.0);
        let memory = ReferencedMemory {
            resident: size,
            shared,
            referenced: size,
            least_referenced: size,
            ..ReferencedMemory::default()
        };
        MeasuredMapping { kind: MappingKind::Shmem, start, end: AbsAddr(start.0 + size.0), memory }
    }

    /// Returns a counter with this process, which has mapped 16 pages twice.
    fn counter_of_this_process() -> (FrameCounter, Rc<Process>) {
        let own = Rc::new(inspect(Pid(std::process::id())).unwrap());
        let mut counter = FrameCounter::start();
        let mappings = map_twice().map(|start| mapping(start, Bytes(PAGE.0)));
        counter.add(&own, mappings.to_vec(), None, Duration::ZERO);
        (counter, own)
    }

    #[test]
    fn privileged_pages_that_are_mapped_twice_count_once() {
        let (mut counter, own) = counter_of_this_process();
        // A mapping without shared pages is not read.
        counter.add(&own, vec![mapping(AbsAddr(PAGE.0), Bytes(0))], None, Duration::ZERO);
        let counted = counter.finish();
        let pages = counted.memory.unwrap().total();
        let size = Bytes(2 * PAGES * PAGE.0);
        assert_eq!([pages.resident, pages.referenced, pages.least_referenced], [size; 3]);
        assert!(counted.failed.is_empty() && counted.time > Duration::ZERO);
    }

    #[test]
    fn privileged_counting_ends_at_its_deadline() {
        let (counter, _) = counter_of_this_process();
        let late = FrameCounter { left: Duration::ZERO, ..counter };
        assert_eq!(late.finish().memory, Err(UnknownFrames::Late));
    }

    #[test]
    fn privileged_processes_that_have_exited_are_named() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Rc::new(inspect(Pid(child.id())).unwrap());
        let mut counter = FrameCounter::start();
        counter.add(&process, vec![mapping(AbsAddr(PAGE.0), Bytes(PAGE.0))], None, Duration::ZERO);
        child.kill().unwrap();
        child.wait().unwrap();
        let counted = counter.finish();
        assert_eq!(counted.memory, Ok(DistinctMemory::default()));
        assert!(matches!(counted.failed[..], [(pid, ProcessError::Exited(_))] if pid == process.pid));
    }
}
