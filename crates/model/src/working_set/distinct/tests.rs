//! Tests of pages that count once.

use super::*;

const PAGE: u64 = 4096;

/// Returns a mapping with these numbers of pages, from address 0 on.
fn mapping(resident: u64, referenced: u64, least_referenced: u64) -> MeasuredMapping {
    let bytes = |pages: u64| Bytes(pages * PAGE);
    let memory = ReferencedMemory {
        resident: bytes(resident),
        referenced: bytes(referenced),
        least_referenced: bytes(least_referenced),
        ..ReferencedMemory::default()
    };
    MeasuredMapping { kind: MappingKind::Anonymous, start: AbsAddr(0), end: AbsAddr(resident * PAGE), memory }
}

/// Adds a mapping of `frames` to a process. Pages without a frame are exclusive.
fn add(process: &mut ProcessFrames, mapping: &MeasuredMapping, frames: &[Option<u64>]) {
    let mut pages = process.mapping(mapping);
    for (number, frame) in (0..).zip(frames) {
        pages.add(AbsAddr(number * PAGE), *frame);
    }
    pages.finish();
}

/// Returns a process with one mapping. Its references are known as a sum only.
fn process(referenced: u64, frames: &[Option<u64>]) -> ProcessFrames {
    let mut process = ProcessFrames::new(Bytes(PAGE), None);
    add(&mut process, &mapping(frames.len() as u64, referenced, referenced), frames);
    process
}

/// Returns a process with one mapping. Its pages with these numbers are touched.
fn process_by_page(touched: &[u64], frames: &[Option<u64>]) -> ProcessFrames {
    let mut pages = TouchedPages::new(Bytes(PAGE));
    for number in 0..frames.len() as u64 {
        let state = if touched.contains(&number) { PageState::Touched } else { PageState::Untouched };
        pages.add(AbsAddr(number * PAGE), state);
    }
    let mut process = ProcessFrames::new(Bytes(PAGE), Some(pages));
    let count = touched.len() as u64;
    add(&mut process, &mapping(frames.len() as u64, count, count), frames);
    process
}

/// Returns the numbers of resident, referenced and certainly referenced pages of processes together.
fn pages(processes: impl IntoIterator<Item = ProcessFrames>) -> [u64; 3] {
    let mut frames = DistinctFrames::new(Bytes(PAGE));
    processes.into_iter().for_each(|process| frames.add(process));
    let memory = frames.memory();
    assert_eq!(memory.total(), memory.of_kind(MappingKind::Anonymous));
    let DistinctPages { resident, referenced, least_referenced } = memory.total();
    [resident, referenced, least_referenced].map(|bytes| bytes.0 / PAGE)
}

fn frames(numbers: std::ops::Range<u64>) -> Vec<Option<u64>> {
    numbers.map(Some).collect()
}

#[test]
fn pages_of_idle_children_count_once() {
    let parent = process(100, &frames(0..100));
    let children = (0..20).map(|_| process(0, &frames(0..100)));
    assert_eq!(pages(children.chain([parent])), [100, 100, 100]);
}

#[test]
fn references_to_shared_pages_have_two_bounds() {
    // Each process has referenced 30 of the same 100 pages. These can be the same 30 pages or different pages.
    assert_eq!(pages([process(30, &frames(0..100)), process(30, &frames(0..100))]), [100, 60, 30]);
    assert_eq!(pages([process(70, &frames(0..100)), process(60, &frames(0..100))]), [100, 100, 70]);
}

#[test]
fn references_to_exclusive_pages_add_up() {
    let with_exclusive = |referenced| {
        let frames: Vec<_> = frames(0..10).into_iter().chain([None; 10]).collect();
        process(referenced, &frames)
    };
    assert_eq!(pages([with_exclusive(20), with_exclusive(20)]), [30, 30, 30]);
    // At least four referenced pages of each process are exclusive. The other ten may be the same pages.
    assert_eq!(pages([with_exclusive(14), with_exclusive(14)]), [30, 28, 18]);
    assert_eq!(pages([with_exclusive(5), with_exclusive(0)]), [30, 5, 5]);
}

#[test]
fn single_pages_that_both_processes_touch_count_once() {
    let one = process_by_page(&[0, 1, 4], &[Some(7), Some(8), Some(9), None, None]);
    let other = process_by_page(&[0, 1], &[Some(8), Some(9), Some(7)]);
    // The frames 7, 8 and 9 and an exclusive page are touched. The lower bound has only two of the frames.
    assert_eq!(pages([one, other]), [5, 4, 3]);
}

#[test]
fn pages_without_certain_references_are_no_lower_bound() {
    let mut touched = TouchedPages::new(Bytes(PAGE));
    touched.add(AbsAddr(0), PageState::Touched);
    touched.add(AbsAddr(PAGE), PageState::Touched);
    let mut process = ProcessFrames::new(Bytes(PAGE), Some(touched));
    add(&mut process, &mapping(2, 2, 0), &[Some(7), None]);
    assert_eq!(pages([process]), [2, 2, 0]);
}

#[test]
fn pages_that_a_process_has_mapped_twice_count_once() {
    let mut twice = ProcessFrames::new(Bytes(PAGE), None);
    (0..2).for_each(|_| add(&mut twice, &mapping(10, 10, 10), &frames(0..10)));
    assert_eq!(pages([twice]), [10, 10, 10]);
    let mut different = ProcessFrames::new(Bytes(PAGE), None);
    (0..2).for_each(|_| add(&mut different, &mapping(10, 4, 4), &frames(0..10)));
    // Eight references minus ten pages that are mapped twice are less than zero, so the lower bound is zero.
    assert_eq!(pages([different]), [10, 8, 0]);
}

#[test]
fn mappings_without_shared_pages_need_no_frames() {
    let mut process = ProcessFrames::new(Bytes(PAGE), None);
    process.add_exclusive(&mapping(10, 8, 4));
    process.add_exclusive(&MeasuredMapping { kind: MappingKind::File, ..mapping(3, 2, 1) });
    let mut frames = DistinctFrames::new(Bytes(PAGE));
    frames.add(process);
    let memory = frames.memory();
    let bytes = |resident: u64, referenced: u64, least: u64| DistinctPages {
        resident: Bytes(resident * PAGE),
        referenced: Bytes(referenced * PAGE),
        least_referenced: Bytes(least * PAGE),
    };
    assert_eq!(memory.kinds, [(MappingKind::Anonymous, bytes(10, 8, 4)), (MappingKind::File, bytes(3, 2, 1))]);
    assert_eq!(memory.total(), bytes(13, 10, 5));
    assert_eq!(memory.of_kind(MappingKind::Heap), DistinctPages::default());
}
