//! Translation of call paths from one collection to another.

use memtrace_model::Node;

use super::call_paths::{Call, CallLocation, CallPaths};
use super::generated_names::GeneratedNames;

/// Translations of the call paths of ended processes to live paths.
///
/// The stacks of an ended process are converted to call paths once, for its totals. A recording needs live paths
/// instead. Nearly all paths occurred in earlier processes, so their translation is known.
#[derive(Debug, Default)]
pub(super) struct TranslatedPaths {
    /// Value of [`CallPaths::removals`] when `paths` was filled. A later removal makes `paths` invalid.
    removals: u64,
    /// Live path of each path, by the index of the path; the root if the path is not translated yet.
    paths: Vec<Node>,
}

/// Collection of call paths, with the names of their generated code.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathSource<'a> {
    pub(super) paths: &'a CallPaths,
    pub(super) names: &'a GeneratedNames,
}

impl TranslatedPaths {
    /// Prepares the translation of paths of `from`, which must be the same collection in each call.
    pub(super) fn begin(&mut self, from: PathSource<'_>) {
        if self.removals != from.paths.removals() {
            *self = Self { removals: from.paths.removals(), paths: Vec::new() };
        }
        self.paths.resize(from.paths.len(), Node::ROOT);
    }

    /// Translates a path of `from` to a path of `paths`. Leaves out addresses outside of all files, because such an
    /// address is valid in one process only.
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
