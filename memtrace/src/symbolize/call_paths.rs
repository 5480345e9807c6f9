//! Calls of all stacks as locations in objects: each location once, and each common path of stacks once. Pure.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::call_address::CallAddress;
use super::generated_code::{GeneratedFrame, GeneratedNames, NameId};
use crate::model::{
    AbsAddr, FileOffset, ImageId, Node, Object, ProcessImage, Snapshot, StackEnd, StackId, Stacks, Tree, Unnamed,
};

/// Index of a distinct call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CallId(u32);

/// Location of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CallLocation {
    /// Offset in the file of the object with this index.
    InObject(u32, FileOffset),
    /// Code that was generated at run time, in the function with this name.
    Generated(NameId),
    /// Address outside of all files.
    OutsideObjects(AbsAddr, Unnamed),
}

/// Indices of the calls at each offset of an object.
pub(super) type CallsByOffset = BTreeMap<FileOffset, Vec<usize>>;

/// A call in stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Call {
    location: CallLocation,
    /// The frame was found by frame pointer.
    by_frame_pointer: bool,
}

/// Distinct calls in the stacks of a snapshot, and the stacks as paths of calls.
#[derive(Debug, Default)]
pub(super) struct CallPaths<'a> {
    objects: FxHashMap<&'a Arc<Object>, u32>,
    calls: FxHashMap<Call, CallId>,
    /// Root first. Processes of the same program share paths, independently of load addresses.
    tree: Tree<CallId>,
    stacks: Vec<(Node, StackEnd)>,
}

impl<'a> CallPaths<'a> {
    /// Collects the calls of all stacks of `snapshot`. `images` has the mappings.
    pub(super) fn new(
        snapshot: &Snapshot,
        images: &'a BTreeMap<ImageId, ProcessImage>,
        generated: &mut GeneratedNames<'_>,
    ) -> Self {
        static UNKNOWN: LazyLock<ProcessImage> = LazyLock::new(ProcessImage::default);
        let mut paths = Self::default();
        for (id, usage) in &snapshot.images {
            let image = images.get(id).unwrap_or(&UNKNOWN);
            let depends_on_time = !image.replaced.is_empty() || generated.depends_on_time(*id);
            let is_uncertain = generated.is_uncertain(*id, image);
            let (stacks, paths_of_calls) = (&snapshot.stacks, FxHashMap::default());
            let mut walk =
                Walk { id: *id, image, stacks, generated, paths: paths_of_calls, depends_on_time, is_uncertain };
            for key in usage.by_stack.keys() {
                let (node, is_cut) = walk.path(key.stack, &mut paths);
                let end = if is_cut { StackEnd::GeneratedCut } else { snapshot.end_of(key.stack) };
                paths.stacks.push((node, end));
            }
        }
        paths
    }

    /// Returns the path and the end of each stack, in the order of the snapshot.
    pub(super) fn stacks(&self) -> &[(Node, StackEnd)] {
        &self.stacks
    }

    /// Returns the indices of a path's calls, root first.
    pub(super) fn calls(&self, stack: Node) -> Vec<usize> {
        let mut calls: Vec<_> = self.tree.to_root(stack).map(|call| call.0 as usize).collect();
        calls.reverse();
        calls
    }

    /// Returns the number of distinct calls.
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns the calls in objects, by object, each with its indices.
    pub(super) fn in_objects(&self) -> Vec<(&'a Arc<Object>, CallsByOffset)> {
        let mut by_object: BTreeMap<u32, CallsByOffset> = BTreeMap::new();
        for (call, id) in &self.calls {
            if let CallLocation::InObject(object, offset) = call.location {
                by_object.entry(object).or_default().entry(offset).or_default().push(id.0 as usize);
            }
        }
        let mut objects: Vec<_> = self.objects.iter().map(|(&object, &index)| (index, object)).collect();
        objects.sort_unstable_by_key(|&(index, _)| index);
        objects.into_iter().map(|(index, object)| (object, by_object.remove(&index).unwrap_or_default())).collect()
    }

