//! Names of a few calls during a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Symbolizer;
use super::call_paths::PathObject;
use super::live_paths::LiveCall;
use crate::model::{FileOffset, Frame, Object, Unnamed};

impl Symbolizer {
    /// Returns the frames of each stack. The innermost call of a stack is the first, and so is its innermost frame.
    #[must_use]
    pub fn frames_of_calls(&self, stacks: &[Vec<LiveCall>]) -> Vec<Vec<Frame>> {
        let known = |object: &Arc<Object>| PathObject {
            object: Arc::clone(object),
            is_closed: object.handle.is_none(),
            is_recorded: false,
        };
        let mut by_object: FxHashMap<PathObject, BTreeMap<FileOffset, Box<[Frame]>>> = FxHashMap::default();
        for call in stacks.iter().flatten() {
            if let LiveCall::InObject(object, offset) = call {
                by_object.entry(known(object)).or_default().insert(*offset, Box::default());
            }
        }
        for (object, frames) in &mut by_object {
            let offsets = frames.keys().copied().collect();
            let named = self.with_file(object, |object| self.frames_of(object, offsets, Unnamed::ObjectUnreadable));
            frames.extend(named);
        }
        let frames_of = |call: &LiveCall| match call {
            LiveCall::InObject(object, offset) => {
                let frames = by_object.get(&known(object)).and_then(|frames| frames.get(offset));
                frames.map(|frames| frames.to_vec()).unwrap_or_default()
            }
            LiveCall::Named(frame) => vec![frame.clone()],
        };
        let frames_of_stack =
            |stack: &Vec<LiveCall>| stack.iter().flat_map(|call| frames_of(call).into_iter().rev()).collect();
        stacks.iter().map(frames_of_stack).collect()
    }
}
