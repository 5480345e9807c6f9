//! Conversion of the stacks of one image to call paths.

use std::sync::Arc;
use std::time::Duration;

use memtrace_model::{
    AbsAddr, CodeNames, FileOffset, ImageUsage, Mapping, Node, Object, ProcessImage, Quantity, StackEnd, StackId,
    StackKey, Stacks, Unnamed, Version, split_frame,
};
use rustc_hash::FxHashMap;

use super::{Call, CallId, CallLocation, CallPaths};
use crate::generated_names::{GeneratedFrame, GeneratedNames};
use crate::path_totals::{PathKey, PathTotals, PathUsage};

/// Maximum number of entries of [`Walk::located`]. The stacks of a compiler process have about ten thousand different
/// frames. More entries would double the size of the table, which is 270 KiB.
const MAX_LOCATED: usize = 14_000;

/// Walk through the stacks of one image.
pub(crate) struct Walk<'a, 's> {
    paths: &'s mut CallPaths,
    image: &'a ProcessImage,
    stacks: &'s Stacks,
    code: &'s mut dyn CodeNames,
    names: &'s mut GeneratedNames,
    /// Number in `paths` of each object of the image, by the address of the [`Object`].
    objects: FxHashMap<*const Object, u32>,
    /// Number of the path of each visited call, by the index of the call's node in `stacks`; 0 for calls that were not
    /// visited. The list is empty if paths cannot be reused: if mappings were replaced, if names depend on the time of
    /// a stack, or if callers are uncertain.
    visited: Vec<u32>,
    /// ID of the call of each frame. Empty if `visited` is empty.
    located: FxHashMap<AbsAddr, CallId>,
    /// Buffer of [`Self::path`]: calls from the leaf up to a known path.
    open: Vec<(Node, AbsAddr)>,
    /// True if callers of generated code may be wrong.
    is_uncertain: bool,
    has_addresses: bool,
}

impl<'a, 's> Walk<'a, 's> {
    /// Starts a walk through the stacks of `image`. `stacks` can contain stacks of other images too.
    pub(crate) fn new(
        paths: &'s mut CallPaths,
        image: &'a ProcessImage,
        stacks: &'s Stacks,
        code: &'s mut dyn CodeNames,
        names: &'s mut GeneratedNames,
    ) -> Self {
        let depends_on_time = !image.replaced.is_empty() || code.depends_on_time();
        let is_uncertain = code.is_uncertain();
        let visited = if depends_on_time || is_uncertain { 0 } else { stacks.calls().len() };
        Self {
            paths,
            image,
            stacks,
            code,
            names,
            objects: FxHashMap::default(),
            // Most stacks may belong to other images, but zeroed pages that are never touched take no memory.
            visited: vec![0; visited],
            located: FxHashMap::default(),
            open: Vec::new(),
            is_uncertain,
            has_addresses: false,
        }
    }

    /// Returns the path and the end of a stack. A stack without frames has the root as its path.
    pub(crate) fn stack(&mut self, id: StackId) -> (Node, StackEnd) {
        let end = self.stacks.end_of(id);
        let Some((leaf, _, taken)) = self.stacks.find(id) else { return (Node::ROOT, end) };
        if self.is_uncertain {
            let (path, is_cut) = self.certain_path(leaf, taken);
            return (path, if is_cut { StackEnd::GeneratedCut } else { end });
        }
        (self.path(leaf, taken), end)
    }

    /// Returns the key of the totals of a stack. `has_forgotten`: true if the ledger has forgotten IDs of merged
    /// stacks. Then a stack with lost frames counts as a merged stack.
    fn key(&mut self, StackKey { stack, part }: StackKey, has_forgotten: bool) -> PathKey {
        let (path, end) = self.stack(stack);
        let end = if has_forgotten && end == StackEnd::FramesLost { StackEnd::Merged } else { end };
        PathKey { path, end, part }
    }

    /// Removes the totals and histograms by stack from `usage`, and returns them by call path. Calls `each` with every
    /// stack that has totals, and with the key of its path.
    pub(crate) fn totals(&mut self, usage: &mut ImageUsage, mut each: impl FnMut(StackKey, PathKey)) -> PathTotals {
        let (mut stacks_in_other, has_forgotten) = (usage.merged_stacks, usage.has_forgotten);
        let by_stack = std::mem::take(&mut usage.by_stack);
        let entries = by_stack.iter().map(|(&key, quantities)| {
            let path = self.key(key, has_forgotten);
            let merged = match path.end {
                // `merged_stacks` belongs to the whole image, but `StackId::OTHER` has an entry for each part. Only
                // the first entry gets the number.
                StackEnd::Merged if key.stack == StackId::OTHER => std::mem::take(&mut stacks_in_other),
                StackEnd::Merged => 1,
                _ => 0,
            };
            each(key, path);
            (path, quantities, merged)
        });
        // The list contains references, because a copy of the totals would take the same memory again.
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable_by_key(|&(path, ..)| path);
        let totals = PathTotals::from_sorted(entries.into_iter().map(|(path, quantities, merged)| {
            let usage = quantities.with(Quantity::MergedStacks, merged);
            (path, PathUsage { usage, ..PathUsage::default() })
        }));
        drop(by_stack);
        let histograms = std::mem::take(&mut usage.histograms)
            .into_iter()
            .map(|(key, histograms)| (self.key(key, has_forgotten), PathUsage { histograms, ..PathUsage::default() }));
        let histograms: Vec<_> = histograms.collect();
        if histograms.is_empty() { totals } else { totals.merge(PathTotals::new(histograms)) }
    }

