//! Names of the functions that processes have generated at run time. Each name is stored once.

mod function_name;

use std::collections::BTreeMap;
use std::time::Duration;

use memtrace_model::{AbsAddr, CodeNames, Comm, Frame, GeneratedFunction, ImageId, Location, Name, Unnamed, format};

use self::function_name::FunctionName;
use super::numbered::Numbered;

/// Index of a distinct name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NameId(u32);

/// Names of generated code in all images.
#[derive(Debug)]
pub(super) struct GeneratedNames {
    names: Numbered<Box<str>>,
    bytes: usize,
    /// Maximum of `bytes`. Further names are left out.
    max_bytes: usize,
    /// Number of lookups of names that were left out.
    left_out: u64,
    advice: Advice,
}

impl NameId {
    /// Returns the index. A later name has a higher index.
    pub(super) const fn number(self) -> u32 {
        self.0
    }
}

/// A generated function in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GeneratedFrame {
    pub(super) name: Result<NameId, Unnamed>,
    /// False if the function may not maintain a frame pointer, so that its caller is uncertain.
    pub(super) finds_caller: bool,
}

/// Removal of names: only names that are passed to [`Self::keep`] remain.
pub(super) struct RetainedNames<'a> {
    all: &'a mut GeneratedNames,
    old: Numbered<Box<str>>,
}

impl GeneratedNames {
    /// Returns an empty collection. `max_bytes`: maximum size of all names together.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { names: Numbered::default(), bytes: 0, max_bytes, left_out: 0, advice: Advice::default() }
    }

    /// Returns the function at `address` of an image. `taken`: time of the stack, since tracing began.
    pub(super) fn find(&mut self, code: &mut dyn CodeNames, address: AbsAddr, taken: Duration) -> GeneratedFrame {
        let GeneratedFunction { name, finds_caller } = code.find(address, taken);
        GeneratedFrame { name: name.and_then(|name| self.number(&name)), finds_caller }
    }

    /// Adds a name of another collection.
    pub(super) fn copy(&mut self, other: &Self, name: NameId) -> Result<NameId, Unnamed> {
        self.number(other.names.get(name.0))
    }

    fn number(&mut self, name: &str) -> Result<NameId, Unnamed> {
        if let Some(known) = self.names.find(name) {
            return Ok(NameId(known));
        }
        if self.bytes + name.len() > self.max_bytes {
            self.left_out += 1;
            return Err(Unnamed::Anonymous);
        }
        self.bytes += name.len();
        Ok(NameId(self.names.number(name, || name.into())))
    }

    /// Records the advice of `code` about missing names and stacks of the image `id`. `comm`: name of its process.
    pub(super) fn note(&mut self, id: ImageId, comm: &Comm, code: &dyn CodeNames) {
        self.advice.add(id, comm, code.advice());
    }

    /// Returns the frame of a name.
    pub(super) fn frame(&self, id: NameId) -> Frame {
        let FunctionName { name, location } = FunctionName::parse(self.names.get(id.0));
        let location = location.map(|(file, line)| Location { file: file.into(), line: Some(line) });
        Frame { location, ..Frame::new(Ok(Name(name))) }
    }

    /// Skips the first `count` names. Returns the index and the frame of each further name.
    pub(super) fn frames_after(&self, count: usize) -> impl Iterator<Item = (u32, Frame)> + '_ {
        (count as u32..self.names.len() as u32).map(|number| (number, self.frame(NameId(number))))
    }

    /// Starts a removal of names: only names that are passed to [`RetainedNames::keep`] remain.
    pub(super) fn retain(&mut self) -> RetainedNames<'_> {
        self.bytes = 0;
        let old = std::mem::take(&mut self.names);
        RetainedNames { all: self, old }
    }

    /// Returns advice about names and stacks that are missing: one sentence for each cause.
    pub(super) fn advice(&self) -> Vec<String> {
        let left_out = (self.left_out > 0).then(|| {
            let names = format::counted(self.left_out, "frame", "frames");
            format!("{names} in generated code have no name, because too many distinct names would use much memory")
        });
        self.advice.sentences().into_iter().chain(left_out).collect()
    }
}

impl RetainedNames<'_> {
    /// Keeps a name, and returns its new index.
    pub(super) fn keep(&mut self, NameId(old): NameId) -> NameId {
        let name = self.old.get(old);
        let known = self.all.names.len();
        let number = self.all.names.number(name, || name.clone());
        if self.all.names.len() > known {
            self.all.bytes += name.len();
        }
        NameId(number)
    }
}

/// Advice about missing names and stacks, with the images that each advice concerns.
#[derive(Debug, Default)]
struct Advice(BTreeMap<String, Concerned>);

/// Images with the same advice: the image with the lowest ID, and the number of images.
#[derive(Debug)]
struct Concerned {
    first: ImageId,
    process: String,
    images: u64,
}

impl Advice {
    /// Adds the advice about an image with the name `comm`.
    fn add(&mut self, id: ImageId, comm: &Comm, advice: Vec<String>) {
        for text in advice {
            let new = || Concerned { first: id, process: comm.to_string(), images: 0 };
            let concerned = self.0.entry(text).or_insert_with(new);
            if id < concerned.first {
                (concerned.first, concerned.process) = (id, comm.to_string());
            }
            concerned.images += 1;
        }
    }

    /// Returns one sentence for each cause.
    fn sentences(&self) -> Vec<String> {
        let sentence = |(text, Concerned { first, process, images }): (&String, &Concerned)| match images {
            1 => format!("{process} (pid {}): {text}", first.pid),
            _ => format!("{process} (pid {}) and {} more: {text}", first.pid, images - 1),
        };
        self.0.iter().map(sentence).collect()
    }
}
