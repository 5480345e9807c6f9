//! Variables that contain futexes.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use memtrace_host::procfs::Objects;
use memtrace_host::target_files::TargetFiles;
use memtrace_model::{AbsAddr, LockIdentity, Object, Pid, printable};
use memtrace_object::ObjectFiles as _;
use memtrace_object::symbolize::{DataAddress, Variable, find_variables};

use crate::targets::track::ProcessTracker;

/// Maximum number of objects with symbol tables that are searched for variables. The futexes of further objects have no
/// place.
const MAX_OBJECTS: usize = 256;

/// Futexes that may be in variables of objects. There is at most one futex for each row of locks, so their number is bounded.
#[derive(Debug, Default)]
pub(super) struct LockPlaces {
    by_object: BTreeMap<Arc<Object>, Vec<Futex>>,
}

/// A futex, and its address relative to the code of the object.
#[derive(Clone, Copy, Debug)]
struct Futex {
    pid: Pid,
    address: AbsAddr,
    data: DataAddress,
}

impl LockPlaces {
    /// Adds new futexes. Uses the objects that the processes map now.
    pub(super) fn add(&mut self, locks: &[(u32, LockIdentity)], tracker: &ProcessTracker) {
        for &(_, LockIdentity { pid, address, name, place }) in locks {
            if name.is_some() || place.is_some() {
                continue;
            }
            let image = tracker.images().get(&tracker.latest_id(pid));
            let Some(code) = image.and_then(|image| image.code_below(address)) else { continue };
            let Some(object) = &code.object else { continue };
            if self.by_object.len() >= MAX_OBJECTS && !self.by_object.contains_key(object) {
                continue;
            }
            let data = DataAddress { code: code.offset, distance: address.0.saturating_sub(code.start.0) };
            self.by_object.entry(Arc::clone(object)).or_default().push(Futex { pid, address, data });
        }
    }

    /// Removes all futexes, and returns the places of the futexes in variables: process, address, and the names of the object
    /// and the variable.
    pub(super) fn take_names(&mut self) -> Vec<(Pid, AbsAddr, String)> {
        let mut places = Vec::new();
        for (object, futexes) in std::mem::take(&mut self.by_object) {
            let Some(file) = open(&object) else { continue };
            let addresses: Vec<_> = futexes.iter().map(|futex| futex.data).collect();
            let variables = match find_variables(&file, &addresses) {
                Ok(variables) => variables,
                Err(error) => {
                    log::debug!("{}: no variables: {error}", printable(&object.path));
                    continue;
                }
            };
            let name = object.path.file_name().unwrap_or(object.path.as_os_str()).to_string_lossy();
            let place = |variable: Variable| match variable.name {
                Some(variable) => format!("{name}:{variable}"),
                None => format!("{name}+{:#x}", variable.virt.0),
            };
            let of_object = futexes.iter().zip(variables);
            places.extend(of_object.filter_map(|(futex, at)| Some((futex.pid, futex.address, place(at?)))));
        }
        places
    }

    /// Returns the objects, each with one reference.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.by_object.keys()
    }

    /// Forgets the handles of files that were closed.
    pub(super) fn forget_files(&mut self, closed: &HashSet<PathBuf>) {
        let is_closed = |object: &Object| object.handle.as_ref().is_some_and(|handle| closed.contains(handle));
        if !self.by_object.keys().any(|object| is_closed(object)) {
            return;
        }
        for (object, futexes) in std::mem::take(&mut self.by_object) {
            let object = match is_closed(&object) {
                true => Arc::new(Object { handle: None, ..(*object).clone() }),
                false => object,
            };
            self.by_object.entry(object).or_default().extend(futexes);
        }
    }
}

/// Opens the file of an object; `None` if it cannot be opened any more.
fn open(object: &Object) -> Option<File> {
    match &object.handle {
        Some(handle) => TargetFiles.open(handle).ok(),
        None => Objects::reopen(object).map(|(file, _)| file),
    }
}
