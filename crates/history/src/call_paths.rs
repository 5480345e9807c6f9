//! Call paths of all stacks. Calls are locations in objects; each location and each common path is stored once.
//! Pure.

mod walk;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use memtrace_model::{AbsAddr, FileOffset, FileState, Merged, Node, Object, ObjectName, PathObject, Tree, Unnamed};
use rustc_hash::FxHashMap;

use super::generated_names::{GeneratedNames, NameId};
use super::numbered::Numbered;

pub(super) use walk::Walk;

/// Index of a distinct call in `CallPaths::calls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CallId(u32);

/// Location of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CallLocation {
    /// Index of the object in `CallPaths::objects`, and offset in its file.
    InObject(u32, FileOffset),
    /// Code that was generated at run time, in the function with this name.
    Generated(NameId),
    /// Code outside of all files: its address in one process, and the reason for the missing name. The address is
    /// `None` in paths that several processes share.
    OutsideObjects(Option<AbsAddr>, Unnamed),
}

/// Indices of the calls at each offset of an object.
pub(super) type CallsByOffset = BTreeMap<FileOffset, Vec<usize>>;

/// A call in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) location: CallLocation,
    /// True if the frame was found by frame pointer.
    pub(super) by_frame_pointer: bool,
}

/// Distinct calls in stacks, and the stacks as paths of calls.
#[derive(Debug, Default)]
pub(super) struct CallPaths {
    objects: Numbered<PathObject>,
    calls: Numbered<Call>,
    /// Paths of calls, root first. Processes with the same executable share paths, independently of load addresses.
    tree: Tree<CallId>,
    removals: u64,
}

impl CallPaths {
    /// Converts the paths to nodes of another tree. `push` receives the node of the callers and the index of the
    /// last call, and returns the node of the path.
    pub(super) fn convert(&self, mut push: impl FnMut(Node, usize) -> Node) -> Merged {
        self.tree.convert(|callers, call| push(callers, call.0 as usize))
    }

