//! Assignment of anonymous memory: to the allocator, a thread's stack, or the program itself.

use std::path::Path;

use super::parts::{Closer, Parts, Readings, span_of};
use super::sums::Named;
use crate::explain::allocator::Serving;
use crate::explain::span::Span;
use crate::model::{AbsAddr, MappingKind, MemorySizes, NamedMemory, Tid};
use crate::procfs::smaps::Area;

/// Splits mappings of anonymous memory into pieces with one owner.
pub(super) struct Pieces<'all, C> {
    readings: &'all Readings,
    closer: &'all C,
    named: Named,
    /// True if the active allocator names its mappings, so that unnamed ones belong to something else.
    names_its_own: bool,
}

impl<'all, C: Closer> Pieces<'all, C> {
    pub(super) fn new(readings: &'all Readings, closer: &'all C) -> Self {
        let names_its_own = match &readings.serving {
            Serving::Unmarked(kind) => names_its_own(&readings.areas, kind),
            Serving::Glibc | Serving::Unknown => false,
        };
        Self { readings, closer, named: Named::default(), names_its_own }
    }

    /// Adds the mapping at `index`, which is anonymous or of `brk`.
    pub(super) fn add(&mut self, index: usize, kind: MappingKind, parts: &mut Parts) {
        let area = &self.readings.areas[index];
        let whole = span_of(area);
        let mut left = area.sizes.held();
        let claims = self.readings.glibc.as_ref().map_or(&[][..], |found| &found.spans);
        // There may be tens of thousands of both mappings and blocks with mappings of their own.
        let first = claims.partition_point(|claim| claim.end <= whole.start);
        let behind = claims.partition_point(|claim| claim.start < whole.end);
        let claims = claims.get(first..behind).unwrap_or_default();
        let rest = whole.without(claims);
        let claimed: Vec<_> = claims.iter().filter_map(|claim| claim.shared_with(whole)).collect();
        if rest.is_empty() || kind == MappingKind::Heap {
            parts.heap.held += left;
            return;
        }
        // The kernel counts a mapping with several owners as one; all but the last piece are measured.
        for piece in claimed {
            parts.heap.held += self.cut(&mut left, piece);
        }
        let rest: Vec<_> = rest.into_iter().flat_map(|piece| self.parted(index, piece)).collect();
        for (number, piece) in rest.iter().enumerate() {
            let held = if number + 1 < rest.len() { self.cut(&mut left, *piece) } else { left };
            self.give(index, *piece, held, parts);
        }
    }

    /// The piece, parted where a file's variables end.
    fn parted(&self, index: usize, piece: Span) -> Vec<Span> {
        let end = self.variables_end(index).unwrap_or(piece.start);
        let parts = [Span { end, ..piece }, Span { start: end, ..piece }];
        parts.into_iter().filter_map(|part| part.shared_with(piece)).collect()
    }

    fn variables_end(&self, index: usize) -> Option<AbsAddr> {
        self.readings.variables.iter().find(|(of, _)| *of == index).map(|(_, end)| *end)
    }

    /// Returns the piece's share of the rest of its mapping.
    fn cut(&self, left: &mut MemorySizes, piece: Span) -> MemorySizes {
        let measured = self.closer.held(piece).unwrap_or_default();
        let held = MemorySizes {
            reserved: piece.length().min(left.reserved),
            resident: measured.resident.min(left.resident),
            swap: measured.swap.min(left.swap),
            // The kernel does not report which pages are huge; they are most likely in the largest piece.
            huge: measured.resident.min(left.resident).min(left.huge),
        };
        *left = left.without(held);
        held
    }

    /// Assigns a piece that does not belong to glibc.
    fn give(&mut self, index: usize, piece: Span, held: MemorySizes, parts: &mut Parts) {
        let area = &self.readings.areas[index];
        if let Some(thread) = self.stack(index, piece) {
            let stacks = &mut parts.thread_stacks;
            stacks.held += held;
            // Guards that are no mappings of their own (`MADV_GUARD_INSTALL`, Linux 6.13) let the kernel join stacks.
            let pointers = self.readings.threads.pointers.iter().filter(|(_, pointer)| piece.holds(*pointer));
            stacks.stacks += u32::try_from(pointers.count()).unwrap_or(u32::MAX).max(1);
            if let Some(thread) = thread
                && stacks.largest.is_none_or(|(_, most)| held.resident > most)
            {
                stacks.largest = Some((thread, held.resident));
            }
            return;
        }
        if self.is_guard(index) {
            parts.thread_stacks.held += held;
            return;
        }
        match &self.readings.serving {
            Serving::Unmarked(kind) if self.may_be_allocators(index, piece, kind) => parts.heap.held += held,
            _ => self.named.add(&self.name(index, piece, area), held),
        }
    }

