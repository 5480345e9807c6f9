//! Parts of the RSS, ordered as in the chart.

use memtrace_model::{Bytes, Explanation, GoMemory, GoSizes, GoSource, HeapSource, MemorySizes, plain};

/// A line of the chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) kind: PartKind,
    pub(super) name: String,
    pub(super) resident: Bytes,
    /// Sizes of the part, for the columns after the bar; `None` for a subpart whose sizes are not known.
    pub(super) beyond: Option<MemorySizes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Heap,
    HeapInUse,
    HeapFree,
    HeapUndetermined,
    GoHeap,
    GoObjects,
    GoFreeInSpans,
    GoIdle,
    GoReleased,
    GoStacks,
    GoOwn,
    Anonymous,
    MainStack,
    ThreadStacks,
    Files,
    FilesCopied,
    FilesClean,
    Shmem,
    Special,
}

impl PartKind {
    /// Returns true for a subpart: a portion of the part in a line above.
    pub(super) const fn is_inner(self) -> bool {
        matches!(
            self,
            Self::HeapInUse
                | Self::HeapFree
                | Self::HeapUndetermined
                | Self::GoObjects
                | Self::GoFreeInSpans
                | Self::GoIdle
                | Self::GoReleased
                | Self::FilesCopied
                | Self::FilesClean
        )
    }

    /// Returns true for a part that consists of its subparts.
    pub(super) const fn has_subparts(self) -> bool {
        matches!(self, Self::Heap | Self::GoHeap | Self::Files)
    }
}

/// Returns the parts and subparts. The parts and the unexplained bytes add up to the RSS.
pub(super) fn list(page: &Explanation) -> Vec<Part> {
    let go = go_sizes(page);
    // A Go program without C code has only the heap of Go.
    let has_heap = page.heap.allocator.is_some() || page.heap.held != MemorySizes::default();
    let mut parts = if has_heap || go.is_none() { heap(page) } else { Vec::new() };
    parts.extend(go.into_iter().flat_map(go_parts));
    parts.push(outer(
        PartKind::Anonymous,
        "other anonymous memory",
        sum(page.anonymous.iter().map(|named| named.held)),
    ));
    parts.push(outer(PartKind::MainStack, "main thread's stack", page.main_stack));
    if page.thread_stacks.stacks > 0 {
        let name = format!("other threads' stacks ({})", page.thread_stacks.stacks);
        parts.push(outer(PartKind::ThreadStacks, &name, page.thread_stacks.held));
    }
    let files = sum(page.files.iter().map(|file| file.held));
    let copied = Bytes(page.files.iter().map(|file| file.copied.0).sum());
    parts.push(outer(PartKind::Files, "files", files));
    parts.push(inner(PartKind::FilesCopied, "own copies of written pages", copied));
    parts.push(inner(PartKind::FilesClean, "as they are on disk", Bytes(files.resident.0.saturating_sub(copied.0))));
    parts.push(outer(PartKind::Shmem, "shared memory", sum(page.shmem.iter().map(|named| named.held))));
    parts.push(outer(PartKind::Special, "kernel (vdso) and devices", page.special));
    parts
}

/// Returns the sizes of the memory of Go's runtime, if they are known.
pub(super) fn go_sizes(page: &Explanation) -> Option<&GoSizes> {
    match page.go.as_ref() {
        Some(GoMemory { source: GoSource::Known(sizes), .. }) => Some(sizes),
        _ => None,
    }
}

/// Returns the share of `bytes` in the RSS or in another size; 0 if that size is 0.
pub(super) fn share(bytes: Bytes, rss: Bytes) -> f64 {
    if rss.0 == 0 { 0.0 } else { bytes.0 as f64 / rss.0 as f64 }
}

fn heap(page: &Explanation) -> Vec<Part> {
    let sizes = page.heap.held;
    let name = page
        .heap
        .allocator
        .as_ref()
        .map_or_else(|| String::from("heap (brk)"), |name| format!("heap of {}", plain(name)));
    let mut parts = vec![Part { kind: PartKind::Heap, name, resident: sizes.resident, beyond: Some(sizes) }];
    if let HeapSource::Known(stats) = &page.heap.source {
        let in_use = stats.in_use_resident.0.min(sizes.resident.0);
        let undetermined = stats.undetermined.0.min(sizes.resident.0 - in_use);
        parts.push(inner(PartKind::HeapInUse, "in use", Bytes(in_use)));
        parts.push(inner(
            PartKind::HeapFree,
            "free, kept by the allocator",
            Bytes(sizes.resident.0 - in_use - undetermined),
        ));
        if undetermined > 0 {
            parts.push(inner(PartKind::HeapUndetermined, "in use or free: unknown", Bytes(undetermined)));
        }
    } else if sizes.resident.0 > 0 {
        parts.push(inner(PartKind::HeapUndetermined, "in use or free: unknown", sizes.resident));
    }
    parts
}

/// Returns the parts of a Go program. The resident bytes of spans are assigned to objects first, and then to the free memory
/// in the spans, so only the sum of both parts is exact.
fn go_parts(sizes: &GoSizes) -> Vec<Part> {
    let totals = &sizes.totals;
    let objects = totals.objects.min(sizes.in_use_resident);
    let free = Bytes(sizes.in_use_resident.0 - objects.0);
    let released = Bytes(sizes.heap.resident.0.saturating_sub(sizes.in_use_resident.0 + sizes.idle_resident.0));
    let part = |kind, name: &str, resident, reserved, returnable| {
        let sizes = MemorySizes { reserved, resident, returnable, ..MemorySizes::default() };
        Part { beyond: Some(sizes), ..inner(kind, name, resident) }
    };
    // Released memory is still resident if it was freed with `MADV_FREE`, or if the kernel has made it a huge page.
    let freed = Bytes(sizes.heap.returnable.0.saturating_sub(sizes.idle_resident.0)).min(released);
    vec![
        outer(PartKind::GoHeap, "heap of Go", sizes.heap),
        part(PartKind::GoObjects, "in use", objects, totals.objects, Bytes(0)),
        part(PartKind::GoFreeInSpans, "free in spans", free, totals.free_in_spans(), Bytes(0)),
        part(PartKind::GoIdle, "idle", sizes.idle_resident, totals.idle, sizes.idle_resident),
        part(PartKind::GoReleased, "released", released, totals.released, freed),
        outer(PartKind::GoStacks, "stacks of goroutines", sizes.stacks),
        outer(PartKind::GoOwn, "Go runtime's own", sizes.own),
    ]
}

fn outer(kind: PartKind, name: &str, sizes: MemorySizes) -> Part {
    Part { kind, name: name.to_owned(), resident: sizes.resident, beyond: Some(sizes) }
}

fn inner(kind: PartKind, name: &str, resident: Bytes) -> Part {
    Part { kind, name: name.to_owned(), resident, beyond: None }
}

fn sum(parts: impl Iterator<Item = MemorySizes>) -> MemorySizes {
    let mut sum = MemorySizes::default();
    parts.for_each(|sizes| sum += sizes);
    sum
}
