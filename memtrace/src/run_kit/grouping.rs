//! Grouping key of stacks, and the labels that the key needs.

use memtrace_history::facts::RecordedGrouping;
use memtrace_history::tags;
use memtrace_history::tags::TagRules;
use memtrace_model::{GroupBy, PartKeys, Profile, StackLabels, TagFormat};

/// Grouping key of the stacks in reports, and the sources of their tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grouping {
    pub(crate) by: GroupBy,
    /// Rules for tags, which [`GroupBy::Tag`] uses.
    pub(crate) tags: Option<TagRules>,
    /// True if targets set the tags of their blocks.
    pub(crate) program_tags: bool,
    /// Format of tags that are numbers, if one was chosen.
    pub(crate) tag_format: Option<TagFormat>,
}

impl Grouping {
    /// Returns the grouping of a recorded run. Rules that this version cannot parse are left out.
    pub(crate) fn of_recorded(recorded: RecordedGrouping) -> Self {
        let RecordedGrouping { by, tags, program_tags, tag_format } = recorded;
        Self { by, tags: tags.and_then(|text| TagRules::parse(&text).ok()), program_tags, tag_format }
    }

    /// Returns the grouping in the form that a recording stores.
    pub(crate) fn to_recorded(&self) -> RecordedGrouping {
        let Self { by, ref tags, program_tags, tag_format } = *self;
        let tags = tags.as_ref().map(|rules| rules.text().to_owned());
        RecordedGrouping { by, tags, program_tags, tag_format }
    }

    /// Returns the keys of the parts that the grouping needs, and the tags that targets set.
    pub(crate) fn parts(&self) -> PartKeys {
        if self.program_tags {
            return self.by.parts().union(PartKeys::TAG);
        }
        match (self.by, &self.tags) {
            (GroupBy::Tag, Some(rules)) if rules.tests_threads() => PartKeys::THREAD,
            (by, _) => by.parts(),
        }
    }

    /// Returns the labels of the stacks; `None` if the groups do not depend on labels.
    pub(crate) fn labels(&self, profile: &Profile) -> Option<StackLabels> {
        self.labels_by(self.by, profile)
    }

    /// Returns the labels of the stacks for groups by `by`; `None` if these groups do not depend on labels.
    pub(crate) fn labels_by(&self, by: GroupBy, profile: &Profile) -> Option<StackLabels> {
        match (by, &self.tags) {
            (GroupBy::Object, _) => Some(memtrace_report::object_labels(profile)),
            (GroupBy::Tag, rules) => Some(tags::labels(profile, rules.as_ref())),
            _ => None,
        }
    }
}
