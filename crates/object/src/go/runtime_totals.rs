//! Totals of Go's runtime: the location of `runtime.memstats`, and the meaning of its words.
//!
//! No symbol is needed. The functions of the runtime that account for spans call `runtime.(*consistentHeapStats).acquire` and
//! `release` with the address of the variable, which is found in their code. The code of `acquire` has the size of the first
//! structures of the variable, so it proves the layout. Programs made by Go 1.19, 1.21 to 1.24, 1.26 and 1.27 have 16 such calls
//! in 6 functions.
//!
//! `runtime.readmemstats_m` (runtime/mstats.go) computes `runtime.MemStats` from the same words.

mod functions;
mod layout;
mod receivers;
mod refusal;

use memtrace_model::{Bytes, GoTotals, VirtOffset};
use object::elf::PT_LOAD;

use super::version::GoVersion;
use super::{build_info, loaded_size};
use crate::elf::{Elf, Machine, Segment, Source};
use functions::TotalsFunctions;
use layout::{Layout, SpanWord, SysWord};
pub use refusal::TotalsRefusal;

/// Minimum number of calls that must agree. A compiler may inline some of them with a profile (PGO).
const LEAST_CALLS: usize = 4;
/// Size of a word in bytes.
const WORD: u64 = 8;
/// Size of a page of the runtime in bytes (`_PageSize`, runtime/malloc.go). Spans consist of pages.
const RUNTIME_PAGE: u64 = 8192;
/// Maximum number of bytes of a total: the address space of a process.
const MOST: u64 = 1 << 47;

/// Location of the totals in a Go program.
#[derive(Clone, Debug)]
pub struct TotalsLocation {
    version: GoVersion,
    virt: VirtOffset,
    layout: &'static Layout,
}

impl TotalsLocation {
    /// Finds the totals of an executable.
    ///
    /// # Errors
    ///
    /// If the code of the executable does not prove location and layout.
    pub fn find<S: Source>(source: S) -> Result<Self, TotalsRefusal> {
        let elf = Elf::parse(source)?;
        loaded_size::check(&elf)?;
        if elf.machine() != Machine::X86_64 {
            return Err(TotalsRefusal::Architecture);
        }
        let version = build_info::version(&elf)?.ok_or(TotalsRefusal::NotGo)?;
        let Some(minor) = version.minor().filter(|minor| layout::of_release(*minor).next().is_some()) else {
            return Err(TotalsRefusal::Version(version.to_string()));
        };
        let functions = TotalsFunctions::find(&elf, minor)?.ok_or(TotalsRefusal::NoFunctionTable)?;
        let (Some(acquire), Some(release)) = (functions.acquire, functions.release) else {
            return Err(TotalsRefusal::NoVariable);
        };
        let is_proven = |layout: &&Layout| acquire.chooses_element(layout.delta_size(), layout.index_offset());
        let layout = layout::of_release(minor).find(is_proven).ok_or(TotalsRefusal::Layout)?;
        let callees = [acquire.start, release.start];
        let receivers: Vec<_> = functions.callers.iter().flat_map(|caller| caller.first_arguments(&callees)).collect();
        let virt = agreed(&receivers).ok_or(TotalsRefusal::NoVariable)?;
        let length = layout.words() as u64 * WORD;
        let is_inside = |segment: &Segment| segment.kind == PT_LOAD && segment.writable && holds(segment, virt, length);
        if !virt.is_multiple_of(WORD) || !elf.segments().iter().any(is_inside) {
            return Err(TotalsRefusal::Outside);
        }
        Ok(Self { version, virt: VirtOffset(virt), layout })
    }

    /// Returns the version of Go.
    #[must_use]
    pub const fn version(&self) -> &GoVersion {
        &self.version
    }

    /// Returns the address of the totals in the object.
    #[must_use]
    pub const fn virt(&self) -> VirtOffset {
        self.virt
    }

    /// Returns the number of words that the totals have in the memory of a process.
    #[must_use]
    pub const fn words(&self) -> usize {
        self.layout.words()
    }

    /// Computes the totals of the words in the memory of a process.
    ///
    /// # Errors
    ///
    /// If the totals contradict each other: they are forged, or they were read while the runtime changed them.
    pub fn totals(&self, words: &[u64]) -> Result<GoTotals, TotalsRefusal> {
        totals(self.layout, words).ok_or(TotalsRefusal::Implausible)
    }
}

/// Returns the value that all of `values` have; `None` if they differ or if there are too few.
fn agreed(values: &[u64]) -> Option<u64> {
    let first = *values.first()?;
    (values.len() >= LEAST_CALLS && values.iter().all(|value| *value == first)).then_some(first)
}

/// Returns true if the segment has the `length` bytes at `virt` in memory.
fn holds(segment: &Segment, virt: u64, length: u64) -> bool {
    let inside = virt.checked_sub(segment.virt).and_then(|inside| inside.checked_add(length));
    inside.is_some_and(|end| end <= segment.memory_size)
}

/// Computes the totals; `None` if they contradict each other.
fn totals(layout: &Layout, words: &[u64]) -> Option<GoTotals> {
    let contents = layout.divide(words)?;
    let spans = |word| -> Option<Bytes> {
        let bytes = contents.spans(word);
        (bytes <= MOST && bytes.is_multiple_of(RUNTIME_PAGE)).then_some(Bytes(bytes))
    };
    let sys = |word| -> Option<Bytes> { Some(contents.sys(word)).filter(|bytes| *bytes <= MOST).map(Bytes) };
    if contents.index() >= layout::DELTAS as u64 {
        return None;
    }
    let (in_use, stacks) = (spans(SpanWord::InHeap)?, spans(SpanWord::InStacks)?);
    let work_buffers = Bytes(spans(SpanWord::InWorkBuffers)?.0 + spans(SpanWord::InPointerBits)?.0);
    let used = in_use.0 + stacks.0 + work_buffers.0;
    Some(GoTotals {
        // A processor counts the objects in its cache late, so the number of freed objects can be the larger one.
        objects: Bytes(contents.objects().cast_signed().max(0).cast_unsigned().min(in_use.0)),
        in_use,
        idle: Bytes(spans(SpanWord::Committed)?.0.checked_sub(used)?),
        released: spans(SpanWord::Released)?,
        stacks,
        thread_stacks: sys(SysWord::Stacks)?,
        work_buffers,
        spans: sys(SysWord::Spans)?,
        caches: sys(SysWord::Caches)?,
        profile_tables: sys(SysWord::ProfileTables)?,
        collector: sys(SysWord::Collector)?,
        other: sys(SysWord::Other)?,
    })
}

#[cfg(test)]
mod location_tests;
#[cfg(test)]
mod tests;
