//! Conversion of stacks to call paths during a run. Pure, except for the files with names of generated code.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::call_paths::{CallLocation, CallPaths, Walk};
use super::generated_code::{GeneratedNames, ImageCode};
use super::grouped_stacks::ImageStacks;
use super::stack_totals::{PathKey, PathUsage, StackTotals};
use crate::model::{
    AbsAddr, FileOffset, Frame, GeneratedCode, Node, Object, ObjectName, ProcessImage, StackEnd, StackId, StackKey,
    StackUsage, Stacks, Unnamed,
};

/// Call paths of the stacks that have arrived so far, in all images. Each stack is converted once, with the mappings of its
/// image.
#[derive(Debug)]
pub struct LivePaths {
    paths: CallPaths,
    names: GeneratedNames,
    /// Numbers of objects, names and paths that were taken.
    taken: [usize; 3],
    max_paths: usize,
}

/// Objects, names and call paths that were new in some stacks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewPaths {
    /// Objects with their numbers.
    pub objects: Vec<(u32, ObjectName)>,
    /// Names of generated code with their numbers.
    pub names: Vec<(u32, Frame)>,
    /// Call paths, each after its callers.
    pub paths: Vec<NewPath>,
}

/// A call path: that of the callers and one more call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPath {
    /// The path.
    pub path: Node,
    /// Path of the callers; the root for the outermost call.
    pub callers: Node,
    /// Location of the last call.
    pub site: CallSite,
    /// The frame was found by frame pointer.
    pub by_frame_pointer: bool,
}

/// Location of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallSite {
    /// Offset in the file of the object with this number.
    InObject(u32, FileOffset),
    /// Generated code with the name of this number.
    Generated(u32),
    /// Address outside of all files, and the reason for the missing name.
    Outside(Option<AbsAddr>, Unnamed),
}

/// A call in a path.
#[derive(Clone, Debug)]
pub enum LiveCall {
    /// Offset in the file of an object.
    InObject(Arc<Object>, FileOffset),
    /// A frame that has its name, or has none.
    Named(Frame),
}

impl LivePaths {
    /// Returns an empty collection for about `max_paths` distinct call paths, and names of at most `max_name_bytes`.
    #[must_use]
    pub fn new(max_paths: usize, max_name_bytes: usize) -> Self {
        let (paths, names) = (CallPaths::default(), GeneratedNames::new(max_name_bytes));
        Self { paths, names, taken: [0; 3], max_paths }
    }

    /// Returns the call paths of `stacks`, which belong to `image`, and the ends of their walks. `generated` has the files
    /// with the names of its generated code, if it has some. If there are too many paths, new stacks are merged.
    pub fn convert(
        &mut self,
        image: &ProcessImage,
        stacks: &Stacks,
        generated: Option<&GeneratedCode>,
    ) -> Vec<(StackId, Node, StackEnd)> {
        self.convert_some(image, stacks, stacks.ids().collect(), generated)
    }

    /// As [`Self::convert`], for some of `stacks`.
    pub fn convert_some(
        &mut self,
        image: &ProcessImage,
        stacks: &Stacks,
        mut ids: Vec<StackId>,
        generated: Option<&GeneratedCode>,
    ) -> Vec<(StackId, Node, StackEnd)> {
        let mut code = ImageCode::new(image, generated);
        let is_full = self.paths.len() >= self.max_paths;
        let mut walk = Walk::new(&mut self.paths, image, stacks, &mut code, &mut self.names);
        ids.sort_unstable();
        let convert = |id| {
            let (path, end) = if is_full { (Node::ROOT, StackEnd::Merged) } else { walk.stack(id) };
            (id, path, end)
        };
        ids.into_iter().map(convert).collect()
    }

    /// Returns the totals of an ended image by call path. Addresses outside of all files, which belong to one process, are
    /// left out.
    pub fn totals(
        &mut self,
        image: &ProcessImage,
        stacks: &Stacks,
        by_stack: &BTreeMap<StackKey, StackUsage>,
        generated: Option<&GeneratedCode>,
    ) -> ImageStacks {
        let mut code = ImageCode::new(image, generated);
        let is_full = self.paths.len() >= self.max_paths;
        let mut walk = Walk::new(&mut self.paths, image, stacks, &mut code, &mut self.names);
        let convert = |(key, &usage): (&StackKey, &StackUsage)| {
            let (path, end) = if is_full { (Node::ROOT, StackEnd::Merged) } else { walk.stack(key.stack) };
            // The number of stacks in a sum is that of the image.
            let merged = u64::from(end == StackEnd::Merged && key.stack != StackId::OTHER);
            (PathKey { path, end, part: key.part }, PathUsage { usage, merged, ..PathUsage::default() })
        };
        let mut totals: Vec<_> = by_stack.iter().map(convert).collect();
        if walk.has_addresses() {
            let mut known = FxHashMap::default();
            for (key, _) in &mut totals {
                key.path = self.paths.without_addresses(key.path, &mut known);
            }
        }
        ImageStacks(StackTotals::new(totals))
    }

