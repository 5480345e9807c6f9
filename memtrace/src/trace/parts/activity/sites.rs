//! Probes for steps of threads: user probes of `memtrace.h`, and functions (`--span`).

use std::path::PathBuf;

use memtrace_history::activity::{SiteLabel, SpanSite};
use memtrace_host::kernel::{Kernel, KernelError, Probes, Scope, StepSite};
use memtrace_host::target_files::open_target_file;
use memtrace_model::{FileOffset, StepAction, StepProbe, TagValue, UserProbe, plain};
use memtrace_object::allocators::{self, ExitSites};
use memtrace_object::symbolize::{FunctionError, FunctionPlace, find_functions};

use crate::options::{ActivityConfig, SpanFunction};
use crate::run_kit::error::{Error, from_engines};
use crate::targets::select::Targets;
use crate::targets::track::ProcessTracker;
use crate::trace::function_site::find_place;
use crate::trace::tag_functions::objects;
use crate::trace::user_probe_sites;

/// Index of the site of all tasks.
const TASKS: u32 = 0;

/// Functions in all objects of the targets. Each call is an event, and the first argument is the value
/// of the event. `malloc_trim` returns free memory to the kernel.
const EVENTS: [&str; 1] = ["malloc_trim"];

/// Default values of a step: it reads no argument.
const NO_STEP: StepProbe =
    StepProbe { action: StepAction::Call, site: 0, value: None, is_half: false, name: None, text: None };

/// Attaches the span and event probes. The caller must call it before recording starts. Returns the span sites, by the
/// index that the probes record.
///
/// # Errors
///
/// A requested object has no user probes of `memtrace.h`, a function is not found, or a probe cannot be attached.
pub(super) fn attach(
    kernel: &mut Kernel,
    probes: &mut Probes,
    config: &ActivityConfig,
    targets: &Targets,
    tracker: &ProcessTracker,
) -> Result<Vec<SpanSite>, Error> {
    let failed = |error| from_engines::kernel(None, error);
    for source in &config.probes {
        let found = user_probe_sites::find(source, targets, tracker, sites)
            .map_err(|error| Error::SpanProbes { object: source.object.clone(), source: error })?;
        for (scope, object, sites) in found {
            kernel.attach_steps(probes, scope, &object, &sites).map_err(failed)?;
        }
    }
    let mut all = vec![SpanSite { name: None, label: SiteLabel::None }];
    for function in &config.functions {
        // There are far fewer than 2^32 sites.
        let FunctionSites { names, sites } = function_sites(function, all.len() as u32)?;
        for scope in targets.scopes() {
            kernel.attach_steps(probes, scope, &function.object, &sites).map_err(failed)?;
        }
        let label = match function.label {
            None => SiteLabel::None,
            Some((_, TagValue::Name)) => SiteLabel::Text,
            Some((_, TagValue::Word | TagValue::Half)) => SiteLabel::Number,
        };
        all.extend(names.into_iter().map(|name| SpanSite { name: Some(name), label }));
    }
    for name in EVENTS {
        let step = StepProbe { action: StepAction::Call, site: all.len() as u32, value: Some(0), ..NO_STEP };
        let mut attached: Vec<(Scope, PathBuf)> = Vec::new();
        for (pid, object) in objects(targets, tracker) {
            let key = (targets.scope(pid), object.to_owned());
            if let Ok(place) = find_place(object, name)
                && !attached.contains(&key)
            {
                let site = StepSite { offset: place.offset, semaphore: None, step };
                match kernel.attach_steps(probes, key.0, object, &[site]) {
                    // Nobody has named the object, and any user can make an object whose probes the kernel refuses. So
                    // this is only a warning.
                    Err(error @ KernelError::NotInserted { .. }) if key.0 == Scope::AllProcesses => {
                        log::warn!("{error}");
                    }
                    result => result.map_err(failed)?,
                }
                attached.push(key);
            }
        }
        all.push(SpanSite { name: Some(name.to_owned()), label: SiteLabel::Number });
    }
    Ok(all)
}

/// Probes of the functions that one option names.
struct FunctionSites {
    /// Names of the functions, in the order of their span sites.
    names: Vec<String>,
    /// The exits come first, so that the end of a span is recorded if its begin is recorded. If the entry is an exit too, the
    /// begin is recorded first: the kernel runs the last probe at an address first (`consumer_add`, kernel/events/uprobes.c).
    sites: Vec<StepSite>,
}

