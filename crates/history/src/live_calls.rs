//! Names of a few calls during a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use memtrace_model::{FileOffset, FileState, Frame, Names, Object, PathObject};
use rustc_hash::FxHashMap;

use super::live_paths::LiveCall;

/// Returns the frames of each stack, innermost first. The calls of a stack must also be in this order.
#[must_use]
pub fn frames_of_calls(stacks: &[Vec<LiveCall>], names: &dyn Names) -> Vec<Vec<Frame>> {
    let path_object = |object: &Arc<Object>| {
        let file = if object.handle.is_some() { FileState::Kept } else { FileState::Closed };
        PathObject { object: Arc::clone(object), file }
    };
    let mut by_object: FxHashMap<PathObject, BTreeMap<FileOffset, Box<[Frame]>>> = FxHashMap::default();
    for call in stacks.iter().flatten() {
        if let LiveCall::InObject(object, offset) = call {
            by_object.entry(path_object(object)).or_default().insert(*offset, Box::default());
        }
    }
    for (object, frames) in &mut by_object {
        let offsets: Vec<_> = frames.keys().copied().collect();
        frames.values_mut().zip(names.frames(object, &offsets)).for_each(|(frames, found)| *frames = found);
    }
    let frames_of = |call: &LiveCall| match call {
        LiveCall::InObject(object, offset) => {
            let frames = by_object.get(&path_object(object)).and_then(|frames| frames.get(offset));
            frames.map(|frames| frames.to_vec()).unwrap_or_default()
        }
        LiveCall::Named(frame) => vec![frame.clone()],
    };
    let frames_of_stack =
        |stack: &Vec<LiveCall>| stack.iter().flat_map(|call| frames_of(call).into_iter().rev()).collect();
    stacks.iter().map(frames_of_stack).collect()
}