    /// Returns the numbers of the objects that contain the located calls.
    pub(crate) fn objects(&self) -> Vec<u32> {
        self.objects.values().copied().collect()
    }

    /// Returns true if a path contains an address outside of all files. Such a path is specific to the process.
    pub(crate) const fn has_addresses(&self) -> bool {
        self.has_addresses
    }

    fn path(&mut self, leaf: Node, taken: Duration) -> Node {
        let (mut call, mut path, mut open) = (leaf, Node::ROOT, std::mem::take(&mut self.open));
        while let Some((caller, frame)) = self.stacks.calls().get(call) {
            let visited = call.index().and_then(|index| self.visited.get(index)).copied().unwrap_or(0);
            if visited != 0 {
                path = Node::from_number(visited);
                break;
            }
            open.push((call, frame));
            call = caller;
        }
        for (call, frame) in open.drain(..).rev() {
            let number = self.number(frame, taken);
            path = self.paths.push_numbered(path, number);
            if let Some(visited) = call.index().and_then(|index| self.visited.get_mut(index)) {
                *visited = path.number();
            }
        }
        self.open = open;
        path
    }

    /// Returns the ID of the call of a frame. Most calls are in many paths, and a look-up by frame is faster than a
    /// search for the mapping.
    fn number(&mut self, frame: AbsAddr, taken: Duration) -> CallId {
        if let Some(&known) = self.located.get(&frame) {
            return known;
        }
        let (located, _) = self.locate(frame, taken);
        let number = self.paths.number(located);
        if !self.visited.is_empty() && self.located.len() < MAX_LOCATED {
            self.located.insert(frame, number);
        }
        number
    }

    /// Returns the certain part of a path, and true if callers were left out. A caller is uncertain if it was found
    /// by frame pointer and its callee may keep no frame pointer.
    fn certain_path(&mut self, leaf: Node, taken: Duration) -> (Node, bool) {
        let (mut call, mut certain, mut finds_caller) = (leaf, Vec::new(), true);
        let mut is_cut = false;
        while let Some((caller, frame)) = self.stacks.calls().get(call) {
            let (located, finds_next) = self.locate(frame, taken);
            if !finds_caller && located.by_frame_pointer {
                self.code.count_cut();
                is_cut = true;
                break;
            }
            finds_caller = finds_next;
            certain.push(located);
            call = caller;
        }
        let path = certain.into_iter().rev().fold(Node::ROOT, |path, located| self.paths.push(path, located));
        (path, is_cut)
    }

    /// Returns the call of a frame. The flag is false if the caller of this call is uncertain.
    fn locate(&mut self, frame: AbsAddr, taken: Duration) -> (Call, bool) {
        let call = CallAddress::new(self.image, frame, taken);
        let mut finds_caller = true;
        let location = match call.mapping(self.image) {
            None => self.outside(call.address, Unnamed::NoMapping),
            Some(mapping) => match &mapping.object {
                None => {
                    let GeneratedFrame { name, finds_caller: finds } = self.names.find(self.code, call.address, taken);
                    finds_caller = finds;
                    match name {
                        Ok(name) => CallLocation::Generated(name),
                        Err(reason) => self.outside(call.address, reason),
                    }
                }
                Some(object) => {
                    let offset = mapping.offset.0.wrapping_add(call.address.0 - mapping.start.0);
                    let paths = &mut *self.paths;
                    let number = *self.objects.entry(Arc::as_ptr(object)).or_insert_with(|| paths.object(object));
                    CallLocation::InObject(number, FileOffset(offset))
                }
            },
        };
        (Call { location, by_frame_pointer: call.by_frame_pointer }, finds_caller)
    }

    const fn outside(&mut self, address: AbsAddr, reason: Unnamed) -> CallLocation {
        self.has_addresses = true;
        CallLocation::OutsideObjects(Some(address), reason)
    }
}

/// Address of a call, and the version of the mappings that applies to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct CallAddress {
    address: AbsAddr,
    /// Version of the mapping at the time of the stack, if another mapping has replaced it since.
    version: Option<Version>,
    /// True if the frame was found by frame pointer.
    by_frame_pointer: bool,
}

impl CallAddress {
    /// Returns the call with the return address `frame`, in a stack that was taken at `taken`. The byte before the
    /// return address belongs to the call instruction.
    fn new(image: &ProcessImage, frame: AbsAddr, taken: Duration) -> Self {
        let (frame, by_frame_pointer) = split_frame(frame);
        let address = AbsAddr(frame.0.saturating_sub(1));
        Self { address, version: image.replaced.holding(address, taken), by_frame_pointer }
    }

    /// Returns the mapping that contained the call when the stack was taken.
    fn mapping(self, image: &ProcessImage) -> Option<&Mapping> {
        image.mapping_in(self.version, self.address)
    }
}
