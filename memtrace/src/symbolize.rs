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
mod paths;
mod spot;
mod symbolized;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use names::{Names, ObjectNames};
use paths::Paths;

use crate::model::{
    AbsAddr, FileOffset, Frame, ImageId, Name, Object, ObjectName, ProcessImage, Snapshot, Tick, Unnamed, VirtOffset,
};

pub use named_by::NamedBy;
pub use symbolized::Symbolized;

/// Gives names to addresses.
#[derive(Debug)]
pub struct Symbolizer {
    debug_directories: Vec<PathBuf>,
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
    pub const fn with_debug_directories(directories: Vec<PathBuf>) -> Self {
        Self { debug_directories: directories }
    }

    /// What the functions of `object` can be named by.
    #[must_use]
    pub fn named_by(&self, object: &Object) -> NamedBy {
        named_by::named_by(object, &debug_file::directories(object.root.as_deref(), &self.debug_directories))
    }

    /// Names the stacks of a snapshot that was traced during `window`.
    ///
    /// Frames without a name keep their address and the reason; nothing in a target's files makes this fail. The snapshot is
    /// consumed, so that it is not in memory together with the profile.
    #[must_use]
    pub fn symbolize(
        &self,
        snapshot: Snapshot,
        images: &BTreeMap<ImageId, ProcessImage>,
        window: &Range<Tick>,
    ) -> Symbolized {
        let paths = Paths::of(&snapshot, images);
        let Snapshot { images: books, stacks, losses, oom_kills } = snapshot;
        drop(stacks);
        let mut frames: Vec<Box<[Frame]>> = vec![Box::default(); paths.len()];
        for (object, places) in paths.in_objects() {
            // What was read of an object is given back before the next one is read: debug information is large.
            for (offset, found) in self.frames_of(object, places.keys().copied().collect()) {
                if let Some(&place) = places.get(&offset) {
                    frames[place] = found;
                }
            }
        }
        for (address, reason, place) in paths.nowhere() {
            frames[place] = [frame_nowhere(address, reason)].into();
        }
        let stacks = assemble::name_stacks(books, images, &paths, frames, window);
        Symbolized::new(stacks, oom_kills.into_iter().collect(), losses)
    }

    /// The frames at `offsets` of `object`.
    fn frames_of(&self, object: &Object, offsets: Vec<FileOffset>) -> Vec<(FileOffset, Box<[Frame]>)> {
        let name = ObjectName { path: object.path.clone(), build_id: object.build_id.clone() };
        let mut known = ObjectNames::new(object, &self.debug_directories);
        let mut found = Vec::with_capacity(offsets.len());
        let (mut loaded, mut addresses) = (Vec::new(), Vec::new());
        for offset in offsets {
            if let Some(address) = known.virt_offset(offset) {
                loaded.push(offset);
                addresses.push(address);
            } else {
                // Without headers there is only the file to count by. Code is mostly linked to where it lies in the file,
                // and the kernel's `[vdso]`, which has no file, always.
                let address = VirtOffset(offset.0);
                found.push((offset, frames(&name, address, Err(Unnamed::ObjectUnreadable))));
            }
        }
        let names = known.find(&addresses);
        for ((offset, address), names) in loaded.into_iter().zip(addresses).zip(names) {
            found.push((offset, frames(&name, address, names)));
        }
        found
    }
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
