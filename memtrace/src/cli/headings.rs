//! Headings of options in the help.

pub(super) const TARGET: &str = "Target";
pub(super) const OUTPUT: &str = "Output";
pub(super) const ACTIVITY: &str = "Activity of threads";
pub(super) const FILTERS: &str = "Filters";
pub(super) const TUNING: &str = "Tuning";
pub(super) const TRIGGERS: &str = "Triggers";
pub(super) const GENERAL: &str = "General";
