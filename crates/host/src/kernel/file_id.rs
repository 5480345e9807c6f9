//! File ids: device, inode and change time of a file as the BPF programs see them.
//!
//! An id can differ from the result of stat(2), for example on overlayfs. Therefore BPF programs read the ids. memtrace
//! runs these programs itself (`BPF_PROG_TEST_RUN`).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::ptr;
use std::thread;

use aya::maps::{Array, MapData};
use aya::programs::{RawTracePoint, RawTracePointRunOptions, TestRun as _};
use memtrace_common::unwind::{FileIdReply, ObjectKey, file_id_status};
use memtrace_model::{AbsAddr, printable};

use super::bpf::Bpf;
use super::error::KernelError;
use super::wire_type::MapEntry;
use crate::target_files::open_local;

/// Program that looks up an address of the calling process.
const MAPPED: &str = "file_id_mapped";
/// Program that looks up a descriptor of the calling process.
const OPENED: &str = "file_id_opened";

/// Maximum number of lookups for one id. A lookup fails while another thread of memtrace changes the mappings.
const TRIES: usize = 1000;

/// Length of the mapping in bytes. The kernel rounds it up to a page.
const LENGTH: usize = 1;

/// Loads the programs.
pub(super) fn load(bpf: &mut Bpf) -> Result<(), KernelError> {
    for name in [MAPPED, OPENED] {
        let program: &mut RawTracePoint = bpf.program(name)?;
        program.load().map_err(|error| KernelError::from_load("load the programs that read file ids", &error))?;
    }
    Ok(())
}

/// Returns the id of the file at `path`; `None` if it cannot be mapped.
pub(super) fn of_path(bpf: &mut Bpf, path: &Path) -> Option<ObjectKey> {
    let mapping = OwnMapping::new(path).inspect_err(|error| log::debug!("{}: {error}", printable(path))).ok()?;
    of_mapping(bpf, mapping.start())
}

fn of_mapping(bpf: &mut Bpf, address: AbsAddr) -> Option<ObjectKey> {
    look_up(bpf, MAPPED, address.0)
}

/// Returns the id of a file that memtrace has opened.
pub(super) fn of_open_file(bpf: &mut Bpf, file: &File) -> Option<ObjectKey> {
    look_up(bpf, OPENED, u64::try_from(file.as_raw_fd()).ok()?)
}

fn look_up(bpf: &mut Bpf, program: &str, argument: u64) -> Option<ObjectKey> {
    for _ in 0..TRIES {
        let FileIdReply { object, status, .. } = run(bpf, program, argument)?;
        match status {
            file_id_status::FOUND => return Some(object),
            file_id_status::BUSY => thread::yield_now(),
            _ => return None,
        }
    }
    None
}

/// Runs the program `name`, and returns its reply. Each run overwrites the reply of the previous run.
fn run(bpf: &mut Bpf, name: &str, argument: u64) -> Option<FileIdReply> {
    let program: &mut RawTracePoint = bpf.program(name).ok()?;
    let mut options = RawTracePointRunOptions::new();
    options.args[0] = argument;
    let run = program.test_run(options);
    run.inspect_err(|error| log::debug!("cannot read file ids: {error}")).ok()?;
    let replies: Array<&MapData, MapEntry<FileIdReply>> = bpf.map("FILE_ID")?.try_into().ok()?;
    replies.get(&0, 0).ok().map(|MapEntry(reply)| reply)
}

/// Mapping of the first page of a file in memtrace, for a lookup by the BPF programs. Dropping this value unmaps the page.
#[derive(Debug)]
struct OwnMapping(*mut libc::c_void);

impl OwnMapping {
    /// Maps the file at `path`.
    fn new(path: &Path) -> io::Result<Self> {
        // A map of a file of another machine can wait for it.
        let file = open_local(path)?;
        // SAFETY: the kernel chooses the address of the new mapping.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), LENGTH, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self(start)) }
    }

    /// Returns the first address of the mapping.
    fn start(&self) -> AbsAddr {
        AbsAddr(self.0 as u64)
    }
}

impl Drop for OwnMapping {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping of this address and length.
        unsafe { libc::munmap(self.0, LENGTH) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::kernel::{Kernel, features};

    /// Returns the id of this executable by stat(2), which is the kernel's id unless file systems are stacked.
    fn own_executable() -> ObjectKey {
        let file = fs::metadata("/proc/self/exe").unwrap();
        ObjectKey {
            inode: file.ino(),
            changed_s: file.ctime(),
            changed_ns: u32::try_from(file.ctime_nsec()).unwrap(),
            device: libc::major(file.dev()) << 20 | libc::minor(file.dev()),
        }
    }

    #[test]
    fn privileged_mapped_and_open_files_have_ids() {
        let mut kernel = features::load_programs().unwrap();
        let code = AbsAddr(own_executable as *const () as u64);
        let open = |kernel: &mut Kernel, path| of_open_file(kernel.bpf(), &File::open(path).unwrap());
        assert_eq!(open(&mut kernel, "/proc/self/exe"), Some(own_executable()));
        assert_eq!(of_mapping(kernel.bpf(), code), Some(own_executable()));
        assert_eq!(kernel.file_id("/proc/self/exe".as_ref()), Some(own_executable()));
        let on_stack = AbsAddr(&raw const kernel as u64);
        assert_eq!(
            (of_mapping(kernel.bpf(), on_stack), of_mapping(kernel.bpf(), AbsAddr(0))),
            (None, None),
            "the earlier reply is not returned"
        );
        assert_ne!(open(&mut kernel, "/dev/null"), Some(own_executable()));
    }

    #[test]
    fn a_file_is_mapped_until_the_mapping_is_dropped() {
        let program = std::env::current_exe().unwrap();
        let is_mapped = |start: AbsAddr| {
            let maps = fs::read_to_string("/proc/self/maps").unwrap();
            let mut lines = maps.lines().filter(|line| line.ends_with(program.to_str().unwrap()));
            lines.any(|line| line.starts_with(&format!("{:x}-", start.0)))
        };
        let mapping = OwnMapping::new(&program).unwrap();
        let start = mapping.start();
        assert!(is_mapped(start));
        drop(mapping);
        assert!(!is_mapped(start));
        assert!(OwnMapping::new(Path::new("/no/such/file")).is_err());
    }
}
