//! Tentative frees.

use super::*;

#[test]
fn a_tentative_free_is_a_free_until_undone() {
    let story = Story::new().alloc(A, 10, S).free_tentatively(T1, A);
    assert_eq!(story.total(), usage((0, 0), (10, 1), (10, 1)));
    let story = story.undo_free(T1, A);
    assert_eq!(story.total(), usage((10, 1), (10, 1), (0, 0)));
    let story = story.undo_free(T1, A).free(A);
    assert_eq!(story.total(), usage((0, 0), (10, 1), (10, 1)));
    assert_eq!(story.image(0).unmatched_frees, 0);
}

#[test]
fn a_tentative_free_of_an_unknown_block_is_unmatched() {
    let story = Story::new().alloc(B, 1, S).free_tentatively(T1, A);
    assert_eq!(story.image(0).unmatched_frees, 1);
    let story = story.undo_free(T1, A);
    assert_eq!(story.image(0).unmatched_frees, 0);
    assert_eq!(story.total(), usage((1, 1), (1, 1), (0, 0)));
}

#[test]
fn an_undo_without_its_tentative_free_has_no_effect() {
    let story = Story::new().alloc(A, 10, S).alloc(B, 20, S).free_tentatively(T1, A);
    let before = story.0.snapshot(EventClass::Heap, NOW);
    let story =
        story.undo_free(T2, A).undo_free(T1, B).event(Pid(9), T1, 0, EventKind::UndoFree { address: AbsAddr(A) });
    assert_eq!(story.0.snapshot(EventClass::Heap, NOW), before);
    assert_eq!(story.undo_free(T1, A).total().live(), Amount { bytes: Bytes(30), count: 2 });
}

#[test]
fn a_second_tentative_free_makes_the_first_final() {
    let story =
        Story::new().alloc(A, 10, S).alloc(B, 20, S).free_tentatively(T1, A).free_tentatively(T1, B).undo_free(T1, A);
    assert_eq!(story.total().live(), Amount::default());
    assert_eq!(story.undo_free(T1, B).total().live(), Amount::one(Bytes(20)));
}

#[test]
fn only_the_latest_unmatched_tentative_free_is_undone() {
    let story = Story::new().alloc(A, 10, S).free_tentatively(T1, A).free_tentatively(T1, A).free_tentatively(T2, A);
    assert_eq!(story.image(0).unmatched_frees, 2);
    let story = story.undo_free(T1, A).undo_free(T1, A);
    assert_eq!(story.image(0).unmatched_frees, 1);
    // The first tentative free removed the block.
    assert_eq!(story.total(), usage((0, 0), (10, 1), (10, 1)));
}

#[test]
fn a_block_that_grew_in_place_can_be_reallocated_again() {
    let story =
        Story::new().alloc(A, 10, S).free_tentatively(T1, A).alloc(A, 20, S).free_tentatively(T1, A).undo_free(T1, A);
    assert_eq!(story.total(), usage((20, 1), (30, 2), (10, 1)));
    assert_eq!(story.lost(LossReason::FreeUnseen), 0);
}

#[test]
fn a_tentative_free_is_final_once_the_address_is_reused() {
    let story = Story::new().alloc(A, 10, S).free_tentatively(T1, A).alloc(A, 20, R).undo_free(T1, A);
    assert_eq!(story.total(), usage((20, 1), (30, 2), (10, 1)));
    assert_eq!(story.lost(LossReason::FreeUnseen), 0);
    // The tentative free cannot be undone, even after the address is free again.
    assert_eq!(story.free(A).undo_free(T1, A).total().live(), Amount::default());
}

#[test]
fn a_tentative_free_cannot_be_undone_after_exec() {
    let story = Story::new().alloc(A, 10, S).free_tentatively(T1, A).exec().alloc(B, 1, S).undo_free(T1, A);
    assert_eq!(story.image(1).total, usage((1, 1), (1, 1), (0, 0)));
}