    /// Returns the calls of a path, the innermost first.
    pub fn calls(&self, path: Node) -> impl Iterator<Item = LiveCall> + '_ {
        self.paths.calls_from_last(path).map(|call| match call.location {
            CallLocation::InObject(object, offset) => {
                LiveCall::InObject(Arc::clone(self.paths.object_at(object)), offset)
            }
            CallLocation::Generated(name) => LiveCall::Named(self.names.frame(name)),
            CallLocation::OutsideObjects(address, reason) => {
                LiveCall::Named(Frame { address, ..Frame::new(Err(reason)) })
            }
        })
    }

    /// Returns the objects of the paths, each with one reference.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.paths.objects()
    }

    /// Forgets the handles of files that were closed.
    pub fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        self.paths.forget_files(closed);
    }

    /// Returns the call paths.
    pub(super) const fn paths(&self) -> &CallPaths {
        &self.paths
    }

    /// Returns what is new since the last call.
    pub fn take_new(&mut self) -> NewPaths {
        let [objects, names, paths] = self.taken;
        let new = NewPaths {
            objects: self
                .paths
                .objects_after(objects)
                .map(|(number, object)| {
                    let name = ObjectName { path: object.path.clone(), build_id: object.build_id.clone() };
                    (number, name)
                })
                .collect(),
            names: self.names.frames_after(names).collect(),
            paths: self
                .paths
                .paths_after(paths)
                .map(|(path, callers, call)| NewPath {
                    path,
                    callers,
                    site: match call.location {
                        CallLocation::InObject(object, offset) => CallSite::InObject(object, offset),
                        CallLocation::Generated(name) => CallSite::Generated(name.number()),
                        CallLocation::OutsideObjects(address, reason) => CallSite::Outside(address, reason),
                    },
                    by_frame_pointer: call.by_frame_pointer,
                })
                .collect(),
        };
        self.taken = [objects + new.objects.len(), names + new.names.len(), paths + new.paths.len()];
        new
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Mapping, Stack};

    /// Image with one object at `base`.
    fn image(base: u64) -> ProcessImage {
        let object = Object { path: PathBuf::from("/bin/service"), handle: None, build_id: None, root: None };
        let mapping = Mapping {
            start: AbsAddr(base),
            end: AbsAddr(base + 0x1000),
            offset: FileOffset(0x100),
            object: Some(Arc::new(object)),
        };
        ProcessImage { mappings: vec![mapping], ..ProcessImage::default() }
    }

    /// Stacks of calls at these offsets from `base`, innermost first.
    fn stacks(base: u64, stacks: &[(u64, &[u64])]) -> Stacks {
        let stack = |&(id, offsets): &(u64, &[u64])| {
            let frames = offsets.iter().map(|offset| AbsAddr(base + offset + 1)).collect();
            (StackId(id), Stack { frames, end: StackEnd::Complete, taken: Duration::ZERO })
        };
        stacks.iter().map(stack).collect()
    }

    #[test]
    fn later_stacks_add_only_new_paths() {
        let mut live = LivePaths::new(usize::MAX, 0);
        let first = live.convert(&image(0x4000), &stacks(0x4000, &[(10, &[0x20, 0x10])]), None);
        let new = live.take_new();
        let site = |offset: u64| CallSite::InObject(0, FileOffset(0x100 + offset));
        assert_eq!(
            new.objects.iter().map(|(number, object)| (*number, object.path.clone())).collect::<Vec<_>>(),
            [(0, PathBuf::from("/bin/service"))]
        );
        let paths = |new: &NewPaths| {
            new.paths.iter().map(|path| (path.path.number(), path.callers.number(), path.site)).collect::<Vec<_>>()
        };
        assert_eq!(paths(&new), [(1, 0, site(0x10)), (2, 1, site(0x20))]);
        assert_eq!(first, [(StackId(10), Node::from_number(2), StackEnd::Complete)]);
        // Another process at another address, with one path in common.
        let second = live.convert(&image(0x9000), &stacks(0x9000, &[(21, &[0x30, 0x10]), (20, &[0x20, 0x10])]), None);
        let new = live.take_new();
        assert_eq!((new.objects.len(), paths(&new)), (0, vec![(3, 1, site(0x30))]));
        assert_eq!(second.iter().map(|(id, path, _)| (id.0, path.number())).collect::<Vec<_>>(), [(20, 2), (21, 3)]);
        assert_eq!(live.take_new(), NewPaths::default());
    }

    #[test]
    fn stacks_beyond_the_limit_are_merged() {
        let mut live = LivePaths::new(2, 0);
        live.convert(&image(0x4000), &stacks(0x4000, &[(10, &[0x20, 0x10])]), None);
        let second = live.convert(&image(0x4000), &stacks(0x4000, &[(11, &[0x30])]), None);
        assert_eq!(second, [(StackId(11), Node::ROOT, StackEnd::Merged)]);
        assert_eq!(live.take_new().paths.len(), 2);
    }

    #[test]
    fn address_outside_of_all_files_is_kept() {
        let mut live = LivePaths::new(usize::MAX, 0);
        live.convert(&image(0x4000), &stacks(0, &[(10, &[0x20])]), None);
        let new = live.take_new();
        assert_eq!(new.paths[0].site, CallSite::Outside(Some(AbsAddr(0x20)), Unnamed::NoMapping));
        assert!(new.objects.is_empty());
    }
}
