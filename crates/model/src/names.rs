//! Names of functions: the interface between stacks and the sources of names.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::{AbsAddr, FileOffset, Frame, Object, ObjectName, Unnamed};

/// Source of the names of functions in objects.
pub trait Names {
    /// Returns the frames of the call at each of `offsets` in the file of `object`, ordered like `offsets`. The
    /// frames of a call are the function and its inline frames, the outermost first. A call without a name has one
    /// frame with the reason.
    fn frames(&self, object: &PathObject, offsets: &[FileOffset]) -> Vec<Box<[Frame]>>;
}

impl<N: Names + ?Sized> Names for &N {
    fn frames(&self, object: &PathObject, offsets: &[FileOffset]) -> Vec<Box<[Frame]>> {
        (**self).frames(object, offsets)
    }
}

/// Object in call paths.
///
/// Objects with a build ID are equal if build ID and path are equal. The handles are not compared, because a file that
/// was opened repeatedly has several handles.
#[derive(Clone, Debug)]
pub struct PathObject {
    /// ELF file of the call paths.
    pub object: Arc<Object>,
    /// State of the object's file.
    pub file: FileState,
}

/// State of the file of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// The run keeps the handle of the object, if the object has one.
    Kept,
    /// The run closed the handle before the functions of the object were symbolized.
    Closed,
    /// The object is read from a recording, and has no handle.
    Recorded,
}

impl PathObject {
    /// Returns the name of the object in reports.
    #[must_use]
    pub fn name(&self) -> ObjectName {
        ObjectName { path: self.object.path.clone(), build_id: self.object.build_id.clone() }
    }
}

impl PartialEq for PathObject {
    fn eq(&self, other: &Self) -> bool {
        let (ours, theirs) = (&*self.object, &*other.object);
        match (&ours.build_id, &theirs.build_id) {
            (Some(our_id), Some(their_id)) => our_id == their_id && ours.path == theirs.path,
            (None, None) => ours == theirs,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl Eq for PathObject {}

impl Hash for PathObject {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.object.path.hash(state);
        self.object.build_id.hash(state);
    }
}

/// Source of the names of JIT code of one process image.
pub trait CodeNames {
    /// Returns true if the name of an address can change over time.
    fn depends_on_time(&self) -> bool;

    /// Returns true if callers that were found through JIT code may be wrong.
    fn is_uncertain(&self) -> bool;

    /// Returns the function at `address` at the time `taken` since tracing began.
    fn find(&mut self, address: AbsAddr, taken: Duration) -> GeneratedFunction<'_>;

    /// Counts a stack that was cut in JIT code.
    fn count_cut(&mut self);

    /// Returns a sentence for each reason for missing names or stacks.
    fn advice(&self) -> Vec<String>;
}

/// A function in JIT code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedFunction<'a> {
    /// Name as the language runtime writes it, or the reason for a missing name.
    pub name: Result<Cow<'a, str>, Unnamed>,
    /// True if the function keeps a frame pointer. If it is false, the caller of the function is uncertain.
    pub finds_caller: bool,
}
