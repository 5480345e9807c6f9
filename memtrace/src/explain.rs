//! Memory of a process by owner, read from `/proc`, from glibc's chunk headers and from the totals of Go's runtime, without
//! tracing. Memory of several processes and of their control groups.
//!
//! The processes are not stopped. Reading their memory causes no page fault in them: pages that are swapped out or
//! were never touched are skipped.

mod allocator;
mod assemble;
mod chunks;
mod glibc;
mod go;
mod process_error;
mod run;
mod selection;
mod span;
mod stacks;

use std::io;
use std::path::Path;
use std::time::Instant;

use memtrace_model::{AbsAddr, Bytes, Explanation, MemorySizes, Runtime, StatusCounters};

use self::allocator::MallocProvider;
use self::assemble::{ProcessMemory, RangeInspector};
use self::glibc::{HeapWalk, Region};
use self::go::{GoArenas, GoProgram};
use self::span::Span;

pub(crate) use self::run::{Config, run};

use memtrace_host::procfs::MemoryReader;
use memtrace_host::procfs::Objects;
use memtrace_host::procfs::Process;
use memtrace_host::procfs::ProcessError;
use memtrace_host::procfs::{Tmpfs, cgroup_memory, counted, machine_pressure, page_size, read_image};
use memtrace_host::procfs::{Vma, vmas};
use memtrace_host::target_files::{TargetFiles, open_object};
use memtrace_host::unread_files;
use memtrace_object::allocators::{self, Survey, UserHooks, Verdict};
use memtrace_object::elf::{self, Elf};

/// Maximum number of attempts to read the VMAs without a change of the RSS.
const ATTEMPTS: u32 = 5;

/// Attributes the memory of `process` to owners: heap, stacks, files and others. After `deadline`, no memory of the process is
/// read.
///
/// # Errors
///
/// Errors of reading `/proc`: the process has exited, or permission is missing. If only the memory of the process
/// cannot be read, the function succeeds, and the explanation states this as the reason for unknown values.
fn explain(process: &Process, deadline: Option<Instant>) -> Result<Explanation, ProcessError> {
    let pid = process.pid;
    // Keeps the files of the image's objects open.
    let mut objects = Objects::new();
    let image = read_image(pid, &mut objects)?;
    let survey = allocators::survey(&image, &UserHooks::default(), &TargetFiles);
    let reader = MemoryReader::open(pid, deadline);
    let tmpfs = Tmpfs::of(pid);
    let threads = stacks::threads(pid);
    // An explanation of several processes does not show the parts of Go's memory.
    let go = if deadline.is_none() { GoProgram::find(&survey, &image) } else { None };
    let read_totals = || go.as_ref().map(|go| go.read_totals(reader.as_ref().ok()));
    let totals_before = read_totals();
    let (vmas, before, after) = read_vmas_consistently(process)?;
    let arenas = totals_before.zip(read_totals()).map(|(before, after)| GoArenas::find(before?, after?, &vmas));
    let provider = allocator::malloc_provider(&survey);
    let known_arenas = arenas.as_ref().and_then(|arenas| arenas.as_ref().ok());
    let glibc = walk_glibc(&provider, reader.as_ref().ok(), assemble::regions(&vmas, &tmpfs), known_arenas);
    let variables = variables(process, &vmas, &mut objects);
    let threads_count = threads.count;
    let memory = ProcessMemory {
        vmas,
        tmpfs,
        threads,
        provider,
        other_allocators: allocator::other_allocators(&survey),
        glibc,
        go: known_arenas.cloned(),
        variables,
    };
    let parts = assemble::assemble(&memory, &ProcessInspector(&reader));
    let explanation = Explanation {
        pid,
        comm: process.comm.clone(),
        exe: process.exe.clone(),
        runtime: runtime(&process.exe, &survey),
        threads: threads_count,
        counted: after,
        before: (before.rss != after.rss).then_some(before.rss),
        heap: parts.heap,
        go: go.zip(arenas).map(|(go, arenas)| go.into_memory(arenas.map(|_| parts.go.unwrap_or_default()))),
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
        file_timeouts: unread_files::take().values().sum(),
    };
    // If the process has exited, the pid may belong to another one by now.
    if process.has_exited() { Err(ProcessError::Exited(pid)) } else { Ok(explanation) }
}

