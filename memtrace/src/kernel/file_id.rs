//! How the kernel knows a file: the kernel half looks, when it is asked.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::thread;

use aya::Ebpf;
use aya::maps::{Array, MapData};
use aya::programs::{Program, RawTracePoint, RawTracePointRunOptions, TestRun as _};
use memtrace_common::unwind::{FileIdReply, ObjectKey, file_id_status};

use super::error::KernelError;
use super::load::Kernel;
use crate::model::AbsAddr;

/// The programs that look, in whoever has them run: at an address, and at an open file.
const MAPPED: &str = "file_id_mapped";
const OPENED: &str = "file_id_opened";

/// How often it is asked while another thread of memtrace changes what is mapped.
const TRIES: usize = 1000;

/// An answer as a map has it.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Plain(FileIdReply);

// SAFETY: `FileIdReply` is `repr(C)`, made of integers only, and its asserted size leaves no padding.
unsafe impl aya::Pod for Plain {}

/// Loads the programs.
pub(super) fn load(kernel: &mut Kernel) -> Result<(), KernelError> {
    for name in [MAPPED, OPENED] {
        let program: &mut RawTracePoint = kernel.program(name)?;
        program.load().map_err(|error| KernelError::from_load("ask how the kernel knows files", &error))?;
    }
    Ok(())
}

impl Kernel {
    /// How the kernel knows the file that memtrace itself has mapped at `address`; `None` where it has none there, and where
    /// the kernel cannot be asked ([`super::unwind_maps::Tables::finds_mappings`]).
    pub fn object_at(&mut self, address: AbsAddr) -> Option<ObjectKey> {
        ask(self.ebpf(), MAPPED, address.0)
    }
}

/// How the kernel knows a file that memtrace has open.
pub(super) fn opened(ebpf: &mut Ebpf, file: &File) -> Option<ObjectKey> {
    ask(ebpf, OPENED, u64::try_from(file.as_raw_fd()).ok()?)
}

fn ask(ebpf: &mut Ebpf, name: &str, argument: u64) -> Option<ObjectKey> {
    for _ in 0..TRIES {
        let FileIdReply { object, status, .. } = answer(ebpf, name, argument)?;
        match status {
            file_id_status::FOUND => return Some(object),
            file_id_status::BUSY => thread::yield_now(),
            _ => return None,
        }
    }
    None
}

/// What the program `name` says; one at a time, since all answers lie in one place.
fn answer(ebpf: &mut Ebpf, name: &str, argument: u64) -> Option<FileIdReply> {
    let Some(Program::RawTracePoint(program)) = ebpf.program(name) else { return None };
    let mut options = RawTracePointRunOptions::new();
    options.args[0] = argument;
    let run = program.test_run(options);
    run.inspect_err(|error| log::debug!("it cannot be asked how the kernel knows a file: {error}")).ok()?;
    let answers: Array<&MapData, Plain> = ebpf.map("FILE_ID")?.try_into().ok()?;
    answers.get(&0, 0).ok().map(|Plain(named)| named)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::kernel::features;

    /// As `stat` says, which is what the kernel has too where no file system lies over another.
    fn own_program() -> ObjectKey {
        let file = std::fs::metadata("/proc/self/exe").unwrap();
        ObjectKey {
            inode: file.ino(),
            changed_s: file.ctime(),
            changed_ns: u32::try_from(file.ctime_nsec()).unwrap(),
            device: libc::major(file.dev()) << 20 | libc::minor(file.dev()),
        }
    }

    #[test]
    fn privileged_a_file_is_known_by_where_it_is_mapped_and_by_being_open() {
        let mut kernel = features::kernel_half().unwrap();
        let code = AbsAddr(own_program as *const () as u64);
        let open = |kernel: &mut Kernel, path| opened(kernel.ebpf(), &File::open(path).unwrap());
        assert_eq!(open(&mut kernel, "/proc/self/exe"), Some(own_program()));
        let is_told = kernel.tables().finds_mappings();
        assert_eq!(kernel.object_at(code), is_told.then(own_program));
        let on_stack = AbsAddr(&raw const kernel as u64);
        assert_eq!(
            (kernel.object_at(on_stack), kernel.object_at(AbsAddr(0))),
            (None, None),
            "no answer is the last one"
        );
        assert_ne!(open(&mut kernel, "/dev/null"), Some(own_program()));
    }
}
