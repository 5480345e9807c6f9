//! Iterators over the tasks of the machine: the kernel runs a BPF program for each task, and the program writes records.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};

use aya::Btf;
use aya::programs::Iter;

use super::bpf::Bpf;
use super::bpf_syscall;
use super::error::KernelError;
use super::wire_type::{WireType, read};
use crate::procfs;

/// Iterator over the tasks in the pid namespace of memtrace. An iteration does not wait for any task.
pub(super) struct TaskIterator(OwnedFd);

impl TaskIterator {
    /// Loads and attaches the program `name`.
    pub(super) fn load(bpf: &mut Bpf, name: &str) -> Result<Self, KernelError> {
        const ACTION: &str = "iterate over the threads";
        let types = Btf::parse_file(procfs::kernel_btf(), aya::Endianness::default())
            .map_err(|error| KernelError::from_error(ACTION, &error))?;
        let program: &mut Iter = bpf.program(name)?;
        program.load("task", &types).map_err(|error| KernelError::from_load(ACTION, &error))?;
        let descriptor = program.fd().map_err(|error| KernelError::from_error(ACTION, &error))?;
        let link = bpf_syscall::create_iterator_link(descriptor.as_fd());
        let link = link.map_err(|error| {
            KernelError::from_io(ACTION, error, String::from("the kernel has no iterator over tasks"))
        })?;
        Ok(Self(link))
    }

    /// Calls `visit` for each record of an iteration. `buffer`: memory for at least one record. Allocates no memory.
    pub(super) fn for_each<T: WireType>(&self, buffer: &mut [u8], mut visit: impl FnMut(T)) -> io::Result<()> {
        let mut file = File::from(bpf_syscall::create_iterator(self.0.as_fd())?);
        let mut filled = 0;
        loop {
            let bytes = match file.read(&mut buffer[filled..]) {
                Ok(0) => return Ok(()),
                Ok(bytes) => bytes,
                // The kernel interrupts long iterations.
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => continue,
                Err(error) => return Err(error),
            };
            filled += bytes;
            let mut records = buffer[..filled].chunks_exact(size_of::<T>());
            records.by_ref().filter_map(read::<T>).for_each(&mut visit);
            let rest = records.remainder().len();
            buffer.copy_within(filled - rest..filled, 0);
            filled = rest;
        }
    }
}
