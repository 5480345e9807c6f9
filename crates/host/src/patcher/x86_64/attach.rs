//! First step of a patch: maps the stub. Only the main thread stops, and the code of the process stays as it is.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::time::Duration;

use memtrace_model::{AbsAddr, Pid};
use memtrace_object::overlay::layout::{CODE_SIZE, DATA_SIZE, FILTER};

use super::check;
use super::fault::{self, FaultPoint};
use super::maps;
use super::remote_call::{self, CallGadgets, RemoteThread};
use super::seccomp::{self, CODE_MAPPING, DATA_MAPPING, MEMFD_FLAGS, NO_DESCRIPTOR};
use super::sites::PatchSites;
use super::stops::StopClock;
use super::target::{self, Target};
use super::threads::Stop;
use crate::patcher::protocol::{PatchPlan, Stops};
use crate::patcher::refusal::PatchRefusal;
use crate::procfs;

/// Time limit for the stop of the main thread.
const TIME: Duration = Duration::from_millis(500);
/// Length of the first page of the data.
const CONTROL: u64 = FILTER;

/// Place of a stub.
#[derive(Debug)]
pub(super) enum StubPlace {
    /// A new stub can be mapped at this address.
    New(u64),
    /// The process has a stub with this file.
    Existing(File),
}

/// Chooses an address for the stub, or opens the existing one. Stops nothing.
pub(super) fn place(plan: &PatchPlan) -> Result<StubPlace, PatchRefusal> {
    let target = Target::open(plan.pid, plan.start_time)?;
    if let Some(refusal) = check::refusals(target.pid, false, plan.owner.0).into_iter().next() {
        return Err(refusal);
    }
    let mappings = procfs::mappings(target.pid).map_err(|error| target::process_refusal(&error))?;
    match plan.existing {
        None => maps::place_of_stub(&mappings, plan.near).map(StubPlace::New).ok_or(PatchRefusal::NoRoom),
        Some(base) => {
            let is_listed = procfs::stubs(target.pid).is_ok_and(|stubs| stubs.iter().any(|stub| stub.base.0 == base));
            if !is_listed || !maps::has_stub(&mappings, base) {
                return Err(PatchRefusal::OtherVersion);
            }
            let file = procfs::open_mapped_stub(target.pid, base);
            file.map(StubPlace::Existing)
                .map_err(|error| PatchRefusal::Permission(format!("the file of the stub: {error}")))
        }
    }
}

/// Maps a stub, and returns its file.
pub(super) fn map(
    clock: &StopClock,
    plan: &PatchPlan,
    base: u64,
    image: &[u8],
    control: &[u8],
) -> Result<(Stops, File), PatchRefusal> {
    let stub = NewStub { base, image, control };
    if image.len() as u64 != CODE_SIZE || control.len() as u64 != CONTROL || !base.is_multiple_of(CONTROL) {
        return Err(PatchRefusal::Patcher(String::from("a malformed request")));
    }
    let target = Target::open(plan.pid, plan.start_time)?;
    let sites = PatchSites::parse(image, base)?;
    sites.compare(&target.memory()?)?;
    let mappings = procfs::mappings(target.pid).map_err(|error| target::process_refusal(&error))?;
    sites.check_objects(&mappings)?;
    let gadgets = CallGadgets { call: plan.syscall_gadget, sigreturn: plan.sigreturn_gadget };
    let mut stop = Stop::begin(clock, target.pid, TIME)?;
    let tid = stop.stop_main()?;
    target.check()?;
    let status = procfs::task_status(target.pid, target.pid.0).map_err(|_| PatchRefusal::Exiting)?;
    if status.has_shadow_stack {
        return Err(PatchRefusal::ShadowStack);
    }
    remote_call::check_calls(tid, status.seccomp, &seccomp::calls(base), gadgets)?;
    let has_room = |stack_pointer, length| maps::has_stack_room(&mappings, stack_pointer, length);
    let mut thread = RemoteThread::prepare(&mut stop, tid, gadgets, has_room)?;
    let file = match stub.map(&mut stop, &mut thread, target.pid) {
        Ok(file) => {
            thread.finish(&mut stop)?;
            Ok(file)
        }
        Err(MapFailure::Refused(refusal)) => {
            thread.finish(&mut stop)?;
            Err(refusal)
        }
        // The thread restores itself.
        Err(MapFailure::Abandoned(refusal)) => Err(refusal),
    };
    let (one, rewound) = stop.release();
    fault::point(FaultPoint::DetachedA);
    let file = file?;
    stub.verify(&target, &file)?;
    Ok((Stops { one, rewound, ..Stops::default() }, file))
}

/// Reason why a stub was not mapped.
#[derive(Debug)]
enum MapFailure {
    /// The thread has completed its last system call. What it had mapped is unmapped again.
    Refused(PatchRefusal),
    /// The thread may still be in a system call, or has ended.
    Abandoned(PatchRefusal),
}

impl From<PatchRefusal> for MapFailure {
    fn from(refusal: PatchRefusal) -> Self {
        Self::Abandoned(refusal)
    }
}

/// Stub to map.
#[derive(Clone, Copy, Debug)]
struct NewStub<'bytes> {
    base: u64,
    image: &'bytes [u8],
    /// First page of the data.
    control: &'bytes [u8],
}