/// Returns the sites at the exits and at the entries of the functions that match `function`. `first`: index of the first span
/// site. If several functions match, those that cannot be traced are left out with a warning.
fn function_sites(function: &SpanFunction, first: u32) -> Result<FunctionSites, Error> {
    let SpanFunction { object, name, label } = function;
    let failed = |source| Error::SpanFunction { function: function.text(), source };
    let file = open_target_file(object).map_err(|error| failed(error.into()))?;
    let mut found = find_functions(&file, name).map_err(failed)?;
    let count = found.len();
    // A copy of the function may have its arguments in other registers.
    found.retain(|function| label.is_none() || !function.is_clone);
    if found.is_empty() {
        return Err(failed(FunctionError::Cloned));
    }
    let addresses: Vec<_> = found.iter().map(|function| function.place.virt).collect();
    let (mut names, mut ends, mut begins, mut refused) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (found, exits) in found.into_iter().zip(allocators::exits_of(&file, &addresses)) {
        let number = first + names.len() as u32;
        match exits {
            Ok(exits) => {
                ends.extend(end_sites(exits, found.place, number));
                begins.push(begin_site(found.place, *label, number));
                names.push(found.name);
            }
            Err(refusal) => refused.push((found.name, refusal)),
        }
    }
    if names.is_empty()
        && let Some(&(_, source)) = refused.first()
    {
        return Err(Error::SpanExits { function: function.text(), source });
    }
    if let Some((name, refusal)) = refused.first() {
        let (refused, function, name) = (refused.len(), function.text(), plain(name));
        log::warn!("not traced: {refused} of {count} functions that match {function}, such as {name}: {refusal}");
    }
    if count > names.len() + refused.len() {
        let copies = count - names.len() - refused.len();
        let function = function.text();
        log::warn!("not traced: {copies} of {count} functions that match {function}: {}", FunctionError::Cloned);
    }
    Ok(FunctionSites { names, sites: [ends, begins].concat() })
}

/// Returns the sites at the exits of a function. `number`: index of the span site.
fn end_sites(exits: ExitSites, place: FunctionPlace, number: u32) -> Vec<StepSite> {
    let site = |offset: FileOffset, action| StepSite {
        offset,
        semaphore: None,
        step: StepProbe { action, site: number, ..NO_STEP },
    };
    match exits {
        ExitSites::At { returns, jumps } => {
            let returns = returns.into_iter().map(|offset| site(offset, StepAction::End));
            let jumps = jumps.into_iter().map(|(offset, condition)| site(offset, StepAction::TailCall(condition)));
            returns.chain(jumps).collect()
        }
        ExitSites::Uretprobe => vec![site(place.offset, StepAction::EndAtReturn)],
    }
}

/// Returns the site at the entry of a function. `number`: index of the span site.
fn begin_site(place: FunctionPlace, label: Option<(u8, TagValue)>, number: u32) -> StepSite {
    let entry = StepProbe { action: StepAction::Begin, site: number, ..NO_STEP };
    let step = match label {
        None => entry,
        Some((argument, TagValue::Name)) => StepProbe { name: Some(argument), ..entry },
        Some((argument, value)) => StepProbe { value: Some(argument), is_half: value == TagValue::Half, ..entry },
    };
    StepSite { offset: place.offset, semaphore: None, step }
}

/// Returns the sites of the user probes that record steps. Ends come first, as in [`FunctionSites`].
fn sites(probes: &[UserProbe]) -> Vec<StepSite> {
    let mut sites: Vec<_> = probes.iter().filter_map(site).collect();
    sites.sort_by_key(|site| site.step.action != StepAction::End);
    sites
}

fn site(probe: &UserProbe) -> Option<StepSite> {
    /// Positions of the arguments with the value, the name and the text of a step.
    type Places = [Option<usize>; 3];
    let (action, places): (_, Places) = match probe.name.as_str() {
        "task_begin" => (StepAction::Begin, [None, Some(0), None]),
        "task_end" => (StepAction::End, [None; 3]),
        "lock_wait" => (StepAction::LockWait, [Some(0), Some(1), None]),
        "lock_acquire" => (StepAction::LockAcquire, [Some(0), None, None]),
        "lock_release" => (StepAction::LockRelease, [Some(0), None, None]),
        "event_number" => (StepAction::Number, [Some(1), Some(0), None]),
        "event_text" => (StepAction::Text, [None, Some(0), Some(1)]),
        _ => return None,
    };
    // An argument that is in no register of a call cannot be read.
    let argument = |place: Option<usize>| match place {
        None => Some(None),
        Some(place) => probe.arguments.get(place).copied().flatten().map(Some),
    };
    let [value, name, text] = places.map(argument);
    let step = StepProbe { action, site: TASKS, value: value?, is_half: false, name: name?, text: text? };
    Some(StepSite { offset: probe.offset, semaphore: probe.semaphore, step })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_probes_are_steps() {
        let step = |name: &str, arguments: Vec<Option<u8>>| {
            let (offset, semaphore) = (FileOffset(7), Some(FileOffset(9)));
            let places = Vec::new();
            site(&UserProbe { name: name.into(), offset, semaphore, arguments, places }).map(|site| site.step)
        };
        let none =
            StepProbe { action: StepAction::End, site: TASKS, value: None, is_half: false, name: None, text: None };
        assert_eq!(step("task_end", vec![]), Some(none));
        let begin = StepProbe { action: StepAction::Begin, name: Some(0), ..none };
        assert_eq!(step("task_begin", vec![Some(0)]), Some(begin));
        let wait = StepProbe { action: StepAction::LockWait, value: Some(0), name: Some(1), ..none };
        assert_eq!(step("lock_wait", vec![Some(0), Some(1)]), Some(wait));
        let number = StepProbe { action: StepAction::Number, value: Some(1), name: Some(0), ..none };
        assert_eq!(step("event_number", vec![Some(0), Some(1)]), Some(number));
        assert_eq!(step("event_text", vec![Some(0), None]), None, "its argument is in no register of a call");
        assert_eq!(step("tag_begin", vec![Some(0)]), None);
    }
}
