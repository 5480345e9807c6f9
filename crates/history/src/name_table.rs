//! Table of known frames, such as the frames in a recording.

use std::collections::BTreeMap;

use memtrace_model::{FileOffset, FileState, Frame, Names, ObjectName, PathObject, Unnamed, VirtOffset};
use rustc_hash::FxHashMap;

use super::live_paths::LivePaths;

/// Frames at offsets in objects. The frames at one offset are in the order outermost first.
#[derive(Clone, Debug, Default)]
pub struct FramesByObject(pub FxHashMap<ObjectName, BTreeMap<FileOffset, Box<[Frame]>>>);

/// A call that is not in the table has one frame without a name.
impl Names for FramesByObject {
    fn frames(&self, object: &PathObject, offsets: &[FileOffset]) -> Vec<Box<[Frame]>> {
        let name = object.name();
        let known = self.0.get(&name);
        let frames_at = |offset: &FileOffset| {
            let found = known.and_then(|frames| frames.get(offset)).cloned();
            found.unwrap_or_else(|| {
                let frame = Frame::new(Err(Unnamed::NoSymbol));
                [Frame { object: Some(name.clone()), offset: Some(VirtOffset(offset.0)), ..frame }].into()
            })
        };
        offsets.iter().map(frames_at).collect()
    }
}

/// Known frames, and a source for the frames of other calls.
#[derive(Debug)]
pub struct NameTable<N> {
    frames: FramesByObject,
    others: N,
}

impl<N: Names> NameTable<N> {
    /// Returns the table of `frames`. `others`: source for calls that `frames` lacks.
    pub const fn new(frames: FramesByObject, others: N) -> Self {
        Self { frames, others }
    }

    /// Finds the frames of all calls in objects of `live`, and keeps them. Later stacks with the same calls get
    /// their frames without another read of the objects.
    pub fn add(&mut self, live: &LivePaths) {
        for (object, calls) in live.paths().in_objects() {
            let offsets: Vec<_> = calls.into_keys().collect();
            let frames = self.frames(object, &offsets);
            self.frames.0.entry(object.name()).or_default().extend(offsets.into_iter().zip(frames));
        }
    }

    /// Returns the frames that are known.
    pub const fn known(&self) -> &FramesByObject {
        &self.frames
    }
}

impl<N: Names> Names for NameTable<N> {
    fn frames(&self, object: &PathObject, offsets: &[FileOffset]) -> Vec<Box<[Frame]>> {
        // Without a build ID, the known frames can belong to another file that had this path earlier in the run.
        let is_certain = object.file == FileState::Recorded || object.object.build_id.is_some();
        let known = is_certain.then(|| self.frames.0.get(&object.name())).flatten();
        let mut frames: Vec<_> =
            offsets.iter().map(|offset| known.and_then(|known| known.get(offset)).cloned()).collect();
        let unknown = offsets.iter().zip(&frames).filter(|(_, frames)| frames.is_none());
        let unknown: Vec<_> = unknown.map(|(&offset, _)| offset).collect();
        if !unknown.is_empty() {
            let found = self.others.frames(object, &unknown);
            let open = frames.iter_mut().filter(|frames| frames.is_none());
            open.zip(found).for_each(|(open, found)| *open = Some(found));
        }
        frames.into_iter().map(Option::unwrap_or_default).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::PathBuf;
    use std::sync::Arc;

    use memtrace_model::{BuildId, Name, Object};

    use super::*;

    /// Source of names that show the offset. It keeps the requested offsets.
    #[derive(Default)]
    struct Source(RefCell<Vec<u64>>);

    impl Names for Source {
        fn frames(&self, _: &PathObject, offsets: &[FileOffset]) -> Vec<Box<[Frame]>> {
            self.0.borrow_mut().extend(offsets.iter().map(|offset| offset.0));
            offsets.iter().map(|offset| [frame(&format!("read {}", offset.0))].into()).collect()
        }
    }

    fn frame(name: &str) -> Frame {
        Frame::new(Ok(Name(name.to_owned())))
    }

    fn object(build_id: Option<u8>, file: FileState) -> PathObject {
        let build_id = build_id.map(|byte| BuildId([byte].into()));
        PathObject {
            object: Arc::new(Object { path: PathBuf::from("/lib"), handle: None, build_id, root: None }),
            file,
        }
    }

    #[test]
    fn calls_outside_of_the_table_are_looked_up() {
        let names = |object: &PathObject| {
            let known = BTreeMap::from([(FileOffset(2), Box::from([frame("known")]))]);
            let known = FramesByObject([(object.name(), known)].into_iter().collect());
            let table = NameTable::new(known, Source::default());
            let frames = table.frames(object, &[1, 2, 3].map(FileOffset));
            (frames.iter().map(|frames| frames[0].label()).collect::<Vec<_>>(), table.others.0.take())
        };
        let with_known = (["read 1", "known", "read 3"].map(String::from).to_vec(), vec![1, 3]);
        assert_eq!(names(&object(Some(7), FileState::Kept)), with_known);
        assert_eq!(names(&object(None, FileState::Recorded)), with_known);
        assert_eq!(names(&object(None, FileState::Kept)).1, [1, 2, 3], "another file can have had this path");
    }

    #[test]
    fn calls_in_no_table_keep_object_and_offset() {
        let object = object(None, FileState::Kept);
        let frames = FramesByObject::default().frames(&object, &[FileOffset(16)]);
        assert_eq!((frames[0][0].label().as_str(), &frames[0][0].object), ("lib+0x10", &Some(object.name())));
    }
}