    /// Returns the calls of a path, innermost first.
    pub(super) fn calls_from_last(&self, path: Node) -> impl Iterator<Item = Call> + '_ {
        self.tree.to_root(path).map(|call| *self.calls.get(call.0))
    }

    /// Returns the object with this index.
    pub(super) fn object_at(&self, number: u32) -> &Arc<Object> {
        &self.objects.get(number).object
    }

    /// Returns the number of distinct calls.
    pub(super) fn number_of_calls(&self) -> usize {
        self.calls.len()
    }

    /// Returns the number of distinct paths, including the beginnings of longer paths.
    pub(super) const fn len(&self) -> usize {
        self.tree.len()
    }

    /// Returns the number of removals of paths. Each removal changes the nodes of the remaining paths.
    pub(super) const fn removals(&self) -> u64 {
        self.removals
    }

    /// Returns the path of the callers and the last call of a path; `None` for the root.
    pub(super) fn get(&self, path: Node) -> Option<(Node, Call)> {
        self.tree.get(path).map(|(callers, call)| (callers, *self.calls.get(call.0)))
    }

    /// Returns each object with the indices of its calls by offset.
    pub(super) fn in_objects(&self) -> Vec<(&PathObject, CallsByOffset)> {
        let mut by_object: Vec<CallsByOffset> = vec![CallsByOffset::new(); self.objects.len()];
        for (index, call) in self.calls.iter().enumerate() {
            if let CallLocation::InObject(object, offset) = call.location {
                by_object[object as usize].entry(offset).or_default().push(index);
            }
        }
        self.objects.iter().zip(by_object).collect()
    }

    /// Returns each object once. This collection holds one [`Arc`] reference to each object.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.iter().map(|known| &known.object)
    }

    /// Removes the handles of closed files from the objects.
    pub(super) fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        for known in self.objects.iter_mut() {
            if known.object.handle.as_ref().is_some_and(|handle| closed.contains(handle)) {
                known.object = Arc::new(Object { handle: None, ..(*known.object).clone() });
                known.file = FileState::Closed;
            }
        }
    }

    /// Returns the paths after the first `count`: the path, the path of its callers, and its last call. Each path
    /// comes after the path of its callers.
    pub(super) fn paths_after(&self, count: usize) -> impl Iterator<Item = (Node, Node, Call)> + '_ {
        // The number of paths fits into a u32.
        let paths = (count as u32 + 1..).map(Node::from_number);
        paths.map_while(|path| self.get(path).map(|(callers, call)| (path, callers, call)))
    }

    /// Returns the objects after the first `count`, with their indices.
    pub(super) fn objects_after(&self, count: usize) -> impl Iterator<Item = (u32, &Object)> + '_ {
        (0..).zip(self.objects.iter()).skip(count).map(|(number, object)| (number, object.object.as_ref()))
    }

    /// Returns the calls outside of all files: address, reason for the missing name, and index of the call.
    pub(super) fn outside_objects(&self) -> impl Iterator<Item = (Option<AbsAddr>, Unnamed, usize)> + '_ {
        self.calls.iter().enumerate().filter_map(|(index, call)| match call.location {
            CallLocation::OutsideObjects(address, reason) => Some((address, reason, index)),
            CallLocation::InObject(..) | CallLocation::Generated(_) => None,
        })
    }

    /// Returns the calls in generated code with a name, each with its index.
    pub(super) fn generated(&self) -> impl Iterator<Item = (NameId, usize)> + '_ {
        self.calls.iter().enumerate().filter_map(|(index, call)| match call.location {
            CallLocation::Generated(name) => Some((name, index)),
            CallLocation::InObject(..) | CallLocation::OutsideObjects(..) => None,
        })
    }

    /// Returns the indices of the calls with frames that were found by frame pointer.
    pub(super) fn by_frame_pointer(&self) -> impl Iterator<Item = usize> + '_ {
        self.calls.iter().enumerate().filter(|(_, call)| call.by_frame_pointer).map(|(index, _)| index)
    }

    /// Returns a flag for each call, by its index: true if one of `paths` contains the call.
    pub(super) fn used_calls(&self, paths: impl IntoIterator<Item = Node>) -> Vec<bool> {
        let mut is_used = vec![false; self.calls.len()];
        let mut is_visited = vec![false; self.tree.len()];
        for path in paths {
            let mut path = path;
            while let Some((callers, call)) = self.tree.get(path)
                && let Some(index) = path.index()
                && !std::mem::replace(&mut is_visited[index], true)
            {
                is_used[call.0 as usize] = true;
                path = callers;
            }
        }
        is_used
    }

    /// Returns `path` without addresses outside of files, because such an address is valid in one process only.
    /// `known`: results of earlier calls of this function.
    pub(super) fn without_addresses(&mut self, path: Node, known: &mut FxHashMap<Node, Node>) -> Node {
        let (mut open, mut result, mut at) = (Vec::new(), Node::ROOT, path);
        while let Some((callers, call)) = self.tree.get(at) {
            if let Some(&found) = known.get(&at) {
                result = found;
                break;
            }
            open.push((at, call));
            at = callers;
        }
        for (at, id) in open.into_iter().rev() {
            let call = match *self.calls.get(id.0) {
                Call { location: CallLocation::OutsideObjects(Some(_), reason), by_frame_pointer } => {
                    self.number(Call { location: CallLocation::OutsideObjects(None, reason), by_frame_pointer })
                }
                Call { .. } => id,
            };
            result = self.tree.push(result, call).unwrap_or(result);
            known.insert(at, result);
        }
        result
    }

    /// Removes all paths except `used` and their callers, and the calls, objects and names that no path needs any
    /// more. Returns the new node of each remaining path. The order of the paths does not change.
    pub(super) fn retain(&mut self, used: impl IntoIterator<Item = Node>, names: &mut GeneratedNames) -> Merged {
        let (old, mut kept) = (std::mem::take(&mut self.calls), Numbered::default());
        let (old_objects, mut objects) = (std::mem::take(&mut self.objects), Numbered::default());
        let mut names = names.retain();
        let merged = self.tree.retain(used, |CallId(number)| {
            let mut call = *old.get(number);
            match &mut call.location {
                CallLocation::InObject(object, _) => {
                    let known = old_objects.get(*object);
                    *object = objects.number(known, || known.clone());
                }
                CallLocation::Generated(name) => *name = names.keep(*name),
                CallLocation::OutsideObjects(..) => {}
            }
            CallId(kept.number(&call, || call))
        });
        (self.calls, self.objects) = (kept, objects);
        self.removals += 1;
        merged
    }

    /// Returns the index of an object. Adds the object if it is new.
    pub(super) fn object(&mut self, object: &Arc<Object>) -> u32 {
        let object = PathObject { object: Arc::clone(object), file: FileState::Kept };
        let number = self.objects.number(&object, || object.clone());
        if object.object.handle.is_some() {
            // The handle of the known object may have been closed since, so the new object replaces it.
            *self.objects.get_mut(number) = object;
        }
        number
    }

    /// Adds an object of a recording, and returns its index.
    pub(super) fn add_recorded(&mut self, name: ObjectName) -> u32 {
        let ObjectName { path, build_id } = name;
        let object = Arc::new(Object { path, handle: None, build_id, root: None });
        let object = PathObject { object, file: FileState::Recorded };
        self.objects.number(&object, || object.clone())
    }

    /// Returns the index of a call. Adds the call if it is new.
    fn number(&mut self, call: Call) -> CallId {
        CallId(self.calls.number(&call, || call))
    }

    /// Reserves memory for this number of further paths.
    pub(super) fn reserve(&mut self, paths: usize) {
        self.tree.reserve(paths);
    }

    /// Returns the path that extends `callers` by `call`. Adds the path if it is new.
    pub(super) fn push(&mut self, callers: Node, call: Call) -> Node {
        let call = self.number(call);
        self.push_numbered(callers, call)
    }

    /// Does the same as [`Self::push`], for a call that is already in `calls`.
    fn push_numbered(&mut self, callers: Node, call: CallId) -> Node {
        // The number of paths is bounded far below 2^32.
        self.tree.push(callers, call).unwrap_or(callers)
    }
}
