//! Parts of the RSS, ordered as in the chart.

use memtrace_model::{Bytes, Explanation, HeapSource, MemorySizes, plain};

/// A line of the chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) kind: PartKind,
    pub(super) name: String,
    pub(super) resident: Bytes,
    /// Sizes of the part, for the columns after the bar; `None` for a subpart.
    pub(super) beyond: Option<MemorySizes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Heap,
    HeapInUse,
    HeapFree,
    HeapUndetermined,
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
        matches!(self, Self::HeapInUse | Self::HeapFree | Self::HeapUndetermined | Self::FilesCopied | Self::FilesClean)
    }
}

/// Returns the parts and subparts. The parts and the unexplained bytes add up to the RSS.
pub(super) fn list(page: &Explanation) -> Vec<Part> {
    let mut parts = heap(page);
    let outer = |kind, name: &str, sizes: MemorySizes| Part {
        kind,
        name: name.to_owned(),
        resident: sizes.resident,
        beyond: Some(sizes),
    };
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

fn inner(kind: PartKind, name: &str, resident: Bytes) -> Part {
    Part { kind, name: name.to_owned(), resident, beyond: None }
}

fn sum(parts: impl Iterator<Item = MemorySizes>) -> MemorySizes {
    let mut sum = MemorySizes::default();
    parts.for_each(|sizes| sum += sizes);
    sum
}
