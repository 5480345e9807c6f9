//! Calls of all stacks as locations in objects: each location once, and each common path of stacks once. Pure.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use rustc_hash::FxHashMap;

use super::call_address::CallAddress;
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
    /// Address outside of all files.
    OutsideObjects(AbsAddr, Unnamed),
}

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
    pub(super) fn new(snapshot: &Snapshot, images: &'a BTreeMap<ImageId, ProcessImage>) -> Self {
        static UNKNOWN: LazyLock<ProcessImage> = LazyLock::new(ProcessImage::default);
        let mut paths = Self::default();
        for (id, usage) in &snapshot.images {
            let mut walk = Walk {
                image: images.get(id).unwrap_or(&UNKNOWN),
                stacks: &snapshot.stacks,
                paths: FxHashMap::default(),
            };
            for key in usage.by_stack.keys() {
                let node = walk.path(key.stack, &mut paths);
                paths.stacks.push((node, snapshot.end_of(key.stack)));
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
    pub(super) fn in_objects(&self) -> Vec<(&'a Arc<Object>, BTreeMap<FileOffset, Vec<usize>>)> {
        let mut by_object: BTreeMap<u32, BTreeMap<FileOffset, Vec<usize>>> = BTreeMap::new();
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
            CallLocation::InObject(..) => None,
        })
    }

    /// Returns the indices of the calls whose frames were found by frame pointer.
    pub(super) fn by_frame_pointer(&self) -> impl Iterator<Item = usize> + '_ {
        self.calls.iter().filter(|(call, _)| call.by_frame_pointer).map(|(_, id)| id.0 as usize)
    }

    /// Returns the index of a call in `image`.
    fn add(&mut self, image: &'a ProcessImage, call: CallAddress) -> CallId {
        let location = match call.mapping(image) {
            None => CallLocation::OutsideObjects(call.address, Unnamed::NoMapping),
            Some(mapping) => match &mapping.object {
                None => CallLocation::OutsideObjects(call.address, Unnamed::Anonymous),
                Some(object) => {
                    // Both numbers are far below 2^32.
                    let next = self.objects.len() as u32;
                    let index = *self.objects.entry(object).or_insert(next);
                    let offset = mapping.offset.0.wrapping_add(call.address.0 - mapping.start.0);
                    CallLocation::InObject(index, FileOffset(offset))
                }
            },
        };
        let next = CallId(self.calls.len() as u32);
        *self.calls.entry(Call { location, by_frame_pointer: call.by_frame_pointer }).or_insert(next)
    }
}

/// Walk through the stacks of one image.
struct Walk<'a, 's> {
    image: &'a ProcessImage,
    stacks: &'s Stacks,
    /// Path of each visited call. Empty if mappings were replaced: a call's location then depends on the time of its
    /// stack.
    paths: FxHashMap<Node, Node>,
}

impl<'a> Walk<'a, '_> {
    /// Returns the path of a stack; the root if it has no frames.
    fn path(&mut self, stack: StackId, paths: &mut CallPaths<'a>) -> Node {
        let Some((leaf, _, taken)) = self.stacks.find(stack) else { return Node::ROOT };
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
            let id = paths.add(self.image, CallAddress::new(self.image, frame, taken));
            // The tree is never full: it has no more nodes than that of the stacks.
            path = paths.tree.push(path, id).unwrap_or(path);
            if self.image.replaced.is_empty() {
                self.paths.insert(call, path);
            }
        }
        path
    }
}
