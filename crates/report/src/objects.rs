//! Grouping by object: the object that calls the allocator.

use memtrace_model::{Frame, FrameId, LabelId, ObjectName, Profile, StackLabels, StackProfile};
use rustc_hash::FxHashMap;

use super::{allocators, library};

/// Prefixes of file names of allocators, and of the dynamic loader, which allocates for new threads.
const SKIPPED_OBJECTS: &[&str] =
    &["libjemalloc.so", "libtcmalloc", "libmimalloc.so", "libmimalloc-", "libsnmalloc", "ld-linux", "ld64.so"];

/// Returns the label of each stack: the path of the object that called the allocator. The caller is the innermost
/// frame outside of allocators, the dynamic loader and the libraries of C, C++ and Rust. If there is no such frame,
/// it is the innermost frame with an object.
#[must_use]
pub fn object_labels(profile: &Profile) -> StackLabels {
    let is_library: Vec<bool> = profile.frames.iter().map(is_library).collect();
    let mut names: Vec<String> = Vec::new();
    let mut numbers: FxHashMap<&ObjectName, LabelId> = FxHashMap::default();
    let object = |frame: &FrameId| profile.frames[frame.index()].object.as_ref();
    let label = |stack: &StackProfile| {
        let mut innermost_first = stack.frames.iter().rev();
        let caller = innermost_first.clone().find(|frame| !is_library[frame.index()] && object(frame).is_some());
        let found = caller.and_then(object).or_else(|| innermost_first.find_map(object));
        found.map(|object| {
            *numbers.entry(object).or_insert_with(|| {
                names.push(object.path.to_string_lossy().into_owned());
                LabelId::new(names.len() - 1)
            })
        })
    };
    StackLabels { of_stacks: profile.stacks.iter().map(label).collect(), names }
}

/// Returns true if the frame belongs to an allocator, to the dynamic loader, or to the library of C, C++ or Rust.
#[must_use]
pub fn is_library(frame: &Frame) -> bool {
    let name = frame.name.as_ref().ok().map(|name| name.0.as_str());
    name.is_some_and(allocators::hands_out)
        || library::of(frame).is_some()
        || library::is_in_c_library(frame)
        || frame.object.as_ref().is_some_and(is_skipped)
}

fn is_skipped(object: &ObjectName) -> bool {
    let file = object.path.file_name().unwrap_or_default().to_string_lossy();
    SKIPPED_OBJECTS.iter().any(|start| file.starts_with(start))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use memtrace_model::{Name, Part, Pid, ProcessProfile, StackEnd, StackProfile};

    use super::*;

    /// Returns the labels of stacks. A stack has functions with their objects, the outermost first.
    fn labels(stacks: &[&[(&str, &str)]]) -> Vec<Option<String>> {
        let mut profile = Profile { processes: vec![ProcessProfile::new(Pid(1), "a")], ..Profile::default() };
        for calls in stacks {
            let first = profile.frames.len();
            profile.frames.extend(calls.iter().map(|(function, object)| Frame {
                object: (!object.is_empty()).then(|| ObjectName { path: PathBuf::from(object), build_id: None }),
                ..Frame::new(Ok(Name((*function).to_owned())))
            }));
            let frames: Arc<[FrameId]> = (first..profile.frames.len()).map(FrameId::new).collect();
            profile.stacks.push(StackProfile::new(0, Part::WHOLE, frames, StackEnd::Complete));
        }
        let StackLabels { of_stacks, names } = object_labels(&profile);
        of_stacks.into_iter().map(|label| label.map(|label| names[label.index()].clone())).collect()
    }

    #[test]
    fn the_innermost_object_outside_of_libraries_calls_the_allocator() {
        let some = |object: &str| Some(object.to_owned());
        let main = ("main", "/bin/server");
        let parse = ("xmlParse", "/lib/libxml2.so.2");
        let found = labels(&[
            &[main, parse],
            &[main, parse, ("strdup", "/lib/libc.so.6")],
            &[main, ("std::vector<int>::push_back(int const&)", "/bin/server")],
            &[main, parse, ("operator new(unsigned long)", "/lib/libstdc++.so.6"), ("malloc", "/lib/libc.so.6")],
            &[main, ("arena_new", "/usr/lib/libjemalloc.so.2")],
            &[main, ("jit", "")],
            &[("_start", "/lib/ld-musl-x86_64.so.1")],
            &[("jit", "")],
            &[],
        ]);
        let (server, xml) = (some("/bin/server"), some("/lib/libxml2.so.2"));
        let expected = [&xml, &xml, &server, &xml, &server, &server, &some("/lib/ld-musl-x86_64.so.1"), &None, &None];
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_object_has_one_label() {
        let main = ("main", "/bin/server");
        let found = labels(&[&[main], &[main, ("f", "/bin/server")]]);
        assert_eq!(found[0], found[1]);
    }
}
