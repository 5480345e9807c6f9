//! Call paths of one collection as those of another.

use memtrace_model::Node;

use super::call_paths::{Call, CallLocation, CallPaths};
use super::generated_names::GeneratedNames;

/// Call paths of ended processes as live paths.
///
/// The stacks of a process that has ended are converted to call paths once. A recording has them as live paths, and nearly all
/// of them occurred in earlier processes: their translation is known.
#[derive(Debug, Default)]
pub(super) struct TranslatedPaths {
    /// Value of [`CallPaths::removals`] for which the paths are valid.
    removals: u64,
    /// Translated path of each path, by its index; the root for the others.
    paths: Vec<Node>,
}

/// Collection of call paths.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathSource<'a> {
    pub(super) paths: &'a CallPaths,
    pub(super) names: &'a GeneratedNames,
}

impl TranslatedPaths {
    /// Starts to translate paths of `from`. They are always from the same collection.
    pub(super) fn begin(&mut self, from: PathSource<'_>) {
        if self.removals != from.paths.removals() {
            *self = Self { removals: from.paths.removals(), paths: Vec::new() };
        }
        self.paths.resize(from.paths.len(), Node::ROOT);
    }

    /// Returns the path in `paths` of a path of `from`. Addresses outside of all files, which belong to one process, are left
    /// out.
    pub(super) fn find(
        &mut self,
        path: Node,
        from: PathSource<'_>,
        paths: &mut CallPaths,
        names: &mut GeneratedNames,
    ) -> Node {
        let (mut at, mut result, mut open) = (path, Node::ROOT, Vec::new());
        while let Some((callers, call)) = from.paths.get(at) {
            let known = at.index().and_then(|index| self.paths.get(index)).copied().unwrap_or(Node::ROOT);
            if known != Node::ROOT {
                result = known;
                break;
            }
            open.push((at, call));
            at = callers;
        }
        for (at, call) in open.into_iter().rev() {
            let location = match call.location {
                CallLocation::InObject(object, offset) => {
                    CallLocation::InObject(paths.object(from.paths.object_at(object)), offset)
                }
                CallLocation::Generated(name) => match names.copy(from.names, name) {
                    Ok(name) => CallLocation::Generated(name),
                    Err(reason) => CallLocation::OutsideObjects(None, reason),
                },
                CallLocation::OutsideObjects(_, reason) => CallLocation::OutsideObjects(None, reason),
            };
            result = paths.push(result, Call { location, ..call });
            if let Some(known) = at.index().and_then(|index| self.paths.get_mut(index)) {
                *known = result;
            }
        }
        result
    }
}
