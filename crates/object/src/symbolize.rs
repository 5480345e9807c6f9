//! Symbolization: converts file offsets in objects to frames with the names of functions.
//!
//! The program headers translate a file offset to an address in the object. A [`FunctionFinder`] finds the function at
//! this address, in this or in another process. The names of JIT code are in perf maps and jitdump files.

mod catch_panic;
mod debug_file;
mod debug_link;
mod demangle;
mod expanded_sections;
mod find_function;
mod find_in_process;
mod find_variables;
mod function_name;
mod functions;
mod generated_code;
mod go_names;
mod headers;
mod name_files;
mod stated_paths;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use debug_file::Search;
use name_files::OpenObject;

use memtrace_model::{
    BuildId, FileOffset, FileState, Frame, Name, Names, Object, ObjectName, PathObject, Unnamed, UserProbe, VirtOffset,
};

use crate::elf::{Elf, Source, user_probes};
use crate::object_files::ObjectFiles;

pub use find_function::{FunctionError, FunctionPlace, NamedFunction, find_function, find_functions};
pub use find_in_process::FindInProcess;
pub use find_variables::{DataAddress, Variable, find_variables, find_variables_named};
pub use functions::{Function, FunctionFinder, FunctionsAtAddress, NameFiles, NamesToRead};
pub use generated_code::ImageCode;
pub use name_files::NameSource;

/// Opens the file of an object again, if it is still there. Returns the file, and a path that opens it as long as the returned
/// file is open.
pub type Reopen = fn(&Object) -> Option<(File, PathBuf)>;

/// Symbolizer of file offsets in objects.
#[derive(Debug)]
pub struct Symbolizer {
    files: &'static dyn ObjectFiles,
    finder: Box<dyn FunctionFinder>,
    reopen: Reopen,
    debug_directories: Vec<PathBuf>,
    /// Debug files that were added, by build ID.
    debug_files: BTreeMap<BuildId, PathBuf>,
    uses_debug_info: bool,
}

impl Symbolizer {
    /// Creates a symbolizer that looks for debug files in the directories of distributions.
    #[must_use]
    pub fn new(files: &'static dyn ObjectFiles, finder: Box<dyn FunctionFinder>) -> Self {
        Self::with_debug_directories(files, finder, debug_file::DIRECTORIES.map(PathBuf::from).into())
    }

    /// Creates a symbolizer that looks for debug files in `directories`, below the target's root and below the host's
    /// root.
    #[must_use]
    pub(crate) fn with_debug_directories(
        files: &'static dyn ObjectFiles,
        finder: Box<dyn FunctionFinder>,
        directories: Vec<PathBuf>,
    ) -> Self {
        Self {
            files,
            finder,
            reopen: |_| None,
            debug_directories: directories,
            debug_files: BTreeMap::new(),
            uses_debug_info: true,
        }
    }

    /// Sets `reopen`, which opens files that were closed during the run.
    #[must_use]
    pub fn with_reopen(self, reopen: Reopen) -> Self {
        Self { reopen, ..self }
    }

    /// Makes the symbolizer read symbol tables only. This is fast and takes little memory, but gives neither source
    /// lines nor inlined functions.
    #[must_use]
    pub fn with_symbol_tables_only(self) -> Self {
        Self { uses_debug_info: false, ..self }
    }

    /// Returns the best source of function names of `object`.
    #[must_use]
    pub fn name_source(&self, object: &Object) -> NameSource {
        let search = self.search(object);
        OpenObject::open(&search).map_or(NameSource::None, |open| open.name_source(&search))
    }

    fn search<'a>(&'a self, object: &'a Object) -> Search<'a> {
        Search { object, directories: &self.debug_directories, files: self.files }
    }

    /// Adds a debug file for the objects with this build ID. It is used if the directories of debug files have none.
    pub fn add_debug_file(&mut self, build_id: BuildId, path: PathBuf) {
        self.debug_files.insert(build_id, path);
    }

