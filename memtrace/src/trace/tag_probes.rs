//! USDT probes that change the current tag (`--tag-from probes`).

use memtrace_host::kernel::{Kernel, Probes, TagProbe, TagSite};
use memtrace_model::{TagAction, TagEffect, TagSource, TagValue, UserProbe};

use crate::options::ProbesOf;
use crate::run_kit::error::{Error, from_engines};
use crate::targets::select::Targets;
use crate::targets::track::ProcessTracker;
use crate::trace::user_probe_sites;

/// Attaches to the user probes of `sources` that change the current tag. The caller must call it before recording
/// starts.
///
/// # Errors
///
/// A source has no such probe, or a probe cannot be attached.
pub(super) fn attach(
    kernel: &mut Kernel,
    probes: &mut Probes,
    sources: &[ProbesOf],
    targets: &Targets,
    tracker: &ProcessTracker,
) -> Result<(), Error> {
    for source in sources {
        let found = user_probe_sites::find(source, targets, tracker, sites)
            .map_err(|error| Error::TagProbes { object: source.object.clone(), source: error })?;
        for (scope, object, sites) in found {
            kernel.attach_tags(probes, scope, &object, &sites).map_err(|error| from_engines::kernel(None, error))?;
        }
    }
    Ok(())
}

/// Returns the sites of an object's probes that change the current tag.
fn sites(probes: &[UserProbe]) -> Vec<TagSite> {
    let mut sites: Vec<_> = probes.iter().filter_map(site).collect();
    // Ends come first, so that the end of a tag is seen if its begin is seen.
    sites.sort_by_key(|site| site.effect.action != TagAction::Leave);
    sites
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
    let (offset, semaphore) = (probe.offset, probe.semaphore);
    Some(TagSite { offset, semaphore, effect, function: None, probe: TagProbe::Instruction })
}

#[cfg(test)]
mod tests {
    use memtrace_model::FileOffset;

    use super::*;

    fn probe(name: &str, arguments: Vec<Option<u8>>) -> UserProbe {
        let (offset, semaphore) = (FileOffset(7), Some(FileOffset(9)));
        UserProbe { name: name.into(), offset, semaphore, arguments, places: Vec::new() }
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
