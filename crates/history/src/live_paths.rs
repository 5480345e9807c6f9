//! Conversion of stacks to call paths during a run. Pure.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use memtrace_model::{
    AbsAddr, CodeNames, FileOffset, Frame, Node, Object, ObjectName, ProcessImage, Quantity, StackEnd, StackId, Stacks,
    Unnamed,
};

use super::call_paths::{CallLocation, CallPaths, Walk};
use super::generated_names::GeneratedNames;
use super::path_totals::{PathKey, PathTotals, PathUsage};
use super::translated_paths::{PathSource, TranslatedPaths};

/// Call paths of the stacks of all images that have arrived so far. Each stack is converted once, with the mappings
/// of its image.
#[derive(Debug)]
pub struct LivePaths {
    paths: CallPaths,
    names: GeneratedNames,
    /// Number of objects, number of names and number of paths that [`Self::take_new`] has returned so far.
    taken: [usize; 3],
    max_paths: usize,
    /// Translations of the paths of ended processes.
    translated: TranslatedPaths,
}

/// Totals by call path of an image that has ended.
#[derive(Debug, Default)]
pub struct ImageStacks(pub(super) PathTotals);

/// Objects, names and call paths that were new in some stacks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewPaths {
    /// Objects, each with its index.
    pub objects: Vec<(u32, ObjectName)>,
    /// Names of generated code, each with its index.
    pub names: Vec<(u32, Frame)>,
    /// Call paths, each after its callers.
    pub paths: Vec<NewPath>,
}

/// A call path: the path of its callers and one more call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPath {
    /// Node of the path.
    pub path: Node,
    /// Node of the callers' path; the root for the outermost call.
    pub callers: Node,
    /// Location of the last call.
    pub site: CallSite,
    /// True if the frame was found by frame pointer.
    pub by_frame_pointer: bool,
}

/// Location of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallSite {
    /// Index of the object, and offset in its file.
    InObject(u32, FileOffset),
    /// Generated code: index of the function's name.
    Generated(u32),
    /// Address outside of all files, and the reason for the missing name.
    Outside(Option<AbsAddr>, Unnamed),
}

/// A call in a path.
#[derive(Clone, Debug)]
pub enum LiveCall {
    /// Offset in the file of an object.
    InObject(Arc<Object>, FileOffset),
    /// A frame outside of objects: generated code with its name, or code without a name.
    Named(Frame),
}

impl LivePaths {
    /// Returns an empty collection. `max_paths`: approximate maximum number of distinct call paths.
    /// `max_name_bytes`: maximum size of all names of generated code.
    #[must_use]
    pub fn new(max_paths: usize, max_name_bytes: usize) -> Self {
        let (paths, names) = (CallPaths::default(), GeneratedNames::new(max_name_bytes));
        Self { paths, names, taken: [0; 3], max_paths, translated: TranslatedPaths::default() }
    }

    /// Returns the call paths of `stacks`, which belong to `image`, and the ends of their walks. `code`: names of
    /// the generated code of `image`. If there are too many paths, all these stacks are merged.
    pub fn convert(
        &mut self,
        image: &ProcessImage,
        stacks: &Stacks,
        code: &mut dyn CodeNames,
    ) -> Vec<(StackId, Node, StackEnd)> {
        self.convert_some(image, stacks, stacks.ids().collect(), code)
    }

    /// Does the same as [`Self::convert`], for the stacks `ids`.
    pub fn convert_some(
        &mut self,
        image: &ProcessImage,
        stacks: &Stacks,
        mut ids: Vec<StackId>,
        code: &mut dyn CodeNames,
    ) -> Vec<(StackId, Node, StackEnd)> {
        let is_full = self.paths.len() >= self.max_paths;
        let mut walk = Walk::new(&mut self.paths, image, stacks, code, &mut self.names);
        ids.sort_unstable();
        let convert = |id| {
            let (path, end) = if is_full { (Node::ROOT, StackEnd::Merged) } else { walk.stack(id) };
            (id, path, end)
        };
        ids.into_iter().map(convert).collect()
    }