    /// Returns the build IDs and paths of the `objects` that have a build ID, but no debug information on this machine.
    #[must_use]
    pub fn objects_without_debug_info(&self, objects: &[PathObject]) -> BTreeMap<BuildId, PathBuf> {
        let without = objects.iter().filter_map(|known| {
            let build_id = known.object.build_id.clone()?;
            let source = self.with_file(known, |object| self.name_source(object));
            matches!(source, NameSource::Symbols | NameSource::Exported).then(|| (build_id, known.object.path.clone()))
        });
        without.collect()
    }

    /// Passes the object to `use_object`. If its file was closed and is still there, the file is opened again for
    /// this call.
    fn with_file<R>(&self, known: &PathObject, use_object: impl FnOnce(&Object) -> R) -> R {
        match (known.file != FileState::Kept).then(|| (self.reopen)(&known.object)).flatten() {
            Some((_open, handle)) => use_object(&Object { handle: Some(handle), ..(*known.object).clone() }),
            None => use_object(&known.object),
        }
    }

    /// Returns the frames at each of `offsets` in the file of `object`. If the file cannot be read, the frames have
    /// no names, with the reason `unreadable`.
    fn frames_of(&self, object: &Object, offsets: &[FileOffset], unreadable: Unnamed) -> Vec<Box<[Frame]>> {
        let name = ObjectName { path: object.path.clone(), build_id: object.build_id.clone() };
        let search = self.search(object);
        let open = OpenObject::open(&search);
        let unreadable = match &open {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Unnamed::FileTimeout,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Unnamed::NamesSkipped,
            _ => unreadable,
        };
        let mut result = vec![Box::default(); offsets.len()];
        let (mut loaded, mut addresses) = (Vec::new(), Vec::new());
        for (index, &offset) in offsets.iter().enumerate() {
            if let Some(address) = open.as_ref().ok().and_then(|open| open.virt_offset(offset)) {
                loaded.push(index);
                addresses.push(address);
            } else {
                // Without headers, the file offset is used as the address. The two are equal in most objects, and
                // always in the vDSO, which has no file.
                let address = VirtOffset(offset.0);
                let is_kernel_code = Object::is_kernel_code(&object.path);
                let reason = if is_kernel_code { Unnamed::KernelCode } else { unreadable };
                result[index] = frames(&name, address, Err(reason));
            }
        }
        let Ok(open) = open else { return result };
        let added = |build_id: &BuildId| self.debug_files.get(build_id).cloned();
        let functions = self.finder.find(&open.into_name_files(&search, added, self.uses_debug_info), &addresses);
        for ((index, address), functions) in loaded.into_iter().zip(addresses).zip(functions) {
            result[index] = frames(&name, address, functions);
        }
        result
    }
}

/// Damaged files of a target are no error: frames in them have no names.
impl Names for Symbolizer {
    fn frames(&self, known: &PathObject, offsets: &[FileOffset]) -> Vec<Box<[Frame]>> {
        if offsets.is_empty() {
            return Vec::new();
        }
        self.with_file(known, |object| {
            let is_closed = known.file == FileState::Closed && object.handle.is_none();
            let reason = if is_closed { Unnamed::ObjectClosed } else { Unnamed::ObjectUnreadable };
            self.frames_of(object, offsets, reason)
        })
    }
}

/// Returns the frames at one address of an object, outermost first.
fn frames(object: &ObjectName, offset: VirtOffset, functions: FunctionsAtAddress) -> Box<[Frame]> {
    let frame = |name: Result<Name, Unnamed>, location, inlined| Frame {
        name,
        object: Some(object.clone()),
        offset: Some(offset),
        address: None,
        location,
        inlined,
        by_frame_pointer: false,
    };
    match functions {
        Ok(functions) => functions
            .into_iter()
            .map(|function| frame(function.name.ok_or(Unnamed::NoSymbol), function.location, function.inlined))
            .collect(),
        Err(reason) => [frame(Err(reason), None, false)].into(),
    }
}

/// Returns the probes of `provider` in the file `source`.
///
/// # Errors
///
/// If the file cannot be read, or has no probe of this provider.
pub fn user_probes<S: Source>(source: S, provider: &str) -> Result<Vec<UserProbe>, FunctionError> {
    let probes = user_probes::find(&Elf::parse(source)?, provider)?;
    if probes.is_empty() { Err(FunctionError::NoProbe) } else { Ok(probes) }
}

#[cfg(test)]
mod tests;
