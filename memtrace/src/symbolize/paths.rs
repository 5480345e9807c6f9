//! Where the calls of all stacks lie: each place once, and what stacks of any process share of them once. Pure.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use rustc_hash::FxHashMap;

use super::spot::Spot;
use crate::model::{
    AbsAddr, FileOffset, ImageId, Node, Object, ProcessImage, Snapshot, StackEnd, StackId, Stacks, Tree, Unnamed,
};

/// Where a call lies: its number among all such places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PlaceId(u32);

/// Where a call lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// In the file of the object of that number.
    InObject(u32, FileOffset),
    /// In no file.
    Nowhere(AbsAddr, Unnamed),
}

/// The places of all calls in the stacks of a snapshot, and the stacks as sequences of them.
#[derive(Debug, Default)]
pub(super) struct Paths<'a> {
    objects: FxHashMap<&'a Arc<Object>, u32>,
    places: FxHashMap<Place, PlaceId>,
    /// Root first. Processes that run the same program share these, wherever its code lies in each.
    tree: Tree<PlaceId>,
    stacks: Vec<(Node, StackEnd)>,
}

impl<'a> Paths<'a> {
    /// Of all stacks in the books of `snapshot`'s images, about which `images` says what they had mapped.
    pub(super) fn of(snapshot: &Snapshot, images: &'a BTreeMap<ImageId, ProcessImage>) -> Self {
        static UNKNOWN: LazyLock<ProcessImage> = LazyLock::new(ProcessImage::default);
        let mut paths = Self::default();
        for (id, usage) in &snapshot.images {
            let mut walk = Walk {
                image: images.get(id).unwrap_or(&UNKNOWN),
                stacks: &snapshot.stacks,
                known: FxHashMap::default(),
            };
            for key in usage.by_stack.keys() {
                let node = walk.path(key.stack, &mut paths);
                paths.stacks.push((node, snapshot.end_of(key.stack)));
            }
        }
        paths
    }

    /// The stacks of all images, and how they end, in the order in which a snapshot has them.
    pub(super) fn stacks(&self) -> &[(Node, StackEnd)] {
        &self.stacks
    }

    /// The places of a stack, root first.
    pub(super) fn places(&self, stack: Node) -> Vec<usize> {
        let mut places: Vec<_> = self.tree.to_root(stack).map(|place| place.0 as usize).collect();
        places.reverse();
        places
    }

    /// How many places there are.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The places in objects, by object, each with its number.
    pub(super) fn in_objects(&self) -> Vec<(&'a Arc<Object>, BTreeMap<FileOffset, usize>)> {
        let mut by_number: BTreeMap<u32, BTreeMap<FileOffset, usize>> = BTreeMap::new();
        for (place, id) in &self.places {
            if let Place::InObject(object, offset) = *place {
                by_number.entry(object).or_default().insert(offset, id.0 as usize);
            }
        }
        let mut objects: Vec<_> = self.objects.iter().map(|(&object, &number)| (number, object)).collect();
        objects.sort_unstable_by_key(|&(number, _)| number);
        objects.into_iter().map(|(number, object)| (object, by_number.remove(&number).unwrap_or_default())).collect()
    }

    /// The places in no file, each with its number.
    pub(super) fn nowhere(&self) -> impl Iterator<Item = (AbsAddr, Unnamed, usize)> + '_ {
        self.places.iter().filter_map(|(place, id)| match *place {
            Place::Nowhere(address, reason) => Some((address, reason, id.0 as usize)),
            Place::InObject(..) => None,
        })
    }

    /// The place of `spot` in `image`.
    fn place(&mut self, image: &'a ProcessImage, spot: Spot) -> PlaceId {
        let place = match spot.mapping(image) {
            None => Place::Nowhere(spot.call(), Unnamed::NoMapping),
            Some(mapping) => match &mapping.object {
                None => Place::Nowhere(spot.call(), Unnamed::Anonymous),
                Some(object) => {
                    // There are far fewer than 2^32 of either.
                    let next = self.objects.len() as u32;
                    let number = *self.objects.entry(object).or_insert(next);
                    let offset = mapping.offset.0.wrapping_add(spot.call().0 - mapping.start.0);
                    Place::InObject(number, FileOffset(offset))
                }
            },
        };
        let next = PlaceId(self.places.len() as u32);
        *self.places.entry(place).or_insert(next)
    }
}

/// The walk through the stacks of one image.
struct Walk<'a, 's> {
    image: &'a ProcessImage,
    stacks: &'s Stacks,
    /// Calls whose path is known. Where mappings were replaced, a call's place depends on when its stack was taken, and
    /// nothing is kept here.
    known: FxHashMap<Node, Node>,
}

impl<'a> Walk<'a, '_> {
    /// The path of a stack; the root where it has no frames.
    fn path(&mut self, stack: StackId, paths: &mut Paths<'a>) -> Node {
        let Some((leaf, _, taken)) = self.stacks.find(stack) else { return Node::ROOT };
        let (mut call, mut path, mut open) = (leaf, Node::ROOT, Vec::new());
        while let Some((caller, frame)) = self.stacks.calls().get(call) {
            if let Some(&known) = self.known.get(&call) {
                path = known;
                break;
            }
            open.push((call, frame));
            call = caller;
        }
        for (call, frame) in open.into_iter().rev() {
            let place = paths.place(self.image, Spot::of(self.image, frame, taken));
            // Never without a node: these are no more than the stacks' own.
            path = paths.tree.push(path, place).unwrap_or(path);
            if self.image.replaced.is_empty() {
                self.known.insert(call, path);
            }
        }
        path
    }
}
