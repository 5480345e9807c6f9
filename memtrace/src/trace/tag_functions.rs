//! Functions that change the current tag of a thread, or the tag of a block (`--tag-from`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use memtrace_host::kernel::{Kernel, Probes, Scope, TagProbe, TagSite};
use memtrace_host::target_files::open_target_file;
use memtrace_model::{
    FileOffset, Pid, ProcessImage, TagAction, TagEffect, TagFunctionCalls, TagSource, TagValue, printable,
};
use memtrace_object::allocators::{self, ExitSites};
use memtrace_object::probe_site::Needs;
use memtrace_object::symbolize::{FunctionError, FunctionPlace};

use crate::options::tag_functions::TagFunction;
use crate::run_kit::error::{Error, from_engines};
use crate::targets::select::{ProbeSite, Targets};
use crate::targets::track::ProcessTracker;
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
    functions: &[TagFunction],
    probe_site: ProbeSite,
    targets: &Targets,
    tracker: &ProcessTracker,
) -> Result<(), Error> {
    // The command line has at most 64 functions, or a preset, so an index fits into 8 bits.
    for (index, function) in (0_u8..).zip(functions) {
        let failed = |source| Error::TagFunction { function: function.text(), source };
        kernel.add_tag_function(index, function.effect).map_err(|error| from_engines::kernel(None, error))?;
        let places = match &function.object {
            Some(object) => {
                let place = function_site::find_place(object, &function.name).map_err(failed)?;
                targets.scopes().into_iter().map(|scope| (scope, object.clone(), place)).collect()
            }
            None => find(function, targets, tracker).map_err(failed)?,
        };
        for (scope, object, place) in places {
            let offset = function_site::choose(&object, place, needs(function.effect), probe_site);
            let mut sites = match function.end_action() {
                Some(action) => ends(function, action, &object, place)?,
                None => Vec::new(),
            };
            sites.push(TagSite { offset, function: Some(index), ..site(offset, function.effect) });
            kernel.attach_tags(probes, scope, &object, &sites).map_err(|error| from_engines::kernel(None, error))?;
        }
    }
    Ok(())
}

/// Returns the sites at the returns of a function, with this action. They come before the site at its entry, so that the end
/// of each call is seen if its begin is seen.
fn ends(function: &TagFunction, action: TagAction, object: &Path, place: FunctionPlace) -> Result<Vec<TagSite>, Error> {
    let failed = |source| Error::TagFunction { function: function.text(), source };
    let file = open_target_file(object).map_err(|error| failed(error.into()))?;
    let effect = TagEffect { action, source: None, value: TagValue::Word, condition: None };
    match allocators::exits_of(&file, &[place.virt]).pop() {
        Some(Ok(ExitSites::At { returns, jumps })) if jumps.is_empty() => {
            Ok(returns.into_iter().map(|offset| site(offset, effect)).collect())
        }
        Some(Ok(ExitSites::Uretprobe)) => Ok(vec![TagSite { probe: TagProbe::Return, ..site(place.offset, effect) }]),
        // The function ends with a jump, and the call continues in another function.
        Some(Ok(ExitSites::At { .. }) | Err(_)) | None => Err(Error::TagReturns { function: function.text() }),
    }
}

/// Returns a site without counts of calls.
fn site(offset: FileOffset, effect: TagEffect) -> TagSite {
    let probe = match effect.source {
        Some(TagSource::Result) => TagProbe::Return,
        Some(TagSource::Argument(_) | TagSource::Field(_)) | None => TagProbe::Instruction,
    };
    TagSite { offset, semaphore: None, effect, function: None, probe }
}

/// Returns the calls of the functions so far. The functions must be attached.
pub(super) fn calls(kernel: &Kernel, functions: &[TagFunction]) -> Vec<TagFunctionCalls> {
    let calls = (0_u8..).zip(functions);
    calls.filter_map(|(index, function)| kernel.tag_function_calls(index, function.effect, &function.rule)).collect()
}

/// Returns the registers that the probe reads.
fn needs(effect: TagEffect) -> Needs {
    // The stack pointer identifies the call of a wrapper.
    if effect.source == Some(TagSource::Result) || effect.action == TagAction::EnterWrapper {
        return Needs::STACK;
    }
    let tested = effect.condition.map(|(argument, _)| argument);
    let arguments: Vec<u8> = effect.source.and_then(TagSource::argument).into_iter().chain(tested).collect();
    let needs = Needs::of_arguments(&arguments);
    // The stack pointer identifies the call here, too.
    if effect.action == TagAction::SetCall { needs.with_stack() } else { needs }
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
                // If a file has the function, but it cannot be probed, this is the reason to report.
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
    let files = mapped.chain(loaded).filter_map(|(pid, object)| Some((pid, object.handle.as_deref()?)));
    // A process can map a file many times.
    let mut seen = BTreeSet::new();
    files.filter(move |file| seen.insert(*file))
}
