//! Converts stacks to the call paths of a recording.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use memtrace_history::{CallSite, FramesByObject, LiveCall, LivePaths, NewPaths};
use memtrace_history::{Interval, Location, ObjectNumber, PathNumber, RecordedObject, RecordedPath, RecordedSymbols};
use memtrace_host::target_files::TargetFiles;
use memtrace_model::{
    FileOffset, Frame, GeneratedCode, ImageId, Node, Object, ProcessImage, StackEnd, StackId, Stacks,
};
use memtrace_object::symbolize::ImageCode;
use rustc_hash::FxHashMap;

/// Call paths of the stacks in running images, and in images that have ended recently.
#[derive(Debug)]
pub(super) struct RecordedStacks {
    live: LivePaths,
    known: FxHashMap<StackId, KnownStack>,
    by_image: FxHashMap<ImageId, Vec<StackId>>,
    locations: BTreeMap<Location, ObjectNumber>,
    /// Row number, in the recording, of each object of `live`.
    objects: Vec<ObjectNumber>,
}

#[derive(Clone, Copy, Debug)]
struct KnownStack {
    image: ImageId,
    path: PathNumber,
    end: StackEnd,
}

impl RecordedStacks {
    pub(super) fn new(live: LivePaths) -> Self {
        Self {
            live,
            known: FxHashMap::default(),
            by_image: FxHashMap::default(),
            locations: BTreeMap::new(),
            objects: Vec::new(),
        }
    }

    /// Adds new stacks of an image.
    pub(super) fn add(
        &mut self,
        id: ImageId,
        image: &ProcessImage,
        stacks: &Stacks,
        generated: Option<&GeneratedCode>,
    ) {
        let converted = self.live.convert(image, stacks, &mut ImageCode::new(image, generated, &TargetFiles));
        self.insert(id, converted);
    }

    /// Adds the stacks of an image that have no path yet.
    pub(super) fn add_unknown(
        &mut self,
        id: ImageId,
        image: &ProcessImage,
        stacks: &Stacks,
        generated: Option<&GeneratedCode>,
    ) {
        let unknown = stacks.ids().filter(|&stack| self.find(stack).is_none()).collect();
        let converted =
            self.live.convert_some(image, stacks, unknown, &mut ImageCode::new(image, generated, &TargetFiles));
        self.insert(id, converted);
    }

    fn insert(&mut self, id: ImageId, converted: Vec<(StackId, Node, StackEnd)>) {
        if converted.is_empty() {
            return;
        }
        let ids = self.by_image.entry(id).or_default();
        for (stack, path, end) in converted {
            ids.push(stack);
            self.known.insert(stack, KnownStack { image: id, path: PathNumber(path.number()), end });
        }
    }

    /// Sets the path of the stack `copy` of an image to the path of the stack `id`, if this path is known.
    pub(super) fn add_alias(&mut self, image: ImageId, copy: StackId, id: StackId) {
        if let Some(&known) = self.known.get(&id) {
            self.known.insert(copy, KnownStack { image, ..known });
            self.by_image.entry(image).or_default().push(copy);
        }
    }

    /// Returns the path and the end of a stack; `None` if its frames have not arrived.
    pub(super) fn find(&self, id: StackId) -> Option<(PathNumber, StackEnd)> {
        if !id.has_frames() {
            return Some((PathNumber::ROOT, Stacks::default().end_of(id)));
        }
        self.known.get(&id).map(|known| (known.path, known.end))
    }

    /// Returns the calls of a path, the innermost first.
    pub(super) fn calls(&self, path: PathNumber) -> Vec<LiveCall> {
        self.live.calls(Node::from_number(path.0)).collect()
    }

    /// Removes the stacks of an image, except for stacks that another image has too.
    pub(super) fn forget(&mut self, image: ImageId) {
        for id in self.by_image.remove(&image).unwrap_or_default() {
            if self.known.get(&id).is_some_and(|known| known.image == image) {
                self.known.remove(&id);
            }
        }
    }

    /// Adds the new objects, names and paths to an interval.
    pub(super) fn add_new_paths(&mut self, interval: &mut Interval) {
        let NewPaths { objects, names, paths } = self.live.take_new();
        for (_, object) in objects {
            let location = Location::File { path: object.path, build_id: object.build_id };
            let number = self.object(location, interval);
            self.objects.push(number);
        }
        for (name, frame) in names {
            let object = self.object(Location::Generated, interval);
            let offset = Some(u64::from(name));
            interval.symbols.push(RecordedSymbols { object, offset, frames: [frame].into(), is_library: false });
        }
        for path in paths {
            let (object, offset) = match path.site {
                CallSite::InObject(object, offset) => {
                    (self.objects.get(object as usize).copied().unwrap_or_default(), Some(offset.0))
                }
                CallSite::Generated(name) => (self.object(Location::Generated, interval), Some(u64::from(name))),
                CallSite::Outside(address, reason) => {
                    (self.object(Location::Outside(reason), interval), address.map(|address| address.0))
                }
            };
            interval.paths.push(RecordedPath {
                number: PathNumber(path.path.number()),
                callers: PathNumber(path.callers.number()),
                object,
                offset,
                by_frame_pointer: path.by_frame_pointer,
            });
        }
    }

    /// Returns the call paths, so that the paths of ended images can be added.
    pub(super) const fn live_mut(&mut self) -> &mut LivePaths {
        &mut self.live
    }

    /// Returns the call paths.
    pub(super) const fn live(&self) -> &LivePaths {
        &self.live
    }

    /// Returns the objects of the paths, each with one reference.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.live.objects()
    }

    /// Forgets the handles of files that were closed.
    pub(super) fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        self.live.forget_files(closed);
    }

    /// Returns the names of the calls of recorded paths.
    pub(super) fn symbols(&self, frames: FramesByObject) -> Vec<RecordedSymbols> {
        let mut symbols = Vec::new();
        for (object, frames) in frames.0 {
            let location = Location::File { path: object.path, build_id: object.build_id };
            let Some(&object) = self.locations.get(&location) else { continue };
            let of_offset = |(offset, frames): (FileOffset, Box<[Frame]>)| RecordedSymbols {
                object,
                offset: Some(offset.0),
                is_library: frames.iter().all(memtrace_report::is_library),
                frames,
            };
            symbols.extend(frames.into_iter().map(of_offset));
        }
        symbols
    }

    /// Returns the row number of an object in the recording. A new object is added to the interval.
    fn object(&mut self, location: Location, interval: &mut Interval) -> ObjectNumber {
        // The number of objects is far below 2^32.
        let next = ObjectNumber(self.locations.len() as u32);
        if let Some(&known) = self.locations.get(&location) {
            return known;
        }
        interval.objects.push(RecordedObject { number: next, location: location.clone() });
        self.locations.insert(location, next);
        next
    }
}
