//! Snapshot to Profile: addresses become functions.
//!
//! The mappings of the process at the time of the stack translate an address to an offset in an object's file. The
//! program headers translate the offset to an address of the object's symbols, for which blazesym finds the function.
//! Each offset of each object is symbolized once.

mod assemble;
mod call_address;
mod call_paths;
mod catch_panic;
mod debug_file;
mod demangle;
mod ended;
mod find_function;
mod frames_of_calls;
mod generated_code;
mod grouped_stacks;
mod headers;
mod live_calls;
mod live_paths;
mod locate;
mod located_process;
mod name_source;
mod numbered;
mod object_names;
mod process;
mod recorded;
mod stack_totals;
mod symbolized;
mod translated_paths;
mod user_probes;

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;

use call_paths::{CallPaths, PathObject};
use locate::LocatedStacks;
use object_names::{Names, ObjectNames};
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::model::{
    AbsAddr, BuildId, FileOffset, Frame, GeneratedCode, ImageId, Name, Object, ObjectName, ProcessImage, Snapshots,
    Tick, Unnamed, VirtOffset,
};

pub use ended::{CompletedImage, EndedProcesses, EndedSettings};
pub use find_function::{FunctionError, FunctionPlace, find_function};
pub use generated_code::ImageCode;
pub use grouped_stacks::{GroupedStack, GroupedStacks};
pub use live_paths::{CallSite, ImageStacks, LiveCall, LivePaths, NewPath, NewPaths};
pub use located_process::LiveChangesByStack;
pub use name_source::NameSource;
pub use recorded::{RecordedPaths, RecordedProcess, RecordedProcesses, RecordedStack};
pub use symbolized::{Symbolized, SymbolizedClasses};
pub use user_probes::user_probes;

/// Opens the file of an object that was closed, if it is still there. Returns the file and a path by which it can be opened
/// as long as the file is open.
pub type Reopen = fn(&Object) -> Option<(File, PathBuf)>;

/// Frames at offsets in objects, the outermost first.
pub type FramesByObject = FxHashMap<ObjectName, BTreeMap<FileOffset, Box<[Frame]>>>;

/// Finds the functions of addresses.
#[derive(Debug)]
pub struct Symbolizer {
    reopen: Reopen,
    debug_directories: Vec<PathBuf>,
    generated_code: BTreeMap<ImageId, GeneratedCode>,
    /// Debug files from elsewhere.
    debug_files: BTreeMap<BuildId, PathBuf>,
    uses_debug_info: bool,
    /// Frames that are known: the object is not read for them.
    frames: FramesByObject,
}

impl Default for Symbolizer {
    fn default() -> Self {
        Self::new()
    }
}

impl Symbolizer {
    /// Creates a symbolizer that looks for debug files in the directories of distributions.
    #[must_use]
    pub fn new() -> Self {
        Self::with_debug_directories(debug_file::DIRECTORIES.map(PathBuf::from).into())
    }

    /// Creates a symbolizer that looks for debug files in `directories`, below the target's root and below the host's.
    #[must_use]
    pub const fn with_debug_directories(directories: Vec<PathBuf>) -> Self {
        Self {
            reopen: |_| None,
            debug_directories: directories,
            debug_files: BTreeMap::new(),
            uses_debug_info: true,
            generated_code: BTreeMap::new(),
            frames: FxHashMap::with_hasher(FxBuildHasher),
        }
    }

    /// Opens files that were closed during the run with `reopen`.
    #[must_use]
    pub fn with_reopen(self, reopen: Reopen) -> Self {
        Self { reopen, ..self }
    }

    /// Reads symbol tables only, which is fast and takes little memory: names without source lines and inlined functions.
    #[must_use]
    pub fn with_symbol_tables_only(self) -> Self {
        Self { uses_debug_info: false, ..self }
    }

    /// Names code that was generated at run time with these files.
    #[must_use]
    pub fn with_generated_code(self, generated_code: BTreeMap<ImageId, GeneratedCode>) -> Self {
        Self { generated_code, ..self }
    }

