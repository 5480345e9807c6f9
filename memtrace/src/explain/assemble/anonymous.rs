//! Attributes anonymous memory to the allocator, to the thread stacks, or to a name.

use std::path::Path;

use memtrace_host::procfs::Vma;
use memtrace_model::{AbsAddr, Bytes, GoSizes, MappingKind, MemorySizes, NamedMemory, Tid};

use super::go_parts;
use super::memory::{ProcessMemory, RangeInspector, span_of};
use super::parts::Parts;
use super::sums::NameTotals;
use crate::explain::allocator::MallocProvider;
use crate::explain::span::Span;

/// Start of the names that the Go runtime gives its memory (`setVMAName`, runtime/set_vma_name_linux.go).
const GO_NAMES: &str = " Go: ";

/// Attribution of anonymous VMAs. A VMA may have several owners.
pub(super) struct AnonymousMemory<'all, I> {
    memory: &'all ProcessMemory,
    inspector: &'all I,
    named: NameTotals,
    /// Memory of a Go program, if its totals are known.
    go: GoPieces,
    /// True if the malloc provider names its mappings. Then mappings without a name do not belong to the provider.
    names_its_own: bool,
}

/// Memory of a Go program before it is divided.
#[derive(Debug, Default)]
struct GoPieces {
    arenas: MemorySizes,
    /// Memory outside of the arenas with the name of the runtime.
    named: MemorySizes,
    /// Writable memory without a name. The runtime has mapped it, or the program itself.
    unnamed: NamedMemory,
}

impl<'all, I: RangeInspector> AnonymousMemory<'all, I> {
    pub(super) fn new(memory: &'all ProcessMemory, inspector: &'all I) -> Self {
        let names_its_own = match &memory.provider {
            MallocProvider::Other(kind) => names_its_own(&memory.vmas, kind),
            MallocProvider::Glibc | MallocProvider::Unknown => false,
        };
        Self { memory, inspector, named: NameTotals::default(), go: GoPieces::default(), names_its_own }
    }

    /// Attributes the VMA at `index`, which is anonymous or the brk heap.
    pub(super) fn add(&mut self, index: usize, kind: MappingKind, parts: &mut Parts) {
        let vma = &self.memory.vmas[index];
        let whole = span_of(vma);
        let mut left = vma.sizes.held(kind);
        if self.memory.go.as_ref().is_some_and(|go| go.contains(vma)) {
            self.go.arenas += left;
            return;
        }
        let claims = self.memory.glibc.as_ref().map_or(&[][..], |walk| &walk.spans);
        // Binary search: there may be tens of thousands of VMAs and of blocks with their own mmap.
        let first = claims.partition_point(|claim| claim.end <= whole.start);
        let end = claims.partition_point(|claim| claim.start < whole.end);
        let claims = claims.get(first..end).unwrap_or_default();
        let rest = whole.without(claims);
        let claimed: Vec<_> = claims.iter().filter_map(|claim| claim.shared_with(whole)).collect();
        if rest.is_empty() || kind == MappingKind::Heap {
            parts.heap.held += left;
            return;
        }
        // The kernel reports the sizes of the whole VMA only. Measure all pieces except the last, which gets the rest.
        for piece in claimed {
            parts.heap.held += self.take_sizes(&mut left, piece);
        }
        let rest: Vec<_> = rest.into_iter().flat_map(|piece| self.split_at_variables(index, piece)).collect();
        for (number, piece) in rest.iter().enumerate() {
            let held = if number + 1 < rest.len() { self.take_sizes(&mut left, *piece) } else { left };
            self.attribute(index, *piece, held, parts);
        }
    }

    /// Splits a piece at the end of a file's `.bss` variables, if the VMA contains some.
    fn split_at_variables(&self, index: usize, piece: Span) -> Vec<Span> {
        let end = self.variables_end(index).unwrap_or(piece.start);
        let parts = [Span { end, ..piece }, Span { start: end, ..piece }];
        parts.into_iter().filter_map(|part| part.shared_with(piece)).collect()
    }

