//! Search for user probes of `memtrace.h` in the objects of the targets.

use std::path::{Path, PathBuf};

use memtrace_host::kernel::Scope;
use memtrace_host::target_files::open_target_file;
use memtrace_model::{UserProbe, printable};
use memtrace_object::symbolize::{FunctionError, user_probes};

use super::tag_functions::objects;
use crate::options::ProbesOf;
use crate::targets::select::Targets;
use crate::targets::track::ProcessTracker;

/// Name of the provider in `memtrace.h` and in the crate `memtrace-probes`.
const PROVIDER: &str = "memtrace";

/// Returns the sites of user probes, with their object and the scope of the probes. Searches one object, or all objects
/// of the targets. `sites_of`: returns the sites for the probes of one object.
///
/// # Errors
///
/// The given object has no site. If no object is given, no object of the targets has a site.
pub(super) fn find<T: Clone>(
    source: &ProbesOf,
    targets: &Targets,
    tracker: &ProcessTracker,
    sites_of: impl Fn(&[UserProbe]) -> Vec<T>,
) -> Result<Vec<(Scope, PathBuf, Vec<T>)>, FunctionError> {
    let sites = |object: &Path| {
        let sites = sites_of(&user_probes(&open_target_file(object)?, PROVIDER)?);
        if sites.is_empty() { Err(FunctionError::NoProbe) } else { Ok(sites) }
    };
    if let Some(object) = &source.object {
        let sites = sites(object)?;
        return Ok(targets.scopes().into_iter().map(|scope| (scope, object.clone(), sites.clone())).collect());
    }
    let mut found: Vec<(Scope, PathBuf, Vec<T>)> = Vec::new();
    for (pid, object) in objects(targets, tracker) {
        let scope = targets.scope(pid);
        if found.iter().any(|(other, path, _)| *other == scope && path == object) {
            continue;
        }
        match sites(object) {
            Ok(sites) => found.push((scope, object.to_owned(), sites)),
            Err(FunctionError::NoProbe) => {}
            Err(error) => log::debug!("the probes of {}: {error}", printable(object)),
        }
    }
    if found.is_empty() { Err(FunctionError::NoProbe) } else { Ok(found) }
}