    /// Returns the best source of function names of `object`.
    #[must_use]
    pub fn name_source(&self, object: &Object) -> NameSource {
        name_source::find(object, &debug_file::directories(object.root.as_deref(), &self.debug_directories))
    }

    /// Adds the debug file of the objects with this build ID. It is used if the directories have none.
    pub fn add_debug_file(&mut self, build_id: BuildId, path: PathBuf) {
        self.debug_files.insert(build_id, path);
    }

    /// Returns the objects in the stacks of `snapshots` and of `ended` that have a build ID, but no debug information on
    /// this machine.
    #[must_use]
    pub fn objects_without_debug_info(
        &self,
        snapshots: &Snapshots,
        images: &BTreeMap<ImageId, ProcessImage>,
        ended: &EndedProcesses,
    ) -> BTreeMap<BuildId, PathBuf> {
        let mut running = CallPaths::default();
        locate::add_calls(&mut running, snapshots, images, |_, image| ImageCode::new(image, None));
        let objects = ended.paths().in_objects().into_iter().chain(running.in_objects());
        let without = objects.filter_map(|(known, calls)| {
            let object = &known.object;
            let build_id = object.build_id.clone().filter(|_| !calls.is_empty())?;
            let source = self.with_file(known, |object| self.name_source(object));
            matches!(source, NameSource::Symbols | NameSource::Exported).then(|| (build_id, object.path.clone()))
        });
        without.collect()
    }

    /// Finds the frames of all calls in objects of `live`, and keeps them: stacks with the same calls are symbolized
    /// without reading the objects again.
    pub fn find_frames(&mut self, live: &LivePaths) {
        for (known, calls) in live.paths().in_objects() {
            let frames = self.frames_in(known, calls.into_keys());
            self.frames.entry(known.name()).or_default().extend(frames);
        }
    }

    /// Names calls with these frames, without reading their objects.
    #[must_use]
    pub fn with_frames(self, frames: FramesByObject) -> Self {
        Self { frames, ..self }
    }

    /// Returns the frames that are known.
    #[must_use]
    pub const fn frames(&self) -> &FramesByObject {
        &self.frames
    }

    /// Symbolizes the stacks of all event classes that were traced during `window`: those of `snapshots`, whose images
    /// are in `images`, and those of the images that have ended before. `changes` are those of their live memory over time,
    /// as far as they are known.
    ///
    /// Frames without a name keep their address and the reason. Damaged files of a target are no error. The snapshots
    /// are consumed: their stacks are not in memory together with the profile.
    #[must_use]
    pub fn symbolize(
        &self,
        snapshots: Snapshots,
        images: &BTreeMap<ImageId, ProcessImage>,
        ended: EndedProcesses,
        window: &Range<Tick>,
        changes: LiveChangesByStack,
    ) -> SymbolizedClasses {
        let code_of = |id, image: &ProcessImage| ImageCode::new(image, self.generated_code.get(&id));
        self.name(LocatedStacks::new(snapshots, images, code_of, ended, window, changes))
    }

    /// Symbolizes the stacks of a recording, of the time `window`. Calls without recorded names get those of the object's
    /// file, if it has the recorded build ID.
    #[must_use]
    pub fn symbolize_recorded(&self, processes: RecordedProcesses, window: &Range<Tick>) -> SymbolizedClasses {
        self.name(LocatedStacks::of_recording(processes, window))
    }

    fn name(&self, located: LocatedStacks) -> SymbolizedClasses {
        let (paths, names) = (&located.paths, &located.names);
        let mut frames: Vec<Box<[Frame]>> = vec![Box::default(); paths.number_of_calls()];
        let mut closed = 0;
        for (known, calls) in paths.in_objects() {
            // Debug information is large: that of an object is released before that of the next one is read.
            let frames_of_object = self.frames_in(known, calls.keys().copied());
            let is_closed =
                |(_, frames): &(_, Box<[Frame]>)| frames.iter().any(|frame| frame.name == Err(Unnamed::ObjectClosed));
            // The notes of a recording have those that the run could not name.
            closed += u64::from(!known.is_recorded && frames_of_object.iter().any(is_closed));
            for (offset, frames_of_call) in frames_of_object {
                for &call in calls.get(&offset).into_iter().flatten() {
                    frames[call] = frames_of_call.clone();
                }
            }
        }
        for (address, reason, call) in paths.outside_objects() {
            frames[call] = [frame_outside_objects(address, reason)].into();
        }
        for (name, call) in paths.generated() {
            frames[call] = [names.frame(name)].into();
        }
        for call in paths.by_frame_pointer() {
            frames[call].iter_mut().for_each(|frame| frame.by_frame_pointer = true);
        }
        SymbolizedClasses::new(located, frames, closed)
    }

