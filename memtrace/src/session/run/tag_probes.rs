//! USDT probes that change the current tag (`--tag-from probes`).

use std::path::{Path, PathBuf};

use super::tag_functions::objects;
use crate::kernel::{Kernel, Probes, Scope, TagSite};
use crate::model::{TagAction, TagEffect, TagSource, TagValue, UserProbe, printable};
use crate::session::config::TagProbes;
use crate::session::error::{Error, from_engines};
use crate::session::select::Targets;
use crate::session::track::ProcessTracker;
use crate::symbolize::{FunctionError, user_probes};

/// Name of the provider in `memtrace.h` and in the crate `memtrace-probes`.
const PROVIDER: &str = "memtrace";

/// Attaches to the probes of `sources`, before the first event is recorded.
///
/// # Errors
///
/// There are no probes, or they cannot be attached.
pub(super) fn attach(
    kernel: &mut Kernel,
    probes: &mut Probes,
    sources: &[TagProbes],
    targets: &Targets,
    tracker: &ProcessTracker,
) -> Result<(), Error> {
    for source in sources {
        let failed = |error| Error::TagProbes { object: source.object.clone(), source: error };
        let places = match &source.object {
            Some(object) => {
                let sites = sites(object).map_err(failed)?;
                targets.scopes().into_iter().map(|scope| (scope, object.clone(), sites.clone())).collect()
            }
            None => find(targets, tracker).map_err(failed)?,
        };
        for (scope, object, sites) in places {
            kernel.attach_tags(probes, scope, &object, &sites).map_err(|error| from_engines::kernel(None, error))?;
        }
    }
    Ok(())
}

/// Finds the probes in the objects of the targets.
fn find(targets: &Targets, tracker: &ProcessTracker) -> Result<Vec<(Scope, PathBuf, Vec<TagSite>)>, FunctionError> {
    let mut found: Vec<(Scope, PathBuf, Vec<TagSite>)> = Vec::new();
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

/// Returns the probes of an object that have an effect.
fn sites(object: &Path) -> Result<Vec<TagSite>, FunctionError> {
    let probes = user_probes(object, PROVIDER)?;
    let mut sites: Vec<_> = probes.iter().filter_map(site).collect();
    // Ends first: the end of each tag whose beginning is seen is then seen too.
    sites.sort_by_key(|site| site.effect.action != TagAction::Leave);
    if sites.is_empty() { Err(FunctionError::NoProbe) } else { Ok(sites) }
}

fn site(probe: &UserProbe) -> Option<TagSite> {
    let (action, has_argument, value) = match probe.name.as_str() {
        "tag_begin" => (TagAction::Enter, true, TagValue::Name),
        "tag_begin_id" => (TagAction::Enter, true, TagValue::Word),
        "claim" => (TagAction::Claim, true, TagValue::Word),
        "tag_end" => (TagAction::Leave, false, TagValue::Word),
        _ => return None,
    };
    let source = if has_argument { Some(TagSource::Argument((*probe.arguments.first()?)?)) } else { None };
    let effect = TagEffect { action, source, value, condition: None };
    Some(TagSite { offset: probe.offset, semaphore: probe.semaphore, effect })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FileOffset;

    fn probe(name: &str, arguments: Vec<Option<u8>>) -> UserProbe {
        UserProbe { name: name.into(), offset: FileOffset(7), semaphore: Some(FileOffset(9)), arguments }
    }

    #[test]
    fn probes_of_tags_have_effects() {
        let effect = |name, arguments| site(&probe(name, arguments)).map(|site| site.effect);
        let enter = TagEffect {
            action: TagAction::Enter,
            source: Some(TagSource::Argument(0)),
            value: TagValue::Name,
            condition: None,
        };
        assert_eq!(effect("tag_begin", vec![Some(0)]), Some(enter));
        assert_eq!(effect("tag_begin_id", vec![Some(0)]), Some(TagEffect { value: TagValue::Word, ..enter }));
        let leave = TagEffect { action: TagAction::Leave, source: None, value: TagValue::Word, condition: None };
        assert_eq!(effect("tag_end", Vec::new()), Some(leave));
        assert_eq!(effect("task_begin", vec![Some(0)]), None);
        assert_eq!(effect("tag_begin", vec![None]), None, "its argument is in no register of a call");
    }
}