    /// Converts the totals of an ended image to live paths. `from`: collection of the paths of `totals`. `objects`:
    /// indices of the objects in these paths. `counted`: number of merged stacks that the recording has in the row
    /// of the image, so the result leaves them out.
    pub(super) fn translate(
        &mut self,
        totals: &PathTotals,
        from: PathSource<'_>,
        objects: &[u32],
        mut counted: u64,
    ) -> ImageStacks {
        let Self { paths, names, translated, max_paths, .. } = self;
        let is_full = paths.len() >= *max_paths;
        if !is_full {
            // The files of the objects may have been opened again, with other handles.
            objects.iter().for_each(|&object| _ = paths.object(from.paths.object_at(object)));
            translated.begin(from);
        }
        let translate = |(key, mut totals): (PathKey, PathUsage)| {
            if key.end == StackEnd::Merged {
                let merged = &mut totals.usage[Quantity::MergedStacks];
                *merged = merged.saturating_sub(std::mem::take(&mut counted));
            }
            if is_full && key.path != Node::ROOT {
                let key = PathKey { path: Node::ROOT, end: StackEnd::Merged, ..key };
                totals.usage[Quantity::MergedStacks] = 1;
                return (key, totals);
            }
            (PathKey { path: translated.find(key.path, from, paths, names), ..key }, totals)
        };
        ImageStacks(PathTotals::new(totals.iter().map(translate).collect()))
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

    /// Returns the objects of the paths, each once. This collection holds one [`Arc`] reference to each object.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.paths.objects()
    }

