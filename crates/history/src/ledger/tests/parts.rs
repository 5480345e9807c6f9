//! Parts by thread or allocator.

use super::*;

#[test]
fn blocks_count_for_the_allocating_thread() {
    let alloc = |address| EventKind::Alloc {
        address: AbsAddr(address),
        size: Bytes(10),
        stack: S,
        allocator: AllocatorId::UNKNOWN,
        tag: TagId::UNTAGGED,
    };
    let image_by = |parts| {
        let story = Story::with(Settings { parts, ..WIDE });
        let story = story.event(PID, T1, 0, alloc(A)).event(PID, T2, 0, alloc(B));
        story.event(PID, T2, 0, EventKind::Free { address: AbsAddr(A), is_last: false }).image(0)
    };
    let image = image_by(PartKeys::THREAD);
    let usage_of = |tid| image.by_stack[&StackKey { stack: S, part: Part::WHOLE.with_thread(tid) }];
    assert_eq!(usage_of(T1), usage((0, 0), (10, 1), (10, 1)));
    assert_eq!(usage_of(T2), usage((10, 1), (10, 1), (0, 0)));
    assert_eq!(image.by_stack.len(), 2);
    let whole = image_by(PartKeys::NONE);
    assert_eq!(whole.by_stack.keys().collect::<Vec<_>>(), [&S.into()]);
    assert_eq!(whole.total, image.total);
}

#[test]
fn blocks_count_for_their_allocator() {
    let alloc = |address, number| EventKind::Alloc {
        address: AbsAddr(address),
        size: Bytes(10),
        stack: S,
        allocator: AllocatorId(number),
        tag: TagId::UNTAGGED,
    };
    let story = Story::with(Settings { parts: PartKeys::ALLOCATOR, ..WIDE });
    let story = story.event(PID, T1, 0, alloc(A, 1)).event(PID, T2, 0, alloc(B, 1)).event(PID, T1, 0, alloc(B, 0));
    let image = story.image(0);
    let usage_of =
        |number| image.by_stack[&StackKey { stack: S, part: Part::WHOLE.with_allocator(AllocatorId(number)) }];
    assert_eq!(usage_of(1), usage((10, 1), (20, 2), (10, 1)));
    assert_eq!(usage_of(0), usage((10, 1), (10, 1), (0, 0)));
}
