//! Owners of images.

use memtrace_model::{CgroupId, Owner};

use super::*;

fn owner(uid: u32) -> Owner {
    Owner { uid, real_uid: uid, cgroups: [CgroupId::of(u64::from(uid) + 1), None, None] }
}

fn owned_by(story: Story, uid: u32) -> Story {
    story.event(PID, T1, 0, EventKind::Owner(Box::new(owner(uid))))
}

fn owners(story: Story) -> Vec<(u32, Owner)> {
    story.0.finish(EventClass::Heap, NOW).owners.into_iter().map(|(id, owner)| (id.ordinal, owner)).collect()
}

#[test]
fn each_image_has_the_owner_at_its_end() {
    let story = owned_by(Story::new().alloc(A, 10, S), 1).event(PID, T1, 1, EventKind::Exec);
    let story = owned_by(story.alloc(A, 20, S), 2).event(PID, T1, 2, EventKind::Exit).alloc(A, 30, S);
    assert_eq!(owners(story), [(0, owner(1)), (1, owner(2))]);
}

#[test]
fn process_without_events_has_an_owner_and_no_image() {
    let story = owned_by(Story::new(), 1).event(PID, T1, 1, EventKind::Exec);
    let story = owned_by(story, 2).event(PID, T1, 2, EventKind::Exit);
    assert_eq!(story.0.snapshot(EventClass::Heap, NOW).images.len(), 0);
    assert_eq!(owners(story), [(1, owner(2))]);
}
