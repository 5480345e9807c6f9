//! Snapshot to Profile: addresses become functions.
//!
//! An address is looked up in the mappings that its process had when the stack was taken, which give an offset in an
//! object's file; the object's program headers
//! give the address that its symbols count by; blazesym names that. Each offset of each object is named once.

mod assemble;
mod debug_file;
mod guard;
mod headers;
mod named_by;
mod names;
mod spot;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use assemble::FramesBySpot;
use names::{Names, ObjectNames};
use spot::Spot;

use crate::model::{
    AbsAddr, FileOffset, Frame, Image, ImageId, Name, Object, ObjectName, Profile, Snapshot, Tick, Unnamed, VirtOffset,
};

pub use named_by::NamedBy;

/// Gives names to addresses, and remembers what it has read.
#[derive(Debug)]
pub struct Symbolizer {
    debug_directories: Vec<PathBuf>,
    objects: HashMap<Arc<Object>, KnownObject>,
}

/// An object and the frames that are known of it.
#[derive(Debug)]
struct KnownObject {
    name: ObjectName,
    names: ObjectNames,
    frames: HashMap<FileOffset, Box<[Frame]>>,
}

/// Where an address lies.
enum Place<'a> {
    /// In an object's file.
    InObject(&'a Arc<Object>, FileOffset),
    /// In no file.
    Nowhere(Unnamed),
}

impl Default for Symbolizer {
    fn default() -> Self {
        Self::new()
    }
}

impl Symbolizer {
    /// A symbolizer that looks for debug files where distributions install them.
    #[must_use]
    pub fn new() -> Self {
        Self::with_debug_directories(debug_file::DIRECTORIES.map(PathBuf::from).into())
    }

    /// A symbolizer that looks for debug files in `directories` below the target's root and below the host's.
    #[must_use]
    pub fn with_debug_directories(directories: Vec<PathBuf>) -> Self {
        Self { debug_directories: directories, objects: HashMap::new() }
    }

    /// What the functions of `object` can be named by.
    #[must_use]
    pub fn named_by(&self, object: &Object) -> NamedBy {
        named_by::named_by(object, &debug_file::directories(object.root.as_deref(), &self.debug_directories))
    }

    /// The stacks with names, the processes and the losses of a snapshot of what was traced during `window`. Duration, cost
    /// and filters are the caller's to add.
    ///
    /// What can't be named keeps its place and its reason; nothing in a target's files makes this fail.
    pub fn profile(&mut self, snapshot: &Snapshot, images: &BTreeMap<ImageId, Image>, window: &Range<Tick>) -> Profile {
        let unknown = Image::default();
        let image_of = |id: ImageId| images.get(&id).unwrap_or(&unknown);
        let spots: BTreeMap<ImageId, BTreeSet<Spot>> =
            snapshot.images.iter().map(|(id, usage)| (*id, assemble::spots(snapshot, usage, image_of(*id)))).collect();

        let mut wanted: HashMap<&Arc<Object>, BTreeSet<FileOffset>> = HashMap::new();
        let mut nowhere: HashMap<(AbsAddr, Unnamed), [Frame; 1]> = HashMap::new();
        for (id, spots) in &spots {
            for spot in spots {
                match place(image_of(*id), *spot) {
                    Place::InObject(object, offset) => {
                        wanted.entry(object).or_default().insert(offset);
                    }
                    Place::Nowhere(reason) => {
                        let address = spot.call();
                        nowhere.entry((address, reason)).or_insert_with(|| [frame_nowhere(address, reason)]);
                    }
                }
            }
        }
        for (object, offsets) in wanted {
            self.learn(object, &offsets);
        }

        let frames_of = |image, spot: Spot| match place(image, spot) {
            Place::InObject(object, offset) => self.objects.get(object)?.frames.get(&offset).map(AsRef::as_ref),
            Place::Nowhere(reason) => nowhere.get(&(spot.call(), reason)).map(<[Frame; 1]>::as_slice),
        };
        let frames_by_spot: FramesBySpot<'_> = spots
            .iter()
            .map(|(&id, spots)| {
                let frames = |&spot: &Spot| Some((spot, frames_of(image_of(id), spot)?));
                (id, spots.iter().filter_map(frames).collect())
            })
            .collect();
        assemble::profile(snapshot, images, &frames_by_spot, window)
    }

    /// Makes sure that the frames at `offsets` of `object` are known.
    fn learn(&mut self, object: &Arc<Object>, offsets: &BTreeSet<FileOffset>) {
        let known = self.objects.entry(Arc::clone(object)).or_insert_with(|| KnownObject {
            name: ObjectName { path: object.path.clone(), build_id: object.build_id.clone() },
            names: ObjectNames::new(object, &self.debug_directories),
            frames: HashMap::new(),
        });
        let new: Vec<FileOffset> =
            offsets.iter().filter(|offset| !known.frames.contains_key(offset)).copied().collect();
        let (mut loaded, mut addresses) = (Vec::new(), Vec::new());
        for offset in new {
            if let Some(address) = known.names.virt_offset(offset) {
                loaded.push(offset);
                addresses.push(address);
            } else {
                // Without headers there is only the file to count by. Code is mostly linked to where it lies in the file,
                // and the kernel's `[vdso]`, which has no file, always.
                let address = VirtOffset(offset.0);
                known.frames.insert(offset, frames(&known.name, address, Err(Unnamed::ObjectUnreadable)));
            }
        }
        let names = known.names.find(&addresses);
        for ((offset, address), names) in loaded.into_iter().zip(addresses).zip(names) {
            known.frames.insert(offset, frames(&known.name, address, names));
        }
    }
}

fn place(image: &Image, spot: Spot) -> Place<'_> {
    let Some(mapping) = spot.mapping(image) else { return Place::Nowhere(Unnamed::NoMapping) };
    let Some(object) = &mapping.object else { return Place::Nowhere(Unnamed::Anonymous) };
    Place::InObject(object, FileOffset(mapping.offset.0.wrapping_add(spot.call().0 - mapping.start.0)))
}

fn frame_nowhere(address: AbsAddr, reason: Unnamed) -> Frame {
    Frame { name: Err(reason), object: None, offset: None, address: Some(address), location: None, inlined: false }
}

/// The frames at one address of an object, outermost first.
fn frames(object: &ObjectName, offset: VirtOffset, names: Names) -> Box<[Frame]> {
    let frame = |name: Result<Name, Unnamed>, location, inlined| Frame {
        name,
        object: Some(object.clone()),
        offset: Some(offset),
        address: None,
        location,
        inlined,
    };
    match names {
        Ok(functions) => functions
            .into_iter()
            .map(|function| frame(function.name.ok_or(Unnamed::NoSymbol), function.location, function.inlined))
            .collect(),
        Err(reason) => [frame(Err(reason), None, false)].into(),
    }
}

#[cfg(test)]
mod tests;
