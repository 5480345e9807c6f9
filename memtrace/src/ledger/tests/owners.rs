//! Owners of images.

use super::*;
use crate::model::{CgroupId, Owner};

fn owner(uid: u32) -> Owner {
    Owner { uid, cgroups: [CgroupId::of(u64::from(uid) + 1), None, None] }
}

fn owned_by(story: Story, uid: u32) -> Story {
    story.event(PID, T1, 0, EventKind::Owner(Box::new(owner(uid))))
}

#[test]
fn each_image_has_the_owner_at_its_end() {
    let story = owned_by(Story::new().alloc(A, 10, S), 1).event(PID, T1, 1, EventKind::Exec);
    let story = owned_by(story.alloc(A, 20, S), 2).event(PID, T1, 2, EventKind::Exit).alloc(A, 30, S);
    let images = story.0.finish(EventClass::Heap, NOW).images.into_values();
    assert_eq!(images.map(|usage| usage.owner).collect::<Vec<_>>(), [Some(owner(1)), Some(owner(2)), None]);
}

#[test]
fn owners_alone_make_no_image() {
    let story = owned_by(Story::new(), 1).event(PID, T1, 1, EventKind::Exit);
    assert_eq!(story.0.finish(EventClass::Heap, NOW).images.len(), 0);
}
