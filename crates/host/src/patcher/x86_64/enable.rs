//! Second step of a patch, and its undo: writes the jumps or the original code, while all threads of the process are stopped.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::thread;
use std::time::{Duration, Instant};

use memtrace_model::Pid;
use memtrace_object::overlay::layout;

use super::fault::{self, FaultPoint};
use super::ptrace;
use super::sites::PatchSites;
use super::stops::StopClock;
use super::target::{self, Target};
use super::threads::Stop;
use crate::patcher::protocol::{PatchPlan, Stops};
use crate::patcher::refusal::PatchRefusal;
use crate::procfs::{self, ControlValues};

/// Time limit for the stop of all threads, and for the wait until no other process uses the memory.
const TIME: Duration = Duration::from_millis(300);
/// A process is refused if one of its threads sleeps uninterruptibly for this time.
const SLEEP: Duration = Duration::from_millis(50);
/// Maximum number of further stops, if a thread is in the cold path of the stub or inside of a replaced instruction.
const RETRIES: u32 = 50;
/// Time between two stops.
const PAUSE: Duration = Duration::from_millis(1);
/// Time after which there is no further stop.
const LONGEST: Duration = Duration::from_secs(2);

/// Size of a page.
const PAGE: usize = 4096;
/// Number of bytes of the table that are read at once. The filter and the table have a multiple of it.
const CHUNK: usize = 4 * PAGE;
/// Length of the part of a thread header that is read (`tcbhead_t`, sysdeps/x86_64/nptl/tls.h).
const THREAD_HEADER: usize = 0xa0;
/// Offsets of the two words of a thread header with its own address: `tcb` and `self`.
const OWN_ADDRESS: [usize; 2] = [0x00, 0x10];
/// Offsets of the words that the stub uses.
const STUB_WORDS: [u32; 4] = [layout::COUNTDOWN, layout::RANDOM, layout::THREAD_EPOCH, layout::THREAD_INTERVAL];

/// Writes the jumps of the stub at `base`. `header`: its header and records. `control`: first page of the data of a new session, if
/// the stub was used before.
pub(super) fn enable(
    clock: &StopClock,
    plan: &PatchPlan,
    base: u64,
    header: &[u8],
    control: Option<&[u8]>,
) -> Result<Stops, PatchRefusal> {
    if control.is_some_and(|control| control.len() != PAGE) {
        return Err(PatchRefusal::Patcher(String::from("a malformed request")));
    }
    let target = Target::open(plan.pid, plan.start_time)?;
    let sites = PatchSites::parse(header, base)?;
    sites.compare(&target.memory()?)?;
    let mappings = procfs::mappings(target.pid).map_err(|error| target::process_refusal(&error))?;
    sites.check_objects(&mappings)?;
    let data = base.saturating_add(layout::CODE_SIZE);
    // Wait for the children of vfork(2) first: a thread that waits for such a child sleeps uninterruptibly too.
    wait_for_sharers(target.pid)?;
    if target::has_long_sleeper(target.pid, SLEEP) {
        return Err(PatchRefusal::NotStopping);
    }
    let enabled = in_stop(clock, &target, |stop, is_last| {
        let Some(threads) = stopped_threads(stop, &sites)? else { return Ok(None) };
        let memory = stop.memory()?;
        let values = stub_values(memory, &sites, base)?;
        refuse_other_owner(&values, plan.owner.0)?;
        if control.is_some() && values.in_cold != 0 && !is_last {
            return Ok(None);
        }
        // A thread without a thread pointer cannot call malloc.
        let pointers = threads.iter().filter(|fs_base| **fs_base != 0);
        let headers: Option<Vec<_>> = pointers.map(|fs_base| ThreadHeader::read(memory, *fs_base)).collect();
        // glibc must have started each thread. In another thread, the countdown would be in memory with another use.
        let headers = headers.ok_or(PatchRefusal::HeaderInUse)?;
        if control.is_none() && headers.iter().any(ThreadHeader::is_used) {
            return Err(PatchRefusal::HeaderInUse);
        }
        headers.iter().try_for_each(|header| header.reset(memory))?;
        if let Some(control) = control {
            // A thread of an earlier session that is still in the cold path can change a value later. The stub needs no lock, so
            // at worst a sample is wrong.
            write(memory, control, data)?;
            empty_tables(memory, data)?;
        }
        fault::point(FaultPoint::Cleared);
        set_owner(memory, data, plan.owner)?;
        sites.write_jumps(memory).map(Some)
    });
    enabled.map(|((), stops)| stops)
}