    /// Returns true if the piece is a thread's stack, with the thread if it is known.
    fn stack(&self, index: usize, piece: Span) -> Option<Option<Tid>> {
        let area = &self.readings.areas[index];
        let named = given_name(&area.entry.path);
        let may_be = area.entry.readable
            && area.entry.writable
            && area.entry.file.is_none()
            && named.is_none_or(|name| name.contains("stack"));
        may_be.then_some(())?;
        let thread = self.readings.threads.pointers.iter().find(|(_, pointer)| piece.holds(*pointer));
        let guarded = piece.start == area.entry.start && self.guard_below(index).is_some();
        let proven = match (thread, guarded || area.grows_down) {
            (Some(_), true) => true,
            (Some(_), false) | (None, true) => self.closer.is_threads(piece),
            (None, false) => false,
        };
        proven.then(|| thread.map(|(tid, _)| *tid))
    }

    /// Returns the inaccessible mapping below, the guard that C libraries create below each thread's stack.
    fn guard_below(&self, index: usize) -> Option<&Area> {
        let below = self.readings.areas.get(index.checked_sub(1)?)?;
        let untouchable = !below.entry.readable && !below.entry.writable && below.entry.file.is_none();
        (untouchable && below.entry.end == self.readings.areas[index].entry.start).then_some(below)
    }

    /// Returns true if the mapping is the guard of a stack above it.
    fn is_guard(&self, index: usize) -> bool {
        let Some(above) = self.readings.areas.get(index + 1) else { return false };
        self.guard_below(index + 1).is_some() && self.stack(index + 1, span_of(above)).is_some()
    }

    /// Returns true if it can belong to an allocator without headers: writable memory without a name or with the
    /// allocator's.
    fn may_be_allocators(&self, index: usize, piece: Span, allocator: &str) -> bool {
        let area = &self.readings.areas[index];
        area.entry.writable
            && !area.entry.executable
            && area.entry.file.is_none()
            && self.variables_of(index, piece).is_none()
            && given_name(&area.entry.path).map_or(!self.names_its_own, |name| name.contains(allocator))
    }

    /// The file whose variables the piece has, of those that the file has no bytes for.
    fn variables_of(&self, index: usize, piece: Span) -> Option<&Path> {
        let below = self.readings.areas.get(index.checked_sub(1)?)?;
        (piece.end <= self.variables_end(index)?).then_some(below.entry.path.as_path())
    }

    /// Returns its displayed name.
    fn name(&self, index: usize, piece: Span, area: &Area) -> String {
        if let Some(name) = given_name(&area.entry.path) {
            return name;
        }
        if let Some(path) = self.variables_of(index, piece) {
            return format!("{} (variables, .bss)", path.display());
        }
        if area.entry.executable {
            return String::from("code made at run time");
        }
        if !area.entry.readable && !area.entry.writable {
            return String::from("reserved and not accessible");
        }
        match self.readings.beside.as_slice() {
            [] => String::from("without a name"),
            names => format!("without a name: {}'s, or the program's own", names.join("'s, ")),
        }
    }

    /// All that is the program's own.
    pub(super) fn anonymous(self) -> Vec<NamedMemory> {
        self.named.ranked()
    }
}

/// Returns true if the allocator names its mappings, as jemalloc (`jemalloc_pg`) and tcmalloc (`tcmalloc_region_…`) can
/// be built to.
pub(super) fn names_its_own(areas: &[Area], allocator: &str) -> bool {
    let is_its = |area: &Area| {
        area.entry.file.is_none() && given_name(&area.entry.path).is_some_and(|name| name.contains(allocator))
    };
    areas.iter().any(is_its)
}

/// The name that a process gave its memory (`PR_SET_VMA_ANON_NAME`): `[anon:NAME]`; a file's path, where anonymous
/// memory has one.
fn given_name(path: &Path) -> Option<String> {
    let text = path.to_string_lossy();
    match text.strip_prefix("[anon:").and_then(|name| name.strip_suffix(']')) {
        Some(name) => Some(name.to_owned()),
        None => (!text.is_empty()).then(|| text.into_owned()),
    }
}
