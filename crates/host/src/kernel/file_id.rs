//! File ids: device, inode and change time of a file as the BPF programs see them.
//!
//! An id can differ from the result of stat(2), for example on overlayfs. Therefore BPF programs read the ids. memtrace
//! runs these programs itself (`BPF_PROG_TEST_RUN`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::path::Path;
use std::thread;

use aya::maps::{Array, MapData};
use aya::programs::RawTracePoint;
use memtrace_common::unwind::{FileIdReply, ObjectKey, file_id_status};
use memtrace_model::{AbsAddr, printable};

use super::bpf::Bpf;
use super::error::KernelError;
use super::wire_type::MapEntry;
use crate::bpf_call;
use crate::own_mapping::OwnMapping;
use crate::target_files::{LinkedFile, open_local};

/// Program that looks up an address of the calling process. [`super::memtraces`] recognizes memtrace by it.
pub(super) const MAPPED: &str = "file_id_mapped";
/// Program that looks up a descriptor of the calling process.
const OPENED: &str = "file_id_opened";

/// Maximum number of lookups for one id. A lookup fails while another thread of memtrace changes the mappings.
const TRIES: usize = 1000;

/// Loads the programs.
pub(super) fn load(bpf: &mut Bpf) -> Result<(), KernelError> {
    for name in [MAPPED, OPENED] {
        let program: &mut RawTracePoint = bpf.program(name)?;
        program.load().map_err(|error| KernelError::from_load("load the programs that read file ids", &error))?;
    }
    Ok(())
}

/// Returns the id of the file at `path`; `None` if it cannot be mapped. If mapping the file can block, a worker does it.
pub(super) fn of_path(bpf: &mut Bpf, path: &Path) -> Option<FileIdReply> {
    let log = |error: &io::Error| log::debug!("{}: {error}", printable(path));
    let file = LinkedFile::at(path).inspect_err(log).ok()?;
    if file.can_wait().inspect_err(log).ok()? {
        return by_worker(bpf, &file);
    }
    let mapping = open_local(path).and_then(|file| OwnMapping::new(&file)).inspect_err(log).ok()?;
    of_mapping(bpf, mapping.start())
}

/// Returns the id of a file. A worker maps the file.
pub(super) fn by_worker(bpf: &mut Bpf, file: &LinkedFile) -> Option<FileIdReply> {
    run(bpf, MAPPED, |program| file.run_on_mapping(program)).filter(|reply| reply.status == file_id_status::FOUND)
}

fn of_mapping(bpf: &mut Bpf, address: AbsAddr) -> Option<FileIdReply> {
    look_up(bpf, MAPPED, address.0)
}

/// Returns the id of a file that memtrace has opened.
pub(super) fn of_open_file(bpf: &mut Bpf, file: &File) -> Option<ObjectKey> {
    Some(look_up(bpf, OPENED, u64::try_from(file.as_raw_fd()).ok()?)?.object)
}

fn look_up(bpf: &mut Bpf, program: &str, argument: u64) -> Option<FileIdReply> {
    for _ in 0..TRIES {
        let reply = run(bpf, program, |program| bpf_call::run_program(program, argument))?;
        match reply.status {
            file_id_status::FOUND => return Some(reply),
            file_id_status::BUSY => thread::yield_now(),
            _ => return None,
        }
    }
    None
}

/// Lets `run` run the program `name`, and returns the program's reply. Each run overwrites the reply of the previous run.
fn run(bpf: &mut Bpf, name: &str, run: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>) -> Option<FileIdReply> {
    let program: &mut RawTracePoint = bpf.program(name).ok()?;
    run(program.fd().ok()?.as_fd()).inspect_err(|error| log::debug!("cannot read file ids: {error}")).ok()?;
    let replies: Array<&MapData, MapEntry<FileIdReply>> = bpf.map("FILE_ID")?.try_into().ok()?;
    replies.get(&0, 0).ok().map(|MapEntry(reply)| reply)
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

    fn type_of(path: &str) -> u32 {
        u32::try_from(rustix::fs::statfs(path).unwrap().f_type).unwrap()
    }

    #[test]
    fn privileged_mapped_and_open_files_have_ids() {
        let mut kernel = features::load_programs().unwrap();
        let code = AbsAddr(own_executable as *const () as u64);
        let open = |kernel: &mut Kernel, path| of_open_file(kernel.bpf(), &File::open(path).unwrap());
        assert_eq!(open(&mut kernel, "/proc/self/exe"), Some(own_executable()));
        let mapped = of_mapping(kernel.bpf(), code).unwrap();
        assert_eq!((mapped.object, mapped.file_system), (own_executable(), type_of("/proc/self/exe")));
        assert_eq!(kernel.file_id("/proc/self/exe".as_ref()), Some(own_executable()));
        let on_stack = AbsAddr(&raw const kernel as u64);
        assert_eq!(
            (of_mapping(kernel.bpf(), on_stack), of_mapping(kernel.bpf(), AbsAddr(0))),
            (None, None),
            "the earlier reply is not returned"
        );
        assert_ne!(open(&mut kernel, "/dev/null"), Some(own_executable()));
    }
}