/// Writes the original code of the functions of the stub at `base`. The stub stays mapped, because a thread can be in it.
/// `process`: pid and start time.
pub(super) fn disable(clock: &StopClock, process: (u32, u64), base: u64) -> Result<Stops, PatchRefusal> {
    let (pid, start_time) = process;
    let target = Target::open(pid, start_time)?;
    let mut header = vec![0; PAGE];
    target.memory()?.read_exact_at(&mut header, base).map_err(|_| PatchRefusal::OtherVersion)?;
    let sites = PatchSites::parse(&header, base)?;
    // If the mappings cannot be read, only the comparison of the code with the jump decides what is restored.
    let mappings = procfs::mappings(target.pid).ok();
    let data = base.saturating_add(layout::CODE_SIZE);
    let disabled = in_stop(clock, &target, |stop, is_last| {
        fault::point(FaultPoint::DisableStopped);
        let Some(threads) = stopped_threads(stop, &sites)? else { return Ok(None) };
        let memory = stop.memory()?;
        let values = stub_values(memory, &sites, base)?;
        refuse_other_owner(&values, std::os::unix::process::parent_id())?;
        if values.in_cold != 0 && !is_last {
            return Ok(None);
        }
        let refusal = sites.restore(memory, mappings.as_deref());
        let headers = threads.iter().filter_map(|fs_base| ThreadHeader::read(memory, *fs_base));
        let countdowns = headers.filter_map(|header| header.countdown(values.epoch)).collect::<Vec<_>>();
        match refusal {
            Some(refusal) => Err(refusal),
            None => set_owner(memory, data, (0, 0)).map(|()| Some(countdowns)),
        }
    });
    disabled.map(|(countdowns, stops)| Stops { countdowns, ..stops })
}

