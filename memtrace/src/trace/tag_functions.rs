//! Functions that change the current tag of a thread (`--tag-from`).

use std::path::{Path, PathBuf};

use memtrace_host::kernel::{Kernel, Probes, Scope, TagSite};
use memtrace_model::{Pid, ProcessImage, TagAction, TagEffect, TagSource, printable};
use memtrace_object::probe_site::Needs;
use memtrace_object::symbolize::{FunctionError, FunctionPlace};

use crate::options::tag_functions::TagFunction;
use crate::run_kit::error::{Error, from_engines};
use crate::targets::select::Targets;
use crate::targets::track::ProcessTracker;
use crate::trace::config::Config;
use crate::trace::function_site;

/// Attaches probes to the functions. The caller must call it before recording starts. A function without an object is
/// looked up in all objects of the targets.
///
/// # Errors
///
/// A function is not found, or cannot be probed.
pub(super) fn attach(
    kernel: &mut Kernel,
    probes: &mut Probes,
    config: &Config,
    targets: &Targets,
    tracker: &ProcessTracker,
) -> Result<(), Error> {
    for function in &config.tag_functions {
        let failed = |source| Error::TagFunction { function: function.text(), source };
        let places = match &function.object {
            Some(object) => {
                let place = function_site::find_place(object, &function.name).map_err(failed)?;
                targets.scopes().into_iter().map(|scope| (scope, object.clone(), place)).collect()
            }
            None => find(function, targets, tracker).map_err(failed)?,
        };
        for (scope, object, place) in places {
            let offset = function_site::choose(&object, place, needs(function.effect), config.heap.probe_site);
            let site = TagSite { offset, semaphore: None, effect: function.effect };
            kernel.attach_tags(probes, scope, &object, &[site]).map_err(|error| from_engines::kernel(None, error))?;
        }
    }
    Ok(())
}

/// Returns the registers that the probe reads.
fn needs(effect: TagEffect) -> Needs {
    let tested = effect.condition.map(|(argument, _)| argument);
    match effect.source {
        Some(TagSource::Result) => Needs::STACK,
        // The stack pointer identifies the call.
        Some(TagSource::Argument(argument)) if effect.action == TagAction::SetCall => {
            Needs::of_arguments(&[argument]).with_stack()
        }
        Some(TagSource::Argument(argument)) => Needs::of_arguments(&[argument, tested.unwrap_or(argument)]),
        None => Needs::of_arguments(tested.as_slice()),
    }
}

/// Finds a function in the objects of the targets. Returns its place in each object, with the scope of the probe.
fn find(
    function: &TagFunction,
    targets: &Targets,
    tracker: &ProcessTracker,
) -> Result<Vec<(Scope, PathBuf, FunctionPlace)>, FunctionError> {
    let mut found: Vec<(Scope, PathBuf, FunctionPlace)> = Vec::new();
    let mut reason = FunctionError::Missing;
    for (pid, object) in objects(targets, tracker) {
        match function_site::find_place(object, &function.name) {
            Ok(place) => {
                let place = (targets.scope(pid), object.to_owned(), place);
                if !found.contains(&place) {
                    found.push(place);
                }
            }
            Err(FunctionError::Missing) => {}
            Err(error) => {
                log::debug!("{} in {}: {error}", function.name, printable(object));
                // The file has the function, but it cannot be probed.
                if matches!(error, FunctionError::Indirect | FunctionError::NoCode) {
                    reason = error;
                }
            }
        }
    }
    if found.is_empty() { Err(reason) } else { Ok(found) }
}

/// Returns the handles of the objects that the targets have mapped, or may load at their start.
pub(super) fn objects<'a>(targets: &'a Targets, tracker: &'a ProcessTracker) -> impl Iterator<Item = (Pid, &'a Path)> {
    let mapped = targets.family().flat_map(|pid| {
        let objects = tracker.image(pid).into_iter().flat_map(ProcessImage::objects);
        objects.map(move |object| (pid, object))
    });
    let of_command = targets.command_pid().into_iter();
    let loaded = of_command.flat_map(|pid| targets.objects.iter().map(move |object| (pid, object)));
    mapped.chain(loaded).filter_map(|(pid, object)| Some((pid, object.handle.as_deref()?)))
}
