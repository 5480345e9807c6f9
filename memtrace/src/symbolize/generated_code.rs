//! Names of code that processes have generated at run time, from their perf maps and jitdump files.

mod code_ranges;
mod function_name;
mod jitdump;
mod perf_map;
mod runtime;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustc_hash::FxHashMap;

use self::code_ranges::CodeRanges;
use self::runtime::Runtime;
use crate::model::{
    AbsAddr, Frame, GeneratedCode, ImageId, Location, Name, NoPerfMap, ProcessImage, Unnamed, printable,
};

pub(super) use function_name::FunctionName;

/// Number of a distinct name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NameId(u32);

/// Names of generated code, by process image. Files are read when the first address in them is looked up.
#[derive(Debug)]
pub(super) struct GeneratedNames<'a> {
    code: &'a BTreeMap<ImageId, GeneratedCode>,
    images: BTreeMap<ImageId, ImageNames>,
    ids: FxHashMap<Box<str>, NameId>,
    names: Vec<Box<str>>,
}

/// Names of an image.
#[derive(Debug)]
struct ImageNames {
    jitdumps: Vec<CodeRanges>,
    perf_map: Result<CodeRanges, NoPerfMap>,
    runtime: Runtime,
    /// Frames without a name, and stacks that were cut because frame pointers are not reliable.
    unnamed: u64,
    cut: u64,
}

/// A generated function in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GeneratedFrame {
    pub(super) name: Result<NameId, Unnamed>,
    /// False if the function may keep no frame pointer, so that its caller is uncertain.
    pub(super) finds_caller: bool,
}

impl<'a> GeneratedNames<'a> {
    pub(super) const fn new(code: &'a BTreeMap<ImageId, GeneratedCode>) -> Self {
        Self {
            code,
            images: BTreeMap::new(),
            ids: FxHashMap::with_hasher(rustc_hash::FxBuildHasher),
            names: Vec::new(),
        }
    }

    /// Returns true if the name of an address in `image` can depend on the time.
    pub(super) fn depends_on_time(&self, image: ImageId) -> bool {
        self.code.get(&image).is_some_and(|code| !code.jitdumps.is_empty())
    }

    /// Returns true if frames that were found through generated code of `image` may be wrong.
    pub(super) fn is_uncertain(&self, id: ImageId, image: &ProcessImage) -> bool {
        Runtime::of(image) == Runtime::HotSpot && !self.code.get(&id).is_some_and(|code| code.keeps_frame_pointers)
    }

    /// Returns the function at `address` of `image` at time `taken`, since tracing began.
    pub(super) fn find(
        &mut self,
        id: ImageId,
        image: &ProcessImage,
        address: AbsAddr,
        taken: Duration,
    ) -> GeneratedFrame {
        let code = self.code.get(&id);
        let names = match self.images.entry(id) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(ImageNames::read(code, image)),
        };
        let at = code.map_or(taken, |code| code.clock_start + taken);
        let found = names.find(address, at);
        let is_uncertain = names.runtime == Runtime::HotSpot && !code.is_some_and(|code| code.keeps_frame_pointers);
        let finds_caller = !is_uncertain || found.as_deref().is_ok_and(runtime::hotspot_keeps_frame_pointer);
        if found.is_err() {
            names.unnamed += 1;
        }
        let name = found.map(|name| {
            let next = NameId(self.names.len() as u32);
            match self.ids.get(&*name) {
                Some(&known) => known,
                None => {
                    self.ids.insert(name.clone().into(), next);
                    self.names.push(name.into());
                    next
                }
            }
        });
        GeneratedFrame { name, finds_caller }
    }

    /// Records that a stack of `image` was cut at generated code.
    pub(super) fn count_cut(&mut self, image: ImageId) {
        if let Some(names) = self.images.get_mut(&image) {
            names.cut += 1;
        }
    }

    /// Returns the frame of a name.
    pub(super) fn frame(&self, id: NameId) -> Frame {
        let FunctionName { name, location } = FunctionName::parse(&self.names[id.0 as usize]);
        let location = location.map(|(file, line)| Location { file: file.into(), line: Some(line) });
        Frame {
            name: Ok(Name(name)),
            object: None,
            offset: None,
            address: None,
            location,
            inlined: false,
            by_frame_pointer: false,
        }
    }

    /// Returns advice about names and stacks that are missing: one sentence for each cause.
    pub(super) fn advice(&self, images: &BTreeMap<ImageId, ProcessImage>) -> Vec<String> {
        let mut advice: BTreeMap<String, (String, usize)> = BTreeMap::new();
        for (id, names) in &self.images {
            let process = images.get(id).map_or_else(String::new, |image| image.comm.to_string());
            let reason = names.perf_map.as_ref().err().copied().filter(|_| names.jitdumps.is_empty());
            let missing = reason.filter(|_| names.unnamed > 0).map(|reason| names.runtime.advice_on_names(reason));
            let cut = (names.cut > 0).then(|| String::from(runtime::ADVICE_ON_FRAME_POINTERS));
            for text in [missing, cut].into_iter().flatten() {
                advice.entry(text).or_insert_with(|| (format!("{process} (pid {})", id.pid), 0)).1 += 1;
            }
        }
        let sentence = |(text, (first, count)): (String, (String, usize))| match count {
            1 => format!("{first}: {text}"),
            _ => format!("{first} and {} more: {text}", count - 1),
        };
        advice.into_iter().map(sentence).collect()
    }
}

impl ImageNames {
    fn read(code: Option<&GeneratedCode>, image: &ProcessImage) -> Self {
        let open = |path: &Path| File::open(path).inspect_err(|error| log::debug!("{}: {error}", printable(path))).ok();
        let perf_map = match code.map_or(Err(NoPerfMap::Missing), |code| code.perf_map.as_deref().map_err(|&why| why)) {
            Ok(path) => open(path).map(perf_map::read).ok_or(NoPerfMap::Missing),
            Err(reason) => Err(reason),
        };
        let jitdumps = code.into_iter().flat_map(|code| &code.jitdumps);
        let jitdumps = jitdumps.filter_map(|path| open(path)).filter_map(jitdump::read).collect();
        Self { jitdumps, perf_map, runtime: Runtime::of(image), unnamed: 0, cut: 0 }
    }

    fn find(&self, address: AbsAddr, at: Duration) -> Result<String, Unnamed> {
        let at = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        let name = self.jitdumps.iter().find_map(|ranges| ranges.find(address.0, at));
        let name = name.or_else(|| self.perf_map.as_ref().ok()?.find(address.0, at));
        name.map(|name| String::from_utf8_lossy(name).into_owned()).ok_or(match self.perf_map {
            Ok(_) => Unnamed::NotInPerfMap,
            Err(_) if !self.jitdumps.is_empty() => Unnamed::NotInPerfMap,
            Err(NoPerfMap::NotOwned) => Unnamed::PerfMapNotOwned,
            Err(NoPerfMap::Missing | NoPerfMap::NotRegular) => Unnamed::Anonymous,
        })
    }
}
