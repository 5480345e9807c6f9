//! Call stacks of the waits of threads.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use memtrace_history::{LiveCall, LivePaths};
use memtrace_host::target_files::TargetFiles;
use memtrace_model::{ImageId, Node, Object, Pid, Stack, StackId, Stacks};
use memtrace_object::symbolize::ImageCode;
use rustc_hash::FxHashMap;

use crate::targets::track::{ProcessTracker, generated_code};
use crate::trace::stack_copies::FindCopy;

/// Maximum number of call paths of waits.
const MAX_PATHS: usize = 1 << 16;

/// Maximum number of stacks with known call paths. Beyond it, the call paths of all stacks are forgotten. The BPF
/// programs send the frames of a stack again after its id was evicted from their map of sent stacks.
const MAX_KNOWN: usize = 1 << 16;

/// Maximum size of the names of generated code in the stacks of waits, in bytes.
const MAX_NAME_BYTES: usize = 1 << 20;

/// Maximum number of frames of a wait in reports.
const MAX_FRAMES: usize = 32;

/// Call stacks of the waits of threads.
pub(super) struct WaitStacks {
    paths: LivePaths,
    /// Frames of stacks that have arrived and are not converted yet, by process.
    frames: BTreeMap<Pid, Stacks>,
    /// Calls of each stack, the innermost first, by the number of the stack in the activity.
    calls: BTreeMap<u32, Vec<LiveCall>>,
    /// Call paths of known stacks.
    known: FxHashMap<StackId, Node>,
    /// Stacks of spans that have no calls yet: number in the activity, process and stack id.
    waiting: Vec<(u32, Pid, StackId)>,
}

impl WaitStacks {
    pub(super) fn new() -> Self {
        Self {
            paths: LivePaths::new(MAX_PATHS, MAX_NAME_BYTES),
            frames: BTreeMap::new(),
            calls: BTreeMap::new(),
            known: FxHashMap::default(),
            waiting: Vec::new(),
        }
    }

    /// Adds the frames of a stack.
    pub(super) fn insert(&mut self, pid: Pid, id: StackId, stack: &Stack) {
        self.frames.entry(pid).or_default().insert(id, stack);
    }

    /// Converts the frames that have arrived, and returns them by image. `new`: stacks of new spans.
    pub(super) fn convert(
        &mut self,
        new: &[(u32, Pid, StackId)],
        tracker: &mut ProcessTracker,
        find_copy: &FindCopy<'_>,
    ) -> BTreeMap<ImageId, Stacks> {
        self.waiting.extend_from_slice(new);
        // The frames of a stack that user space finishes arrive later.
        for &(_, pid, id) in &self.waiting {
            if !self.known.contains_key(&id)
                && let Some((_, Some(stack))) = find_copy(pid, id)
            {
                self.frames.entry(pid).or_default().insert(id, &stack);
            }
        }
        let mut frames = BTreeMap::new();
        for (pid, stacks) in std::mem::take(&mut self.frames) {
            let id = tracker.latest_id(pid);
            let generated = generated_code::of_image(tracker, id);
            let Some(image) = tracker.images().get(&id) else { continue };
            let mut code = ImageCode::new(image, generated.as_ref(), &TargetFiles);
            let converted = self.paths.convert(image, &stacks, &mut code);
            self.known.extend(converted.into_iter().map(|(stack, path, _)| (stack, path)));
            frames.insert(id, stacks);
        }
        let Self { waiting, known, calls, paths, .. } = self;
        waiting.retain(|(number, _, id)| match known.get(id) {
            Some(&path) => {
                calls.insert(*number, paths.calls(path).take(MAX_FRAMES).collect());
                false
            }
            None => true,
        });
        if self.known.len() > MAX_KNOWN {
            self.known.clear();
        }
        frames
    }

    /// Returns the objects of the stacks, each with one reference.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.paths.objects()
    }

    /// Forgets the handles of files that were closed.
    pub(super) fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        self.paths.forget_files(closed);
    }

    /// Returns the numbers of the stacks, and their calls.
    pub(super) fn into_calls(self) -> (Vec<u32>, Vec<Vec<LiveCall>>) {
        self.calls.into_iter().unzip()
    }
}