/// Walks glibc's heap in `regions`, but not in the arenas of Go; `None` if the process has another allocator. A Go
/// program whose allocator is not known can have a heap of glibc in the brk heap only: other memory belongs to the
/// runtime.
fn walk_glibc(
    provider: &MallocProvider,
    reader: Option<&MemoryReader>,
    mut regions: Vec<Region>,
    go: Option<&GoArenas>,
) -> Option<HeapWalk> {
    match (provider, go) {
        (MallocProvider::Other(_), _) => return None,
        (MallocProvider::Unknown, Some(_)) => {
            regions.retain(|region| region.is_brk);
            if regions.is_empty() {
                return None;
            }
        }
        (MallocProvider::Glibc | MallocProvider::Unknown, _) => {}
    }
    let arenas = go.map_or(&[][..], |go| &go.spans);
    let outside = |region: Region| region.span.without(arenas).into_iter().map(move |span| Region { span, ..region });
    let regions: Vec<_> = regions.into_iter().flat_map(outside).collect();
    Some(glibc::walk_heap(reader?, &regions))
}

/// Returns the language runtime of the program, if it is known.
fn runtime(exe: &Path, survey: &Survey) -> Option<Runtime> {
    let objects = &survey.examined;
    let is_go = || objects.iter().any(|object| object.verdict == Verdict::Go);
    Runtime::of_program(Some(exe), objects.iter().map(|object| object.path.as_path()), is_go)
}

/// Reads the VMAs, and the status counters before and after them. If the RSS has changed between the counters, reads all again,
/// at most [`ATTEMPTS`] times in total. Returns the VMAs, the counters before and the counters after.
fn read_vmas_consistently(process: &Process) -> Result<(Vec<Vma>, StatusCounters, StatusCounters), ProcessError> {
    let pid = process.pid;
    let mut before = counted(pid)?;
    let mut attempt = 1;
    loop {
        let vmas = vmas(pid)?;
        let after = counted(pid)?;
        if before.rss == after.rss || attempt == ATTEMPTS {
            return Ok((vmas, before, after));
        }
        before = after;
        attempt += 1;
    }
}

/// Finds the anonymous VMAs that directly follow a file's VMA and start with the file's `.bss` variables. Returns the index of
/// each VMA, and the end of the variables.
fn variables(process: &Process, vmas: &[Vma], objects: &mut Objects) -> Vec<(usize, AbsAddr)> {
    let pairs = vmas.windows(2).enumerate();
    let continued = pairs.filter(|(_, pair)| {
        let [file, rest] = [&pair[0].entry, &pair[1].entry];
        file.writable && !file.shared && rest.writable && rest.file.is_none() && file.end == rest.start
    });
    let end = |(index, pair): (usize, &[Vma])| {
        let file = &pair[0].entry;
        let object = objects.mapped(process.pid, file, file.file?);
        let file_at = open_object(&object).ok()?;
        let length = elf::variables_from(Elf::parse(&file_at).ok()?.segments(), file.offset.0)?;
        let end = file.start.0.checked_add(length)?.checked_next_multiple_of(page_size().ok()?.0)?;
        Some((index + 1, AbsAddr(end)))
    };
    continued.filter_map(end).collect()
}

/// Inspector of the memory of a process. Without permission to read this memory, the sizes of each range are `None`.
struct ProcessInspector<'reader>(&'reader io::Result<MemoryReader>);

impl RangeInspector for ProcessInspector<'_> {
    fn sizes(&self, Span { start, end }: Span) -> Option<MemorySizes> {
        let reader = self.0.as_ref().ok()?;
        let pages = reader.pages.residence(start, end).ok()?;
        Some(MemorySizes {
            reserved: Bytes(end.0 - start.0),
            resident: pages.resident(start, end),
            swap: Bytes(pages.swapped * reader.pages.page().0),
            huge: Bytes(0),
            returnable: Bytes(0),
        })
    }

    fn has_thread_block(&self, span: Span) -> bool {
        self.0.as_ref().is_ok_and(|reader| stacks::has_thread_block(reader, span))
    }
}

#[cfg(test)]
mod tests;
