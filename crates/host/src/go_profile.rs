//! Heap profile that the runtime of Go keeps in a process, read from outside.

use std::cell::OnceCell;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use memtrace_model::{AbsAddr, Mapping, Object, Pid, VirtOffset};
use memtrace_object::allocators::address_in;
use memtrace_object::elf::{ElfError, Source};
use memtrace_object::go::{GoExecutable, HeapProfile, ProfileError, ProfileReader, ProfileRequest, TargetMemory};

pub use crate::bounded_file::BoundedFile;
use crate::bounded_file::late;
use crate::object_budget::{ObjectBudget, ObjectOwner, stored_bytes};
use crate::procfs::{BoundedMemory, ImageMemory};
use crate::target_files::open_object;

/// Time limit of a reading. A profile with 10,000 stacks takes some milliseconds.
const READING: Duration = Duration::from_secs(1);
/// Limits for the time to examine executables: one for the files of an owner, and one for the files of all users. Each limit
/// grows with the size of the files. An executable of 50 MB takes about 0.1 seconds.
const EXAMINATION: Duration = Duration::from_secs(6);

static EXAMINATIONS: Mutex<Option<ObjectBudget>> = Mutex::new(None);

/// Lets `work` examine the file of `object`, within the time that is left for the files of its owner.
///
/// # Errors
///
/// Errors of `work`, and of open(2). [`io::ErrorKind::TimedOut`] if the file takes too long, and
/// [`io::ErrorKind::Interrupted`] if memtrace ends.
pub fn examine<T, E: From<ElfError>>(object: &Object, work: impl FnOnce(&BoundedFile) -> Result<T, E>) -> Result<T, E> {
    let file = open_object(object).map_err(ElfError::from)?;
    let stored = stored_bytes(&file.metadata().map_err(ElfError::from)?);
    let owner = ObjectOwner::of(&file).map_err(ElfError::from)?;
    let time = with_examinations(|budget| budget.left(owner, stored)).ok_or_else(|| ElfError::from(late()))?;
    let start = Instant::now();
    let result = read(BoundedFile::new(file, start + time), work);
    with_examinations(|budget| budget.add(owner, stored, start.elapsed()));
    result
}

/// Lets `work` read a file. If a read is refused, the result is the error: `work` may not have noticed it.
fn read<T, E: From<ElfError>>(file: BoundedFile, work: impl FnOnce(&BoundedFile) -> Result<T, E>) -> Result<T, E> {
    let result = work(&file);
    match file.into_refusal() {
        Some(error) => Err(ElfError::from(error).into()),
        None => result,
    }
}

fn with_examinations<T>(work: impl FnOnce(&mut ObjectBudget) -> T) -> T {
    let mut budget = EXAMINATIONS.lock().unwrap_or_else(PoisonError::into_inner);
    work(budget.get_or_insert_with(|| ObjectBudget::new(EXAMINATION)))
}

/// Heap profile of one process image. Readings can be made from any thread, one at a time. Between readings, no file is open:
/// there can be thousands of Go programs.
pub struct GoProfile {
    pid: Pid,
    object: Arc<Object>,
    reader: Arc<Mutex<ProfileReader>>,
}

impl GoProfile {
    /// Finds the profile of the process `pid`. `mapping`: a mapping of its executable.
    ///
    /// # Errors
    ///
    /// The file of the executable cannot be opened; [`io::ErrorKind::InvalidData`] if the mapping belongs to no segment of
    /// it.
    pub fn open(pid: Pid, mapping: &Mapping, executable: Arc<GoExecutable>) -> io::Result<Self> {
        let object = mapping.object.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let bias = address_in(mapping, &open_object(object)?, VirtOffset(0)).ok_or(io::ErrorKind::InvalidData)?;
        let reader = ProfileReader::new(executable, bias.0);
        Ok(Self { pid, object: Arc::clone(object), reader: Arc::new(Mutex::new(reader)) })
    }

    /// Reads the profile. Returns `None` if the number of finished garbage collections is still `collections`. If the
    /// process has called exec since [`Self::open`], the result can be the profile of the new image. So the caller must
    /// check that the old image has not ended.
    ///
    /// # Errors
    ///
    /// [`ProfileError::Memory`] with [`io::ErrorKind::TimedOut`] if the process holds a lock of its memory or the reading takes
    /// too long, with [`io::ErrorKind::UnexpectedEof`] if the image has ended, and with another kind if permission is missing:
    /// the read needs the same permission as ptrace(2). Other errors: the program keeps no profile, or its profile is not valid.
    pub fn read(&self, collections: Option<u32>, request: ProfileRequest) -> Result<Option<HeapProfile>, ProfileError> {
        // During the reading, the open file remains the memory of one image.
        let memory = ImageMemory::open(self.pid)?;
        let (reader, object) = (Arc::clone(&self.reader), Arc::clone(&self.object));
        let read = move |memory: &BoundedMemory| {
            let mut reader = match reader.try_lock() {
                Ok(reader) => reader,
                // A reading that panicked has not changed the reader.
                Err(TryLockError::Poisoned(error)) => error.into_inner(),
                // A reading that was given up still waits for a lock of the process.
                Err(TryLockError::WouldBlock) => return Err(ProfileError::Memory(io::ErrorKind::TimedOut.into())),
            };
            if collections.is_some() && collections == Some(reader.collections(memory)?) {
                return Ok(None);
            }
            let file = LazyFile { object: &object, deadline: Instant::now() + READING, file: OnceCell::new() };
            reader.read(memory, &file, request).map(Some)
        };
        memory.read_within(READING, read).unwrap_or_else(|error| Err(ProfileError::Memory(error)))
    }
}

impl TargetMemory for BoundedMemory {
    fn read_some(&self, address: AbsAddr, into: &mut [u8]) -> io::Result<usize> {
        // The method of the type takes precedence over the method of the trait.
        self.read_some(address, into)
    }
}

/// File that is opened when it is first read. Only readings with new stacks read it.
struct LazyFile<'a> {
    object: &'a Object,
    deadline: Instant,
    file: OnceCell<BoundedFile>,
}

impl LazyFile<'_> {
    fn file(&self) -> io::Result<&BoundedFile> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = open_object(self.object)?;
        Ok(self.file.get_or_init(|| BoundedFile::new(file, self.deadline)))
    }
}

impl Source for &LazyFile<'_> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file()?.read_at(offset, into)
    }

    fn size(&self) -> io::Result<u64> {
        self.file()?.size()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use memtrace_object::go::GoRefusal;

    use super::*;

    /// Reads three bytes of the own executable. Returns true if all three reads succeed.
    fn examined(time: Duration) -> Result<bool, ElfError> {
        let file = BoundedFile::new(File::open("/proc/self/exe").unwrap(), Instant::now() + time);
        read(file, |file| Ok((0..3).all(|at| file.read_at(at, &mut [0]).is_ok())))
    }

    #[test]
    fn incomplete_examination_has_no_result() {
        assert!(matches!(examined(Duration::from_secs(60)), Ok(true)));
        let error = examined(Duration::ZERO).unwrap_err();
        assert!(matches!(&error, ElfError::Io(error) if error.kind() == io::ErrorKind::TimedOut), "{error}");
    }

    #[test]
    fn executable_of_this_process_is_examined() {
        let handle = Some("/proc/self/exe".into());
        let object = Object { path: "/bin/server".into(), handle, build_id: None, root: None };
        let refusal = examine(&object, |file| GoExecutable::read(file)).unwrap_err();
        assert!(matches!(refusal, GoRefusal::NotGo), "{refusal}");
    }
}