    fn variables_end(&self, index: usize) -> Option<AbsAddr> {
        self.memory.variables.iter().find(|(vma, _)| *vma == index).map(|(_, end)| *end)
    }

    /// Measures a piece of a VMA, and returns the sizes of the piece. Subtracts them from `left`, the sizes of the VMA
    /// that are not attributed yet.
    fn take_sizes(&self, left: &mut MemorySizes, piece: Span) -> MemorySizes {
        let measured = self.inspector.sizes(piece).unwrap_or_default();
        let resident = measured.resident.min(left.resident);
        let held = MemorySizes {
            reserved: piece.length().min(left.reserved),
            resident,
            swap: measured.swap.min(left.swap),
            // The kernel reports the positions neither of huge pages nor of freed pages. They are most likely in the resident
            // part.
            huge: resident.min(left.huge),
            returnable: resident.min(left.returnable),
        };
        *left = left.without(held);
        held
    }

    /// Attributes a piece outside of glibc's heap.
    fn attribute(&mut self, index: usize, piece: Span, held: MemorySizes, parts: &mut Parts) {
        let vma = &self.memory.vmas[index];
        if let Some(thread) = self.stack(index, piece) {
            let stacks = &mut parts.thread_stacks;
            stacks.held += held;
            // Guards without their own VMA (`MADV_GUARD_INSTALL`, Linux 6.13) let the kernel merge adjacent stacks into
            // one VMA. So count the stack pointers in it.
            let pointers = self.memory.threads.pointers.iter().filter(|(_, pointer)| piece.holds(*pointer));
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
        match &self.memory.provider {
            MallocProvider::Other(kind) if self.may_be_allocators(index, piece, kind) => parts.heap.held += held,
            _ if self.memory.go.is_some() && self.may_be_go_runtimes(index, piece) => self.add_go(vma, held),
            _ => self.named.add(&self.name(index, piece, vma), held),
        }
    }

    /// Adds memory of the Go runtime, or memory without a name.
    fn add_go(&mut self, vma: &Vma, held: MemorySizes) {
        if given_name(&vma.entry.path).is_some() {
            self.go.named += held;
        } else {
            self.go.unnamed.mappings += 1;
            self.go.unnamed.held += held;
        }
    }

    /// Returns true if the Go runtime may have mapped the piece outside of its arenas: writable memory without a name, or with the
    /// name of the runtime.
    fn may_be_go_runtimes(&self, index: usize, piece: Span) -> bool {
        let vma = &self.memory.vmas[index];
        vma.entry.writable
            && !vma.entry.executable
            && vma.entry.file.is_none()
            && self.variables_of(index, piece).is_none()
            && given_name(&vma.entry.path).is_none_or(|name| name.starts_with(GO_NAMES))
    }

    /// Returns `Some` if the piece is the stack of a thread. The inner option has the thread, if it
    /// is known.
    fn stack(&self, index: usize, piece: Span) -> Option<Option<Tid>> {
        let vma = &self.memory.vmas[index];
        let named = given_name(&vma.entry.path);
        let may_be = vma.entry.readable
            && vma.entry.writable
            && vma.entry.file.is_none()
            && named.is_none_or(|name| name.contains("stack"));
        may_be.then_some(())?;
        let thread = self.memory.threads.pointers.iter().find(|(_, pointer)| piece.holds(*pointer));
        let guarded = piece.start == vma.entry.start && self.guard_below(index).is_some();
        let proven = match (thread, guarded || vma.grows_down) {
            (Some(_), true) => true,
            (Some(_), false) | (None, true) => self.inspector.has_thread_block(piece),
            (None, false) => false,
        };
        proven.then(|| thread.map(|(tid, _)| *tid))
    }

    /// Returns the guard VMA directly below the VMA at `index`. C libraries put an inaccessible VMA below the stack of
    /// each thread.
    fn guard_below(&self, index: usize) -> Option<&Vma> {
        let below = self.memory.vmas.get(index.checked_sub(1)?)?;
        let is_inaccessible = !below.entry.readable && !below.entry.writable && below.entry.file.is_none();
        (is_inaccessible && below.entry.end == self.memory.vmas[index].entry.start).then_some(below)
    }

    /// Returns true if the VMA is the guard of a stack above it.
    fn is_guard(&self, index: usize) -> bool {
        let Some(above) = self.memory.vmas.get(index + 1) else { return false };
        self.guard_below(index + 1).is_some() && self.stack(index + 1, span_of(above)).is_some()
    }

    /// Returns true if the piece may belong to an allocator without readable headers: writable memory without a name,
    /// or with the allocator's name.
    fn may_be_allocators(&self, index: usize, piece: Span, allocator: &str) -> bool {
        let vma = &self.memory.vmas[index];
        vma.entry.writable
            && !vma.entry.executable
            && vma.entry.file.is_none()
            && self.variables_of(index, piece).is_none()
            && given_name(&vma.entry.path).map_or(!self.names_its_own, |name| name.contains(allocator))
    }

    /// Returns the path of the file if the piece consists of the file's `.bss` variables.
    fn variables_of(&self, index: usize, piece: Span) -> Option<&Path> {
        let below = self.memory.vmas.get(index.checked_sub(1)?)?;
        (piece.end <= self.variables_end(index)?).then_some(below.entry.path.as_path())
    }

    fn name(&self, index: usize, piece: Span, vma: &Vma) -> String {
        if let Some(name) = given_name(&vma.entry.path) {
            return name;
        }
        if let Some(path) = self.variables_of(index, piece) {
            return format!("{} (variables, .bss)", path.to_string_lossy());
        }
        if vma.entry.executable {
            return String::from("code made at run time");
        }
        if !vma.entry.readable && !vma.entry.writable {
            return String::from("reserved and not accessible");
        }
        self.no_name()
    }

    /// Returns the label that the explanation shows for writable memory without a name.
    fn no_name(&self) -> String {
        match self.memory.other_allocators.as_slice() {
            [] => String::from("without a name"),
            names => format!("without a name: {}'s, or the program's own", names.join("'s, ")),
        }
    }

    /// Returns the memory of the Go runtime, if its totals are known. Unnamed memory counts as the runtime's own up to the
    /// totals. The rest of the unnamed memory is other anonymous memory. The totals do not include the index of the heap, which
    /// has a name, is mapped as a whole, and is hardly touched.
    pub(super) fn go_sizes(&mut self) -> Option<GoSizes> {
        let totals = self.memory.go.as_ref()?.totals;
        let GoPieces { arenas, named, unnamed } = std::mem::take(&mut self.go);
        let most = Bytes(totals.outside_arenas().0.saturating_sub(named.resident.0));
        let mut own = go_parts::part_of(unnamed.held, most);
        let rest = unnamed.held.without(own);
        if rest != MemorySizes::default() {
            self.named.add_mappings(NamedMemory { name: self.no_name(), held: rest, ..unnamed });
        }
        own += named;
        Some(go_parts::divide(totals, arenas, own))
    }

    /// Returns the anonymous memory outside of the heap and the thread stacks, by name.
    pub(super) fn by_name(self) -> Vec<NamedMemory> {
        self.named.ranked()
    }
}

/// Returns true if the allocator names its mappings. jemalloc (`jemalloc_pg`) and tcmalloc
/// (`tcmalloc_region_…`) have a build option for this.
pub(super) fn names_its_own(vmas: &[Vma], allocator: &str) -> bool {
    let is_its = |vma: &Vma| {
        vma.entry.file.is_none() && given_name(&vma.entry.path).is_some_and(|name| name.contains(allocator))
    };
    vmas.iter().any(is_its)
}

/// Returns the name that a process gave its memory (`PR_SET_VMA_ANON_NAME`), shown as `[anon:NAME]`, or the path of a
/// file such as `/dev/zero`.
fn given_name(path: &Path) -> Option<String> {
    let text = path.to_string_lossy();
    match text.strip_prefix("[anon:").and_then(|name| name.strip_suffix(']')) {
        Some(name) => Some(name.to_owned()),
        None => (!text.is_empty()).then(|| text.into_owned()),
    }
}
