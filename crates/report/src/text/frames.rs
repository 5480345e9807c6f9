//! Frames in the text report: name and location.

use std::collections::HashMap;

use memtrace_model::{Frame, FrameId, Location, Profile, plain};

use crate::library::{self, Library};
use crate::{escape, format};

/// Maximum length of a name. Names of C++ templates can have thousands of characters.
const NAME_CHARACTERS: usize = 240;

/// Text of a frame. Frames with the same text are equal, for example two calls in one source line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shown {
    pub name: String,
    pub place: String,
    /// True for a function of the program, which no line may hide ([`library::is_of_program`]).
    pub is_of_program: bool,
}

/// An index into [`Frames::shown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ShownId(usize);

/// The frames of a profile as text.
pub(crate) struct Frames<'profile> {
    frames: &'profile [Frame],
    /// Text and library of each frame, by frame ID.
    known: Vec<(ShownId, Option<Library>)>,
    /// Texts of frames, each once.
    shown: Vec<Shown>,
}

impl<'profile> Frames<'profile> {
    pub(crate) fn new(profile: &'profile Profile) -> Self {
        let mut ids = HashMap::new();
        let mut shown = Vec::new();
        let known = profile.frames.iter().map(|frame| {
            let is_of_program = library::is_of_program(frame);
            let text = Shown { name: name(frame), place: place(frame), is_of_program };
            let id = *ids.entry(text).or_insert_with_key(|text| {
                shown.push(text.clone());
                ShownId(shown.len() - 1)
            });
            (id, library::of(frame))
        });
        let known = known.collect();
        Self { frames: &profile.frames, known, shown }
    }

    pub(crate) fn id(&self, frame: FrameId) -> ShownId {
        self.known[frame.index()].0
    }

    pub(crate) fn shown(&self, id: ShownId) -> &Shown {
        &self.shown[id.0]
    }

    /// Returns the Rust or C++ library that contains the frame; `None` for other code.
    pub(super) fn library(&self, frame: FrameId) -> Option<Library> {
        self.known[frame.index()].1
    }

    /// Returns the library of `frame`, provided that all callers of `frame` are library frames; `None` for user code.
    /// `callee`: frame that `frame` calls.
    pub(super) fn library_at_root(&self, frame: FrameId, callee: Option<FrameId>) -> Option<Library> {
        let of = |id: FrameId| &self.frames[id.index()];
        let starts_in_rust = || callee.is_some_and(|callee| library::is_rust_main(of(frame), of(callee)));
        self.library(frame)
            .or_else(|| library::starts_in_c(of(frame)).then_some(Library::C))
            .or_else(|| starts_in_rust().then_some(Library::Rust))
    }
}

fn name(frame: &Frame) -> String {
    format::shortened_name(&escape::visible(&frame.label()), NAME_CHARACTERS)
}

/// Returns the source line. Without a source line, returns the reason for a missing name, or else the object.
fn place(frame: &Frame) -> String {
    let place = match (&frame.name, &frame.location, &frame.object) {
        (_, Some(location), _) => source(location),
        (Err(reason), None, _) => format!("({})", reason.explanation()),
        (Ok(_), None, Some(object)) => {
            object.path.file_name().unwrap_or(object.path.as_os_str()).to_string_lossy().into_owned()
        }
        (Ok(_), None, None) => String::new(),
    };
    let inlined = if frame.inlined { " (inlined)" } else { "" };
    format!("{}{inlined}", plain(&place))
}

/// Returns the path and the line. A long path is shortened at the start, because its last components distinguish
/// files.
fn source(location: &Location) -> String {
    const CHARACTERS: usize = 48;
    let path = location.file.to_string_lossy();
    let excess = path.chars().count().saturating_sub(CHARACTERS);
    let short = match path.char_indices().nth(excess) {
        Some((start, _)) if excess > 0 => {
            let tail = &path[start..];
            format!("…{}", tail.find('/').map_or(tail, |slash| &tail[slash..]))
        }
        _ => path.into_owned(),
    };
    match location.line {
        Some(line) => format!("{short}:{line}"),
        None => short,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_long_path_keeps_its_last_components() {
        let source = |file: &str| source(&Location { file: PathBuf::from(file), line: Some(7) });
        assert_eq!(source("src/main.c"), "src/main.c:7");
        assert_eq!(
            source("/home/someone/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/hashbrown-0.17.0/src/raw.rs"),
            "…/hashbrown-0.17.0/src/raw.rs:7"
        );
        assert_eq!(source(&"ä".repeat(60)), format!("…{}:7", "ä".repeat(48)));
    }
}