    /// Returns the frames at each of `offsets` of an object. Those that are not known are read from its file.
    fn frames_in(
        &self,
        known: &PathObject,
        offsets: impl Iterator<Item = FileOffset>,
    ) -> Vec<(FileOffset, Box<[Frame]>)> {
        // During a run, another file without a build ID can have had the same name.
        let is_certain = known.is_recorded || known.object.build_id.is_some();
        let known_frames = is_certain.then(|| self.frames.get(&known.name())).flatten();
        let (mut frames, mut others) = (Vec::new(), Vec::new());
        for offset in offsets {
            match known_frames.and_then(|frames| frames.get(&offset)) {
                Some(known) => frames.push((offset, known.clone())),
                None => others.push(offset),
            }
        }
        if !others.is_empty() {
            frames.extend(self.with_file(known, |object| {
                let is_closed = known.is_closed && object.handle.is_none();
                let reason = if is_closed { Unnamed::ObjectClosed } else { Unnamed::ObjectUnreadable };
                self.frames_of(object, others, reason)
            }));
        }
        frames
    }

    /// Passes the object to `use_object`, with an open file if it was closed and is still there.
    fn with_file<R>(&self, known: &PathObject, use_object: impl FnOnce(&Object) -> R) -> R {
        match (known.is_closed || known.is_recorded).then(|| (self.reopen)(&known.object)).flatten() {
            Some((_open, handle)) => use_object(&Object { handle: Some(handle), ..(*known.object).clone() }),
            None => use_object(&known.object),
        }
    }

    /// Returns the frames at each of `offsets` of `object`. Without its file, they have no names for the reason
    /// `unreadable`.
    fn frames_of(
        &self,
        object: &Object,
        offsets: Vec<FileOffset>,
        unreadable: Unnamed,
    ) -> Vec<(FileOffset, Box<[Frame]>)> {
        let name = ObjectName { path: object.path.clone(), build_id: object.build_id.clone() };
        let mut names = ObjectNames::new(object, &self.debug_directories, &self.debug_files);
        if !self.uses_debug_info {
            names.forget_debug_info();
        }
        let mut result = Vec::with_capacity(offsets.len());
        let (mut loaded, mut addresses) = (Vec::new(), Vec::new());
        for offset in offsets {
            if let Some(address) = names.virt_offset(offset) {
                loaded.push(offset);
                addresses.push(address);
            } else {
                // Without headers, the file offset stands in for the address. They are equal in most code, and always
                // in the kernel's `[vdso]`, which has no file.
                let address = VirtOffset(offset.0);
                let is_kernel_code = Object::is_kernel_code(&object.path);
                let reason = if is_kernel_code { Unnamed::KernelCode } else { unreadable };
                result.push((offset, frames(&name, address, Err(reason))));
            }
        }
        let functions = names.find(&addresses);
        for ((offset, address), functions) in loaded.into_iter().zip(addresses).zip(functions) {
            result.push((offset, frames(&name, address, functions)));
        }
        result
    }
}

fn frame_outside_objects(address: Option<AbsAddr>, reason: Unnamed) -> Frame {
    Frame { address, ..Frame::new(Err(reason)) }
}

/// Returns the frames at one address of an object, outermost first.
fn frames(object: &ObjectName, offset: VirtOffset, names: Names) -> Box<[Frame]> {
    let frame = |name: Result<Name, Unnamed>, location, inlined| Frame {
        name,
        object: Some(object.clone()),
        offset: Some(offset),
        address: None,
        location,
        inlined,
        by_frame_pointer: false,
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
mod test_code;
#[cfg(test)]
mod tests;
