//! Names of the JIT code of one process image.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::path::Path;
use std::time::Duration;

use memtrace_model::{
    AbsAddr, CodeNames, GeneratedCode, GeneratedFunction, NoPerfMap, ProcessImage, Unnamed, printable,
};

use super::code_ranges::CodeRanges;
use super::runtime::{self, Runtime};
use super::{jitdump, perf_map};
use crate::object_files::ObjectFiles;

/// JIT code of a process image. Its perf map and jitdump files are read at the first look-up of an address.
#[derive(Debug)]
pub struct ImageCode<'a> {
    runtime: Runtime,
    code: Option<&'a GeneratedCode>,
    files: &'a dyn ObjectFiles,
    names: OnceCell<ImageNames>,
    /// Number of look-ups without a name.
    unnamed: u64,
    /// Number of stacks that were cut because frame pointers are not reliable.
    cut: u64,
}

/// Contents of the perf map and jitdump files of an image.
#[derive(Debug)]
struct ImageNames {
    jitdumps: Vec<CodeRanges>,
    perf_map: Result<CodeRanges, NoPerfMap>,
}

impl<'a> ImageCode<'a> {
    /// Creates the JIT code of `image`. `code` has the paths of the files with its names, if there are any.
    #[must_use]
    pub fn new(image: &ProcessImage, code: Option<&'a GeneratedCode>, files: &'a dyn ObjectFiles) -> Self {
        Self { runtime: Runtime::of(image), code, files, names: OnceCell::new(), unnamed: 0, cut: 0 }
    }
}

impl CodeNames for ImageCode<'_> {
    fn depends_on_time(&self) -> bool {
        self.code.is_some_and(|code| !code.jitdumps.is_empty())
    }

    fn is_uncertain(&self) -> bool {
        self.runtime == Runtime::HotSpot && !self.code.is_some_and(|code| code.keeps_frame_pointers)
    }

    fn find(&mut self, address: AbsAddr, taken: Duration) -> GeneratedFunction<'_> {
        let is_uncertain = self.is_uncertain();
        let names = self.names.get_or_init(|| ImageNames::read(self.code, self.files));
        let at = self.code.map_or(taken, |code| code.clock_start + taken);
        let name = names.find(address, at);
        let finds_caller = !is_uncertain || name.as_deref().is_ok_and(runtime::hotspot_keeps_frame_pointer);
        if name.is_err() {
            self.unnamed += 1;
        }
        GeneratedFunction { name, finds_caller }
    }

    fn count_cut(&mut self) {
        self.cut += 1;
    }

    fn advice(&self) -> Vec<String> {
        let missing = self.names.get().filter(|names| self.unnamed > 0 && names.jitdumps.is_empty());
        let missing = missing.and_then(|names| {
            let reason = names.perf_map.as_ref().err().copied()?;
            Some(self.runtime.advice_on_names(reason))
        });
        let cut = (self.cut > 0).then(|| String::from(runtime::ADVICE_ON_FRAME_POINTERS));
        missing.into_iter().chain(cut).collect()
    }
}

impl ImageNames {
    fn read(code: Option<&GeneratedCode>, files: &dyn ObjectFiles) -> Self {
        let open = |path: &Path| files.open(path).inspect_err(|error| log::debug!("{}: {error}", printable(path))).ok();
        let perf_map = match code.map_or(Err(NoPerfMap::Missing), |code| code.perf_map.as_deref().map_err(|&why| why)) {
            Ok(path) => open(path).map(perf_map::read).ok_or(NoPerfMap::Missing),
            Err(reason) => Err(reason),
        };
        let jitdumps = code.into_iter().flat_map(|code| &code.jitdumps);
        let jitdumps = jitdumps.filter_map(|path| open(path)).filter_map(jitdump::read).collect();
        Self { jitdumps, perf_map }
    }

    fn find(&self, address: AbsAddr, at: Duration) -> Result<Cow<'_, str>, Unnamed> {
        let at = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        let name = self.jitdumps.iter().find_map(|ranges| ranges.find(address.0, at));
        let name = name.or_else(|| self.perf_map.as_ref().ok()?.find(address.0, at));
        name.map(String::from_utf8_lossy).ok_or(match self.perf_map {
            Ok(_) => Unnamed::NotInPerfMap,
            Err(_) if !self.jitdumps.is_empty() => Unnamed::NotInPerfMap,
            Err(NoPerfMap::NotOwned) => Unnamed::PerfMapNotOwned,
            Err(NoPerfMap::Missing | NoPerfMap::NotRegular) => Unnamed::Anonymous,
        })
    }
}