/// Stops all threads, and lets `work` change the process. If `work` returns `None`, stops them again after a pause, for a limited
/// number of times. `work` gets true if there is no further stop.
fn in_stop<T>(
    clock: &StopClock,
    target: &Target,
    mut work: impl FnMut(&mut Stop<'_>, bool) -> Result<Option<T>, PatchRefusal>,
) -> Result<(T, Stops), PatchRefusal> {
    let (begin, mut stops) = (Instant::now(), Stops::default());
    loop {
        let is_last = stops.retries >= RETRIES || begin.elapsed() >= LONGEST;
        wait_for_sharers(target.pid)?;
        let mut stop = Stop::begin(clock, target.pid, TIME)?;
        let result = stop.stop_all().and_then(|()| target.check()).and_then(|()| work(&mut stop, is_last));
        let (duration, rewound) = stop.release();
        stops.all = duration;
        stops.rewound = stops.rewound.saturating_add(rewound);
        match result? {
            Some(done) => return Ok((done, stops)),
            None if is_last || clock.leaves_threads() => return Err(PatchRefusal::Busy),
            None => stops.retries += 1,
        }
        thread::sleep(PAUSE);
    }
}

/// Waits until no other process uses the memory of a process. The other process does not stop with this one, and could execute an
/// instruction that is only partly written. A child of vfork(2) soon executes another program, or exits.
fn wait_for_sharers(pid: Pid) -> Result<(), PatchRefusal> {
    let begin = Instant::now();
    while target::shares_memory(pid) {
        if begin.elapsed() >= TIME {
            return Err(PatchRefusal::SharedMemory);
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Returns the thread pointers of the stopped threads; `None` if a thread is inside of an instruction that is replaced. Only
/// another tracer can stop a thread there.
fn stopped_threads(stop: &Stop<'_>, sites: &PatchSites) -> Result<Option<Vec<u64>>, PatchRefusal> {
    let mut pointers = Vec::with_capacity(64);
    for tid in stop.stopped() {
        // A thread that was killed since its stop takes the whole process with it.
        let registers = ptrace::registers(tid).map_err(|_| PatchRefusal::Exiting)?;
        if sites.contain(registers.rip) {
            return Ok(None);
        }
        pointers.push(registers.fs_base);
    }
    // A thread that the kernel has started in the process has the thread pointer of another thread.
    pointers.sort_unstable();
    pointers.dedup();
    Ok(Some(pointers))
}

/// Returns the values of the stub's control page. The process can have executed another program since the stub was mapped.
fn stub_values(memory: &File, sites: &PatchSites, base: u64) -> Result<ControlValues, PatchRefusal> {
    if !sites.are_in(memory, base) {
        return Err(PatchRefusal::ExecInProgress);
    }
    let data = base.saturating_add(layout::CODE_SIZE);
    ControlValues::read(memory, data).map_err(|_| PatchRefusal::OtherVersion)
}

/// Returns a refusal if another memtrace than `own` runs and takes the samples.
pub(super) fn refuse_other_owner(values: &ControlValues, own: u32) -> Result<(), PatchRefusal> {
    let (pid, start) = values.owner;
    match u32::try_from(pid) {
        Ok(pid) if pid != 0 && pid != own && procfs::start_time(Pid(pid)) == Some(start) => {
            Err(PatchRefusal::Owned(pid))
        }
        _ => Ok(()),
    }
}

fn set_owner(memory: &File, data: u64, (pid, start): (u32, u64)) -> Result<(), PatchRefusal> {
    let words = [u64::from(pid).to_le_bytes(), start.to_le_bytes()];
    write(memory, words.as_flattened(), data.saturating_add(layout::OWNER_PID))
}

/// Empties the filter and the table: blocks that were sampled earlier can have been freed unseen. Pages of zeros are left alone, so
/// that they need no memory.
fn empty_tables(memory: &File, data: u64) -> Result<(), PatchRefusal> {
    let mut chunk = vec![0; CHUNK];
    for offset in (layout::FILTER..layout::DATA_SIZE).step_by(CHUNK) {
        let start = data.saturating_add(offset);
        memory.read_exact_at(&mut chunk, start).map_err(|_| PatchRefusal::OtherVersion)?;
        for (index, _) in chunk.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0)) {
            write(memory, &[0; PAGE], start.saturating_add((index * PAGE) as u64))?;
        }
    }
    Ok(())
}

/// Writes to data of the process.
fn write(memory: &File, bytes: &[u8], address: u64) -> Result<(), PatchRefusal> {
    memory.write_all_at(bytes, address).map_err(|_| PatchRefusal::OtherVersion)
}

/// Thread header of glibc.
#[derive(Debug)]
struct ThreadHeader {
    address: u64,
    bytes: [u8; THREAD_HEADER],
}

impl ThreadHeader {
    /// Reads the header at a thread pointer. Returns `None` if glibc has not started the thread. Such a thread cannot call the
    /// functions of the stub.
    fn read(memory: &File, address: u64) -> Option<Self> {
        let mut bytes = [0; THREAD_HEADER];
        memory.read_exact_at(&mut bytes, address).ok()?;
        let header = Self { address, bytes };
        let is_of_glibc = address != 0 && OWN_ADDRESS.iter().all(|offset| header.word(*offset) == address);
        is_of_glibc.then_some(header)
    }

    fn word(&self, offset: usize) -> u64 {
        self.bytes.get(offset..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_le_bytes)
    }

    /// Returns true if a word of the stub is not zero.
    fn is_used(&self) -> bool {
        STUB_WORDS.iter().any(|offset| self.word(*offset as usize) != 0)
    }

    /// Resets the words of the thread: with a countdown of an earlier session, the thread could take no sample for a long time.
    fn reset(&self, memory: &File) -> Result<(), PatchRefusal> {
        for offset in [layout::COUNTDOWN, layout::THREAD_EPOCH] {
            if self.word(offset as usize) != 0 {
                write(memory, &[0; 8], self.address.saturating_add(offset.into()))?;
            }
        }
        Ok(())
    }

    /// Returns the countdown of a thread that counts for the session `epoch`.
    fn countdown(&self, epoch: u64) -> Option<u64> {
        let is_of_session = self.word(layout::THREAD_EPOCH as usize) == epoch;
        is_of_session.then(|| self.word(layout::COUNTDOWN as usize))
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    /// Returns a file whose offsets are the addresses of a process.
    fn memory() -> File {
        let file = File::from(memfd_create("memory", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(0x10_0000).unwrap();
        file
    }

    fn put(memory: &File, address: u64, word: u64) {
        memory.write_all_at(&word.to_le_bytes(), address).unwrap();
    }

    fn word(memory: &File, address: u64) -> u64 {
        let mut bytes = [0; 8];
        memory.read_exact_at(&mut bytes, address).unwrap();
        u64::from_le_bytes(bytes)
    }

    #[test]
    fn words_of_threads_are_reset() {
        let (memory, address) = (memory(), 0x1740);
        put(&memory, address, address);
        put(&memory, address + 0x10, address);
        assert!(!ThreadHeader::read(&memory, address).unwrap().is_used());
        for (offset, value) in [(0x80, 500), (0x88, 7), (0x90, 42), (0x98, 1000), (0xa0, 9), (0x78, 8)] {
            put(&memory, address + offset, value);
        }
        let header = ThreadHeader::read(&memory, address).unwrap();
        assert_eq!((header.countdown(42), header.countdown(41)), (Some(500), None));
        assert!(header.is_used());
        header.reset(&memory).unwrap();
        let after = [0x78, 0x80, 0x88, 0x90, 0x98, 0xa0].map(|offset| word(&memory, address + offset));
        assert_eq!(after, [8, 0, 7, 0, 1000, 9]);
    }

    #[test]
    fn thread_of_another_library_is_left_alone() {
        let memory = memory();
        put(&memory, 0x2000, 0x2000);
        for address in [0, 0x2000, 0x3000, 0xf_fff8, u64::MAX] {
            assert!(ThreadHeader::read(&memory, address).is_none(), "{address:#x}");
        }
    }

    #[test]
    fn tables_are_emptied() {
        let (memory, data) = (memory(), 0x1000);
        let kept = [data + 0xff8, data + layout::DATA_SIZE];
        let emptied = [0x1000, 0x4ff8, 0x5000, 0x4_1238, layout::DATA_SIZE - 8].map(|offset| data + offset);
        for address in kept.into_iter().chain(emptied) {
            put(&memory, address, 77);
        }
        empty_tables(&memory, data).unwrap();
        assert_eq!(kept.map(|address| word(&memory, address)), [77; 2]);
        assert_eq!(emptied.map(|address| word(&memory, address)), [0; 5]);
        assert_eq!(empty_tables(&memory, 0x10_0000), Err(PatchRefusal::OtherVersion));
    }

    #[test]
    fn running_owner_is_respected() {
        let (own, start) = (std::process::id(), procfs::start_time(Pid(std::process::id())).unwrap());
        let owned_by = |owner| refuse_other_owner(&ControlValues { owner, ..ControlValues::default() }, 1);
        assert_eq!(owned_by((u64::from(own), start)), Err(PatchRefusal::Owned(own)));
        assert_eq!(owned_by((u64::from(own), start + 1)), Ok(()), "an earlier process with this pid");
        assert_eq!(owned_by((0, start)), Ok(()));
        assert_eq!(owned_by((u64::MAX, start)), Ok(()));
        let of_own = ControlValues { owner: (u64::from(own), start), ..ControlValues::default() };
        assert_eq!(refuse_other_owner(&of_own, own), Ok(()));
        let memory = memory();
        set_owner(&memory, 0x1000, (5, 6)).unwrap();
        assert_eq!(ControlValues::read(&memory, 0x1000).unwrap().owner, (5, 6));
    }
}
