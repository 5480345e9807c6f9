//! The key by which stacks are grouped, and the labels that it needs.

use crate::model::{GroupBy, PartKeys, Profile};
use crate::report;
use crate::tags;
use crate::tags::TagRules;

/// Grouping of stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grouping {
    pub(crate) by: GroupBy,
    /// Rules for [`GroupBy::Tag`].
    pub(crate) tags: Option<TagRules>,
    /// Blocks have the tags that programs set.
    pub(crate) program_tags: bool,
}

impl Grouping {
    /// Returns the keys of the parts that the grouping needs.
    pub(super) fn parts(&self) -> PartKeys {
        match (self.by, &self.tags) {
            (GroupBy::Tag, _) if self.program_tags => PartKeys::TAG,
            (GroupBy::Tag, Some(rules)) if rules.tests_threads() => PartKeys::THREAD,
            (by, _) => by.parts(),
        }
    }

    /// Sets the labels of the stacks, if groups depend on them.
    pub(super) fn label(&self, profile: &mut Profile) {
        self.label_by(self.by, profile);
    }

    /// Sets the labels of the stacks, if groups by `by` depend on them.
    pub(super) fn label_by(&self, by: GroupBy, profile: &mut Profile) {
        match (by, &self.tags) {
            (GroupBy::Object, _) => report::label_objects(profile),
            (GroupBy::Tag, rules) => tags::label(profile, rules.as_ref()),
            _ => {}
        }
    }
}
