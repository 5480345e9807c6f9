//! Finds the arenas of Go's heap among the VMAs of a process.
//!
//! The runtime reserves address space in multiples of an arena, and maps it piece by piece (`mheap.grow`, runtime/mheap.go). It
//! counts the mapped bytes: spans in use and idle ones are committed, and all others are released. So the sum of the mappings
//! equals a sum of the totals, to the byte. This proves that the VMAs are the arenas.

use std::ops::RangeInclusive;

use memtrace_host::procfs::Vma;
use memtrace_model::GoTotals;

use super::error::GoError;
use crate::explain::span::Span;

/// Size and alignment of an arena in bytes (`heapArenaBytes`, runtime/malloc.go).
const ARENA: u64 = 64 << 20;
/// Start of the names of arenas and of their reserved parts, from Go 1.25 on (`setVMAName`, runtime/set_vma_name_linux.go).
const NAME: &str = "[anon: Go: heap";

/// Totals of Go's runtime, and the mapped parts of its arenas.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::explain) struct GoArenas {
    pub(in crate::explain) totals: GoTotals,
    /// Writable VMAs, ordered by address.
    pub(in crate::explain) spans: Vec<Span>,
}

/// Contiguous anonymous memory that starts and ends at a multiple of an arena.
#[derive(Debug)]
struct Reservation {
    whole: Span,
    /// The writable VMAs.
    mapped: Vec<Span>,
}

impl GoArenas {
    /// Finds the arenas. `before` and `after`: totals that were read before and after the VMAs.
    ///
    /// # Errors
    ///
    /// [`GoError::Arenas`] or [`GoError::Mappings`] if the totals contradict the VMAs.
    pub(in crate::explain) fn find(before: GoTotals, after: GoTotals, vmas: &[Vma]) -> Result<Self, GoError> {
        let [first, second] = [before.arenas().0, after.arenas().0];
        let spans = find_spans(vmas, &(first.min(second)..=first.max(second)));
        // If there are no arenas, the runtime has not started yet.
        let spans = spans.filter(|spans| !spans.is_empty()).ok_or(GoError::Arenas)?;
        let totals = if length(&spans) == first { before } else { after };
        let is_writable = |vma: &&Vma| vma.entry.writable && !vma.entry.shared && vma.entry.file.is_none();
        let writable = vmas.iter().filter(is_writable).map(|vma| vma.entry.end.0.saturating_sub(vma.entry.start.0));
        let outside = writable.fold(0, u64::saturating_add).saturating_sub(length(&spans));
        if totals.outside_arenas().0 > outside {
            return Err(GoError::Mappings);
        }
        Ok(Self { totals, spans })
    }

    /// Returns true if a VMA is a part of the arenas. Compares the start addresses only.
    pub(in crate::explain) fn contains(&self, vma: &Vma) -> bool {
        self.spans.binary_search_by_key(&vma.entry.start, |span| span.start).is_ok()
    }
}

/// Finds the writable VMAs of the arenas. `mapped`: possible total sizes of these VMAs, in bytes.
fn find_spans(vmas: &[Vma], mapped: &RangeInclusive<u64>) -> Option<Vec<Span>> {
    let all = reservations(vmas);
    // Arenas of glibc look like arenas of Go. So the second attempt takes only addresses that begin with 0xc0, as they
    // do up to Go 1.25.
    let usual = all.iter().filter(|reservation| reservation.has_usual_address());
    let candidates: [Vec<&Reservation>; 2] = [all.iter().collect(), usual.collect()];
    if let Some(found) = candidates.iter().map(|some| mapped_spans(some)).find(|spans| mapped.contains(&length(spans)))
    {
        return Some(found);
    }
    let single = all.iter().map(|reservation| mapped_spans(&[reservation]));
    let mut single = single.filter(|spans| mapped.contains(&length(spans)));
    let found = single.next()?;
    single.next().is_none().then_some(found)
}

fn mapped_spans(reservations: &[&Reservation]) -> Vec<Span> {
    reservations.iter().flat_map(|reservation| reservation.mapped.iter().copied()).collect()
}

/// Returns the memory that can be arenas: private anonymous memory, with the reserved parts around it.
fn reservations(vmas: &[Vma]) -> Vec<Reservation> {
    let mut all: Vec<Reservation> = Vec::new();
    for vma in vmas.iter().filter(|vma| may_be_arena(vma)) {
        let span = Span { start: vma.entry.start, end: vma.entry.end };
        let mapped = if vma.entry.readable && vma.entry.writable { Some(span) } else { None };
        match all.last_mut() {
            Some(last) if last.whole.end == span.start => {
                last.whole.end = span.end;
                last.mapped.extend(mapped);
            }
            _ => all.push(Reservation { whole: span, mapped: mapped.into_iter().collect() }),
        }
    }
    all.retain(|reservation| {
        let Span { start, end } = reservation.whole;
        start.0.is_multiple_of(ARENA) && end.0.is_multiple_of(ARENA)
    });
    all
}

fn may_be_arena(vma: &Vma) -> bool {
    let entry = &vma.entry;
    let name = entry.path.to_string_lossy();
    let is_anonymous = entry.file.is_none() && !entry.shared && !entry.executable && !vma.grows_down;
    is_anonymous && (name.is_empty() || name.starts_with(NAME))
}

fn length(spans: &[Span]) -> u64 {
    spans.iter().map(|span| span.length().0).fold(0, u64::saturating_add)
}

impl Reservation {
    /// Returns true if bits 32 to 39 of the address are at least 0xc0. The bits above them are the number of the
    /// attempt to reserve address space (`mallocinit`, runtime/malloc.go).
    const fn has_usual_address(&self) -> bool {
        (self.whole.start.0 >> 32) & 0xff >= 0xc0
    }
}
