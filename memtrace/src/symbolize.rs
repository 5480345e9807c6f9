//! Snapshot to Profile: addresses become functions.
//!
//! An address is looked up in its process' mappings, which give an offset in an object's file; the object's program headers
//! give the address that its symbols count by; blazesym names that. Each offset of each object is named once.

mod assemble;
mod debug_file;
mod guard;
mod headers;
mod named_by;
mod names;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use assemble::FramesByAddress;
use names::{Names, ObjectNames};

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
        let addresses: BTreeMap<ImageId, BTreeSet<AbsAddr>> =
            snapshot.images.iter().map(|(id, usage)| (*id, assemble::addresses(snapshot, usage))).collect();

        let mut wanted: HashMap<&Arc<Object>, BTreeSet<FileOffset>> = HashMap::new();
        let mut nowhere: HashMap<(AbsAddr, Unnamed), [Frame; 1]> = HashMap::new();
        for (id, addresses) in &addresses {
            for address in addresses {
                match place(image_of(*id), call(*address)) {
                    Place::InObject(object, offset) => {
                        wanted.entry(object).or_default().insert(offset);
                    }
                    Place::Nowhere(reason) => {
                        let address = call(*address);
                        nowhere.entry((address, reason)).or_insert_with(|| [frame_nowhere(address, reason)]);
                    }
                }
            }
        }
        for (object, offsets) in wanted {
            self.learn(object, &offsets);
        }

        let frames_of = |image, address| match place(image, call(address)) {
            Place::InObject(object, offset) => self.objects.get(object)?.frames.get(&offset).map(AsRef::as_ref),
            Place::Nowhere(reason) => nowhere.get(&(call(address), reason)).map(<[Frame; 1]>::as_slice),
        };
        let frames_by_address: FramesByAddress<'_> = addresses
            .iter()
            .map(|(&id, addresses)| {
                let frames = |&address: &AbsAddr| Some((address, frames_of(image_of(id), address)?));
                (id, addresses.iter().filter_map(frames).collect())
            })
            .collect();
        assemble::profile(snapshot, images, &frames_by_address, window)
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

/// The address of the call that returns to `address`: the byte before is in it.
const fn call(address: AbsAddr) -> AbsAddr {
    AbsAddr(address.0.saturating_sub(1))
}

fn place(image: &Image, address: AbsAddr) -> Place<'_> {
    let Some(mapping) = image.mapping_at(address) else { return Place::Nowhere(Unnamed::NoMapping) };
    let Some(object) = &mapping.object else { return Place::Nowhere(Unnamed::Anonymous) };
    Place::InObject(object, FileOffset(mapping.offset.0.wrapping_add(address.0 - mapping.start.0)))
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