impl NewStub<'_> {
    /// Lets the thread create the memfd, map it and its data, and close the memfd.
    fn map(&self, stop: &mut Stop<'_>, thread: &mut RemoteThread, pid: Pid) -> Result<File, MapFailure> {
        let arguments = [thread.name(), MEMFD_FLAGS, 0, 0, 0, 0];
        let created = thread.call(stop, libc::SYS_memfd_create, arguments)?;
        let descriptor = created.map_err(|errno| MapFailure::Refused(call_refusal(errno)))?;
        let mapped = self.map_file(stop, thread, pid, descriptor)?;
        // Another thread can have closed the descriptor, and opened another file with its number.
        let is_own = u32::try_from(descriptor).is_ok_and(|number| procfs::is_stub_descriptor(pid, number));
        let arguments = [descriptor, 0, 0, 0, 0, 0];
        let closed = if is_own { thread.call(stop, libc::SYS_close, arguments)? } else { Err(libc::EBADF) };
        if let Err(errno) = closed {
            log::debug!("process {pid} keeps a descriptor of the stub: error {errno}");
        }
        mapped.map_err(MapFailure::Refused)
    }

    /// Fills the memfd, and lets the thread map it and its data. After a refusal, nothing is mapped.
    fn map_file(
        &self,
        stop: &mut Stop<'_>,
        thread: &mut RemoteThread,
        pid: Pid,
        descriptor: u64,
    ) -> Result<Result<File, PatchRefusal>, PatchRefusal> {
        let file = match self.filled_file(pid, descriptor) {
            Ok(file) => file,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let data = self.base.saturating_add(CODE_SIZE);
        let [protection, flags] = DATA_MAPPING;
        let arguments = [data, DATA_SIZE, protection, flags, NO_DESCRIPTOR, 0];
        if let Err(refusal) = map_at(stop, thread, arguments)? {
            return Ok(Err(refusal));
        }
        let written = stop.opened_memory().is_some_and(|memory| memory.write_all_at(self.control, data).is_ok());
        fault::point(FaultPoint::ControlWritten);
        let [protection, flags] = CODE_MAPPING;
        let arguments = [self.base, CODE_SIZE, protection, flags, descriptor, 0];
        let mapped = if written { map_at(stop, thread, arguments)? } else { Err(PatchRefusal::Busy) };
        if let Err(refusal) = mapped {
            unmap(stop, thread, data, DATA_SIZE)?;
            return Ok(Err(refusal));
        }
        Ok(Ok(file))
    }

    /// Opens the memfd of the process, and writes the stub into it.
    fn filled_file(&self, pid: Pid, descriptor: u64) -> Result<File, PatchRefusal> {
        let descriptor = u32::try_from(descriptor).map_err(|_| PatchRefusal::Busy)?;
        let file = procfs::open_new_stub(pid, descriptor)
            .map_err(|error| PatchRefusal::Permission(format!("its memfd: {error}")))?;
        fault::point(FaultPoint::MemfdOpened);
        file.write_all_at(self.image, 0)
            .map_err(|error| PatchRefusal::MapDenied(error.raw_os_error().unwrap_or(libc::EIO)))?;
        fault::point(FaultPoint::ImageWritten);
        Ok(file)
    }

    /// Compares the mappings with the stub. Another thread can have replaced the descriptor or the mapping.
    fn verify(&self, target: &Target, file: &File) -> Result<(), PatchRefusal> {
        let mappings = procfs::mappings(target.pid).map_err(|error| target::process_refusal(&error))?;
        let inode = file.metadata().map_err(|_| PatchRefusal::Busy)?.ino();
        let code = mappings.iter().find(|entry| entry.start == AbsAddr(self.base));
        let is_file = code.and_then(|code| code.file).is_some_and(|mapped| mapped.inode == inode);
        let mut mapped = vec![0; self.image.len()];
        let read = target.memory()?.read_exact_at(&mut mapped, self.base);
        let is_mapped = is_file && maps::has_stub(&mappings, self.base) && read.is_ok() && mapped == self.image;
        if is_mapped { Ok(()) } else { Err(PatchRefusal::Busy) }
    }
}

/// Lets the thread map memory at exactly the address that is the first argument.
fn map_at(
    stop: &mut Stop<'_>,
    thread: &mut RemoteThread,
    arguments: [u64; 6],
) -> Result<Result<(), PatchRefusal>, PatchRefusal> {
    let [address, length, ..] = arguments;
    match thread.call(stop, libc::SYS_mmap, arguments)? {
        Ok(mapped) if mapped == address => Ok(Ok(())),
        // A kernel without MAP_FIXED_NOREPLACE.
        Ok(mapped) => {
            unmap(stop, thread, mapped, length)?;
            Ok(Err(PatchRefusal::Busy))
        }
        Err(errno) => Ok(Err(call_refusal(errno))),
    }
}

fn unmap(stop: &mut Stop<'_>, thread: &mut RemoteThread, address: u64, length: u64) -> Result<(), PatchRefusal> {
    if let Err(errno) = thread.call(stop, libc::SYS_munmap, [address, length, 0, 0, 0, 0])? {
        log::debug!("{length} bytes stay mapped at {address:#x}: error {errno}");
    }
    Ok(())
}

/// Returns the refusal for the error of a system call.
const fn call_refusal(errno: i32) -> PatchRefusal {
    match errno {
        libc::EACCES | libc::EPERM => PatchRefusal::MemoryPolicy(errno),
        // The process has mapped something there since the address was chosen.
        libc::EEXIST => PatchRefusal::Busy,
        _ => PatchRefusal::MapDenied(errno),
    }
}
