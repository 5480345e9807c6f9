//! Programs that one link places at many instructions (`uprobe_multi`, Linux 6.6), which aya does not know.
//!
//! aya makes the maps and loads all other programs; those for probes are loaded here from the same object, since the
//! kernel has to be told beforehand that they will be placed in this way.

mod bpf_object;
mod link;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use aya::Ebpf;

use self::bpf_object::Image;
pub(super) use self::link::Link;
use super::attach::{Scope, Spot};
use super::bpf_features;
use super::bpf_syscall::{self as call, Places};
use super::error::KernelError;

/// The programs for probes.
pub(super) struct Multi {
    image: Image,
    loaded: BTreeMap<String, Loaded>,
}

struct Loaded {
    program: OwnedFd,
    at_return: bool,
}

impl Multi {
    /// The programs of `object`, from which `ebpf` was loaded, with all of its maps; `None` where the kernel has no such
    /// links.
    pub(super) fn new(object: &[u8], ebpf: &Ebpf) -> Result<Option<Self>, KernelError> {
        if !bpf_features::is_there() {
            log::debug!("the kernel has no links of many probes: each is placed by itself");
            return Ok(None);
        }
        Ok(Some(Self { image: Image::new(object, ebpf)?, loaded: BTreeMap::new() }))
    }

    /// Loads the program `name` if it was not yet.
    pub(super) fn load(&mut self, name: &str) -> Result<(), KernelError> {
        if !self.loaded.contains_key(name) {
            let (program, at_return) = self.image.load(name)?;
            self.loaded.insert(name.to_owned(), Loaded { program, at_return });
        }
        Ok(())
    }

    /// Places the program `name` at all of `spots` in the file at `path`; they go when the link is dropped.
    pub(super) fn place(&mut self, name: &str, scope: Scope, path: &Path, spots: &[Spot]) -> Result<Link, KernelError> {
        self.load(name)?;
        let action = || format!("place {} probes in {}", spots.len(), path.display());
        let unknown = || KernelError::Failed { action: action(), reason: String::from("there is no such file") };
        let Some(Loaded { program, at_return }) = self.loaded.get(name) else { return Err(unknown()) };
        let file = CString::new(path.as_os_str().as_bytes()).map_err(|_| unknown())?;
        let offsets: Vec<u64> = spots.iter().map(|spot| spot.offset.0).collect();
        let cookies: Vec<u64> = spots.iter().map(|spot| spot.cookie.unwrap_or(0)).collect();
        let places = Places { offsets: &offsets, cookies: &cookies };
        let pid = match scope {
            Scope::Process(pid) => pid.0,
            Scope::Everyone => 0,
        };
        match call::create_link(program.as_fd(), &file, places, pid, *at_return) {
            Ok(link) => Ok(link.into()),
            Err(error) => {
                let whole = error.to_string();
                Err(KernelError::from_io(&action(), error, whole))
            }
        }
    }

    /// The programs that were loaded, and their names.
    pub(super) fn programs(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.loaded.iter().map(|(name, loaded)| (name.as_str(), loaded.program.as_fd()))
    }
}