    /// Returns the calls outside of all files, each with its index.
    pub(super) fn outside_objects(&self) -> impl Iterator<Item = (AbsAddr, Unnamed, usize)> + '_ {
        self.calls.iter().filter_map(|(call, id)| match call.location {
            CallLocation::OutsideObjects(address, reason) => Some((address, reason, id.0 as usize)),
            CallLocation::InObject(..) | CallLocation::Generated(_) => None,
        })
    }

    /// Returns the calls in generated code with a name, each with its index.
    pub(super) fn generated(&self) -> impl Iterator<Item = (NameId, usize)> + '_ {
        self.calls.iter().filter_map(|(call, id)| match call.location {
            CallLocation::Generated(name) => Some((name, id.0 as usize)),
            CallLocation::InObject(..) | CallLocation::OutsideObjects(..) => None,
        })
    }

    /// Returns the indices of the calls with frames that were found by frame pointer.
    pub(super) fn by_frame_pointer(&self) -> impl Iterator<Item = usize> + '_ {
        self.calls.iter().filter(|(call, _)| call.by_frame_pointer).map(|(_, id)| id.0 as usize)
    }

    /// Returns the offset of a call in an object.
    fn in_object(&mut self, object: &'a Arc<Object>, offset: FileOffset) -> CallLocation {
        // The number is far below 2^32.
        let next = self.objects.len() as u32;
        CallLocation::InObject(*self.objects.entry(object).or_insert(next), offset)
    }

    /// Returns the index of a call.
    fn number(&mut self, call: Call) -> CallId {
        let next = CallId(self.calls.len() as u32);
        *self.calls.entry(call).or_insert(next)
    }
}

/// Walk through the stacks of one image.
struct Walk<'a, 's, 'g> {
    id: ImageId,
    image: &'a ProcessImage,
    stacks: &'s Stacks,
    generated: &'s mut GeneratedNames<'g>,
    /// Path of each visited call. Empty if a call's location depends on more than its callers.
    paths: FxHashMap<Node, Node>,
    /// Mappings were replaced, or names have times: a call's location depends on the time of its stack.
    depends_on_time: bool,
    /// Callers of generated code may be wrong.
    is_uncertain: bool,
}

impl<'a> Walk<'a, '_, '_> {
    /// Returns the path of a stack, the root if it has no frames; and true if callers were left out as uncertain.
    fn path(&mut self, stack: StackId, paths: &mut CallPaths<'a>) -> (Node, bool) {
        let Some((leaf, _, taken)) = self.stacks.find(stack) else { return (Node::ROOT, false) };
        if self.is_uncertain {
            return self.certain_path(leaf, taken, paths);
        }
        let (mut call, mut path, mut open) = (leaf, Node::ROOT, Vec::new());
        while let Some((caller, frame)) = self.stacks.calls().get(call) {
            if let Some(&visited) = self.paths.get(&call) {
                path = visited;
                break;
            }
            open.push((call, frame));
            call = caller;
        }
        for (call, frame) in open.into_iter().rev() {
            let (located, _) = self.locate(frame, taken, paths);
            path = push(paths, path, located);
            if !self.depends_on_time {
                self.paths.insert(call, path);
            }
        }
        (path, false)
    }

    /// Returns the path up to the first caller that was found by frame pointer from code that may keep none.
    fn certain_path(&mut self, leaf: Node, taken: Duration, paths: &mut CallPaths<'a>) -> (Node, bool) {
        let (mut call, mut certain, mut finds_caller) = (leaf, Vec::new(), true);
        let mut is_cut = false;
        while let Some((caller, frame)) = self.stacks.calls().get(call) {
            let (located, finds_next) = self.locate(frame, taken, paths);
            if !finds_caller && located.by_frame_pointer {
                self.generated.count_cut(self.id);
                is_cut = true;
                break;
            }
            finds_caller = finds_next;
            certain.push(located);
            call = caller;
        }
        let path = certain.into_iter().rev().fold(Node::ROOT, |path, located| push(paths, path, located));
        (path, is_cut)
    }

    /// Returns a call, and false if its caller is uncertain.
    fn locate(&mut self, frame: AbsAddr, taken: Duration, paths: &mut CallPaths<'a>) -> (Call, bool) {
        let call = CallAddress::new(self.image, frame, taken);
        let mut finds_caller = true;
        let location = match call.mapping(self.image) {
            None => CallLocation::OutsideObjects(call.address, Unnamed::NoMapping),
            Some(mapping) => match &mapping.object {
                None => {
                    let GeneratedFrame { name, finds_caller: finds } =
                        self.generated.find(self.id, self.image, call.address, taken);
                    finds_caller = finds;
                    match name {
                        Ok(name) => CallLocation::Generated(name),
                        Err(reason) => CallLocation::OutsideObjects(call.address, reason),
                    }
                }
                Some(object) => {
                    let offset = mapping.offset.0.wrapping_add(call.address.0 - mapping.start.0);
                    paths.in_object(object, FileOffset(offset))
                }
            },
        };
        (Call { location, by_frame_pointer: call.by_frame_pointer }, finds_caller)
    }
}

/// Returns the path of a call with the path of its callers.
fn push(paths: &mut CallPaths<'_>, callers: Node, call: Call) -> Node {
    let id = paths.number(call);
    // The tree is never full: it has no more nodes than that of the stacks, or one for each frame of a cut stack.
    paths.tree.push(callers, id).unwrap_or(callers)
}