    /// Removes the handles of closed files from the objects.
    pub fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        self.paths.forget_files(closed);
    }

    /// Returns the call paths.
    pub(super) const fn paths(&self) -> &CallPaths {
        &self.paths
    }

    /// Returns the objects, names and paths that are new since the last call.
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
    use std::collections::BTreeMap;
    use std::time::Duration;

    use memtrace_model::{
        Amount, Bytes, EventClass, ImageEnd, ImageId, ImageUsage, Mapping, Pid, Quantities, Quantity, Stack, StackKey,
        Tick,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::test_code::TestCode;
    use crate::{CompletedImage, EndedProcesses, EndedSettings};

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
        let first = live.convert(&image(0x4000), &stacks(0x4000, &[(10, &[0x20, 0x10])]), &mut TestCode::new());
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
        let second = live.convert(
            &image(0x9000),
            &stacks(0x9000, &[(21, &[0x30, 0x10]), (20, &[0x20, 0x10])]),
            &mut TestCode::new(),
        );
        let new = live.take_new();
        assert_eq!((new.objects.len(), paths(&new)), (0, vec![(3, 1, site(0x30))]));
        assert_eq!(second.iter().map(|(id, path, _)| (id.0, path.number())).collect::<Vec<_>>(), [(20, 2), (21, 3)]);
        assert_eq!(live.take_new(), NewPaths::default());
    }

    #[test]
    fn stacks_beyond_the_limit_are_merged() {
        let mut live = LivePaths::new(2, 0);
        live.convert(&image(0x4000), &stacks(0x4000, &[(10, &[0x20, 0x10])]), &mut TestCode::new());
        let second = live.convert(&image(0x4000), &stacks(0x4000, &[(11, &[0x30])]), &mut TestCode::new());
        assert_eq!(second, [(StackId(11), Node::ROOT, StackEnd::Merged)]);
        assert_eq!(live.take_new().paths.len(), 2);
    }

    #[test]
    fn address_outside_of_all_files_is_kept() {
        let mut live = LivePaths::new(usize::MAX, 0);
        live.convert(&image(0x4000), &stacks(0, &[(10, &[0x20])]), &mut TestCode::new());
        let new = live.take_new();
        assert_eq!(new.paths[0].site, CallSite::Outside(Some(AbsAddr(0x20)), Unnamed::NoMapping));
        assert!(new.objects.is_empty());
    }

    /// Offsets of the calls of a path, the innermost first; `None` for addresses outside of all files.
    fn offsets(live: &LivePaths, path: Node) -> Vec<Option<u64>> {
        let offset = |call| match call {
            LiveCall::InObject(_, offset) => Some(offset.0 - 0x100),
            LiveCall::Named(frame) => {
                assert_eq!(frame.address, None);
                None
            }
        };
        live.calls(path).map(offset).collect()
    }

    #[test]
    fn stacks_of_ended_images_beyond_the_limit_are_merged() {
        let settings =
            EndedSettings { keep: 10, max_stack_entries: 100, max_call_paths: 100, max_name_bytes: 0, start: Tick(0) };
        let (mut ended, mut live) = (EndedProcesses::new(settings), LivePaths::new(2, 0));
        let mut add = |ordinal, offset| {
            let alloc = Amount::one(Bytes(16));
            let usage = Quantities::ZERO.with_amount(Quantity::AllocBytes, alloc);
            let by_stack = [(StackId(10).into(), usage)].into();
            let completed = CompletedImage {
                id: ImageId { pid: Pid(1), ordinal },
                end: ImageEnd::Exit,
                at: Tick(1),
                image: image(0x4000),
                usage: vec![(EventClass::Heap, ImageUsage { by_stack, ..ImageUsage::default() })],
                stacks: stacks(0x4000, &[(10, &[offset, 0x10])]),
            };
            let (_, totals) = ended.add_recorded(completed, &mut TestCode::new(), &mut live);
            let found =
                totals.0.iter().map(|(key, totals)| (key.path.number(), key.end, totals.usage[Quantity::MergedStacks]));
            found.collect::<Vec<_>>()
        };
        assert_eq!(add(0, 0x20), [(2, StackEnd::Complete, 0)]);
        assert_eq!(add(1, 0x30), [(0, StackEnd::Merged, 1)]);
        assert_eq!(live.take_new().paths.len(), 2);
    }

    proptest! {
        #[test]
        fn totals_of_ended_images_have_live_paths(
            images in prop::collection::vec((1..4_u64, prop::collection::vec(prop::collection::vec(0..6_u64, 0..5), 0..6), 0..3_u64), 1..12),
            max_call_paths in prop::sample::select(vec![4, 20, 1000]),
        ) {
            let settings = EndedSettings { keep: 2, max_stack_entries: 40, max_call_paths, max_name_bytes: 0, start: Tick(0) };
            let (mut ended, mut live) = (EndedProcesses::new(settings), LivePaths::new(usize::MAX, 0));
            for (ordinal, (base, calls, merged)) in (0..).zip(images) {
                let base = base << 20;
                // Call 5 is outside of all files.
                let offset = |call: &u64| if *call == 5 { 0x2000 } else { call * 16 };
                let calls: Vec<Vec<u64>> = calls.iter().map(|calls| calls.iter().map(offset).collect()).collect();
                let numbered: Vec<_> = (100..).zip(calls.iter().map(Vec::as_slice)).collect();
                let amount = |bytes| {
                    let alloc = Amount::one(Bytes(bytes));
                    Quantities::ZERO.with_amount(Quantity::ExitBytes, alloc).with_amount(Quantity::AllocBytes, alloc)
                };
                let mut by_stack: BTreeMap<StackKey, Quantities> =
                    numbered.iter().map(|&(id, _)| (StackId(id).into(), amount(id))).collect();
                by_stack.insert(StackId::OTHER.into(), amount(7));
                // No shard has the frames of this stack.
                by_stack.insert(StackId(1000).into(), amount(9));
                let mut expected: BTreeMap<Vec<Option<u64>>, u64> = BTreeMap::from([(Vec::new(), 7 + 9)]);
                for (id, calls) in &numbered {
                    let calls = calls.iter().map(|&offset| (offset != 0x2000).then_some(offset)).collect();
                    *expected.entry(calls).or_default() += id;
                }
                let usage = ImageUsage { by_stack, merged_stacks: merged, ..ImageUsage::default() };
                let completed = CompletedImage {
                    id: ImageId { pid: Pid(1), ordinal },
                    end: ImageEnd::Exit,
                    at: Tick(1),
                    image: image(base),
                    usage: vec![(EventClass::Heap, usage)],
                    stacks: stacks(base, &numbered),
                };
                let (_, totals) = ended.add_recorded(completed, &mut TestCode::new(), &mut live);
                let mut found: BTreeMap<Vec<Option<u64>>, u64> = BTreeMap::new();
                for (key, totals) in totals.0.iter() {
                    *found.entry(offsets(&live, key.path)).or_default() += totals.usage.alloc().bytes.0;
                    prop_assert!(totals.usage[Quantity::MergedStacks] == 0, "the recording has the number of merged stacks of each image");
                }
                prop_assert_eq!(found, expected);
            }
        }
    }
}
