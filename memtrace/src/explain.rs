//! Where a process' memory is: read from `/proc` and, where the allocator is glibc's, from its own marks.
//!
//! All of it only reads. The target is not stopped, and no page of it is brought in that was not there: what is swapped
//! out or was never touched is not looked at.

mod allocator;
mod assemble;
mod chunks;
mod glibc;
mod span;
mod stacks;

use std::fs::File;
use std::io;

use self::allocator::Serving;
use self::assemble::{Closer, Readings};
use self::span::Span;
use crate::allocators::Survey;
use crate::elf::Elf;
use crate::model::{AbsAddr, Bytes, Explanation, MemorySizes, StatusCounters};
use crate::procfs::error::ProcessError;
use crate::procfs::objects::Objects;
use crate::procfs::page_map;
use crate::procfs::peek::Peek;
use crate::procfs::process::Process;
use crate::procfs::smaps::{self, Area};
use crate::procfs::{cgroup_memory, counted, machine_pressure, tmpfs::Tmpfs};

/// How often mappings are read while the RSS is another one each time.
const ATTEMPTS: u32 = 5;

/// Reads where the memory of `process` is, of which `survey` says which allocators it has, and `objects` what it has
/// mapped.
///
/// # Errors
///
/// Where the process has ended, or may not be looked at. Where only its memory may not be read, that is said in the
/// result.
pub(crate) fn explain(process: &Process, survey: &Survey, objects: &mut Objects) -> Result<Explanation, ProcessError> {
    let pid = process.pid;
    let peek = Peek::open(pid);
    let tmpfs = Tmpfs::of(pid);
    let threads = stacks::threads(pid);
    let (areas, before, after) = steadily(process)?;
    let serving = allocator::serving(survey);
    let glibc = match (&serving, &peek) {
        (Serving::Glibc | Serving::Unknown, Ok(peek)) => Some(glibc::look(peek, &assemble::regions(&areas, &tmpfs))),
        _ => None,
    };
    let variables = variables(process, &areas, objects);
    let threads_count = threads.count;
    let readings = Readings { areas, tmpfs, threads, serving, beside: allocator::beside(survey), glibc, variables };
    let parts = assemble::assemble(&readings, &Looking(&peek));
    Ok(Explanation {
        pid,
        comm: process.comm.clone(),
        exe: process.exe.clone(),
        threads: threads_count,
        counted: after,
        before: (before.rss != after.rss).then_some(before.rss),
        heap: parts.heap,
        anonymous: parts.anonymous,
        main_stack: parts.main_stack,
        thread_stacks: parts.thread_stacks,
        files: parts.files,
        shmem: parts.shmem,
        special: parts.special,
        hugetlb: parts.hugetlb,
        kinds: parts.kinds,
        pss: parts.pss,
        cgroup: cgroup_memory(pid),
        pressure: machine_pressure(),
    })
}

/// The mappings, and what the kernel counts before and after they are read; read again where that is not the same.
fn steadily(process: &Process) -> Result<(Vec<Area>, StatusCounters, StatusCounters), ProcessError> {
    let pid = process.pid;
    let mut before = counted(pid)?;
    let mut attempt = 1;
    loop {
        let areas = smaps::areas(pid)?;
        let after = counted(pid)?;
        if before.rss == after.rss || attempt == ATTEMPTS {
            return Ok((areas, before, after));
        }
        before = after;
        attempt += 1;
    }
}

/// Where the variables end that a file has no bytes for, of each mapping of anonymous memory that continues a file's.
fn variables(process: &Process, areas: &[Area], objects: &mut Objects) -> Vec<(usize, AbsAddr)> {
    let pairs = areas.windows(2).enumerate();
    let continued = pairs.filter(|(_, pair)| {
        let [file, rest] = [&pair[0].entry, &pair[1].entry];
        file.writable && !file.shared && rest.writable && rest.file.is_none() && file.end == rest.start
    });
    let end = |(index, pair): (usize, &[Area])| {
        let file = &pair[0].entry;
        let object = objects.mapped(process.pid, file, file.file?);
        let file_at = File::open(object.handle.as_ref()?).ok()?;
        let length = Elf::parse(&file_at).ok()?.variables_from(file.offset.0)?;
        let end = file.start.0.checked_add(length)?.checked_next_multiple_of(page_map::page_size().ok()?.0)?;
        Some((index + 1, AbsAddr(end)))
    };
    continued.filter_map(end).collect()
}

/// Looks into the process, where that is permitted.
struct Looking<'peek>(&'peek io::Result<Peek>);

impl Closer for Looking<'_> {
    fn held(&self, Span { start, end }: Span) -> Option<MemorySizes> {
        let peek = self.0.as_ref().ok()?;
        let residence = peek.pages.residence(start, end).ok()?;
        Some(MemorySizes {
            reserved: Bytes(end.0 - start.0),
            resident: residence.resident(start, end),
            swap: Bytes(residence.swapped * peek.pages.page().0),
            huge: Bytes(0),
        })
    }

    fn is_threads(&self, span: Span) -> bool {
        self.0.as_ref().is_ok_and(|peek| stacks::has_thread_at_its_top(peek, span))
    }
}

#[cfg(test)]
mod tests;
