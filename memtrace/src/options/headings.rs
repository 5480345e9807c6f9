//! Headings of options in the help.

pub(crate) const TARGET: &str = "Target";
pub(crate) const OUTPUT: &str = "Output";
pub(crate) const ACTIVITY: &str = "Activity of threads";
pub(crate) const FILTERS: &str = "Filters";
pub(crate) const TUNING: &str = "Tuning";
pub(crate) const TRIGGERS: &str = "Triggers";
pub(crate) const GENERAL: &str = "General";
