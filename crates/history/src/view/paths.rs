//! Code locations of a history as call paths, with the recorded names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memtrace_model::{AbsAddr, FileOffset, Mapping, Node, Object, ObjectName};
use rustc_hash::FxHashMap;

use crate::call_paths::{Call, CallLocation, CallPaths};
use crate::interval::{Location, Locations, ObjectNumber, PathNumber, PathRows};
use crate::name_table::FramesByObject;

/// Call paths of a recording, and the names of their calls.
pub(super) struct RecordedCalls {
    pub(super) paths: CallPaths,
    /// Recorded names of calls.
    pub(super) frames: FramesByObject,
    recorded: PathRows,
    /// Node of each path in `recorded`, in the same order.
    nodes: Vec<Node>,
    objects: BTreeMap<PathBuf, Arc<Object>>,
}

impl RecordedCalls {
    pub(super) fn new(locations: Locations) -> Self {
        let Locations { objects, paths: recorded, symbols } = locations;
        let mut paths = CallPaths::default();
        let names: BTreeMap<ObjectNumber, ObjectName> =
            objects.iter().filter_map(|(&number, location)| Some((number, name_of(location)?))).collect();
        let numbers: FxHashMap<ObjectNumber, u32> =
            names.iter().map(|(&number, name)| (number, paths.add_recorded(name.clone()))).collect();
        paths.reserve(recorded.all().len());
        let mut nodes: Vec<Node> = Vec::with_capacity(recorded.all().len());
        for path in recorded.all() {
            let callers = recorded.position(path.callers).and_then(|index| nodes.get(index)).copied();
            let callers = callers.unwrap_or(Node::ROOT);
            let location = match (numbers.get(&path.object), objects.get(&path.object)) {
                (Some(&object), _) => CallLocation::InObject(object, FileOffset(path.offset.unwrap_or_default())),
                (None, Some(&Location::Outside(reason))) => {
                    CallLocation::OutsideObjects(path.offset.map(AbsAddr), reason)
                }
                // Every path of a readable recording has an object.
                (None, _) => {
                    nodes.push(callers);
                    continue;
                }
            };
            nodes.push(paths.push(callers, Call { location, by_frame_pointer: path.by_frame_pointer }));
        }
        let mut frames = FramesByObject::default();
        for ((object, offset), of_call) in symbols {
            if let (Some(name), Some(offset)) = (names.get(&object), offset) {
                frames.0.entry(name.clone()).or_default().insert(FileOffset(offset), of_call.into());
            }
        }
        let object = |ObjectName { path, build_id }: ObjectName| {
            (path.clone(), Arc::new(Object { path, handle: None, build_id, root: None }))
        };
        Self { paths, frames, recorded, nodes, objects: names.into_values().map(object).collect() }
    }

    /// Returns the node of a recorded path; the root if there is no such path.
    pub(super) fn node(&self, path: PathNumber) -> Node {
        self.recorded.position(path).map_or(Node::ROOT, |index| self.nodes[index])
    }

    /// Returns a mapping of the executable `path`; `None` if the recording has no such object. Ended processes are
    /// grouped by the build ID of this object.
    pub(super) fn executable(&self, path: &Path) -> Option<Mapping> {
        let object = Some(Arc::clone(self.objects.get(path)?));
        Some(Mapping { start: AbsAddr(0), end: AbsAddr(0), offset: FileOffset(0), object })
    }
}

/// Returns the name of a file. Generated code counts as a file with an empty path, because all of its names are
/// recorded.
fn name_of(location: &Location) -> Option<ObjectName> {
    match location {
        Location::Generated => Some(ObjectName { path: PathBuf::new(), build_id: None }),
        Location::File { .. } | Location::Outside(_) => location.file_name(),
    }
}
