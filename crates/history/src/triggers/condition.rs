//! Conditions of triggers.

use std::fmt;
use std::time::Duration;

use memtrace_model::format;

use super::field::subjects_with;
use super::field::{Field, Unit};
use super::subject::Subject;

/// Comparison of a value with the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The value exceeds the limit.
    Above,
    /// The value is at least the limit.
    AtLeast,
    /// The value is below the limit.
    Below,
    /// The value is at most the limit.
    AtMost,
}

/// Period over which values are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
}

/// Condition on a field of all subjects of a kind. `Display` writes it in the syntax of the parser.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    /// Kind of the subjects.
    pub subject: Subject,
    /// The field.
    pub field: &'static Field,
    /// The comparison.
    pub comparison: Comparison,
    /// Limit in the unit of the field.
    pub limit: i64,
    /// Period of a sum. Without a period, the sum begins with the start of the monitor.
    pub period: Option<Period>,
}

impl Comparison {
    /// Returns the operator in the text of a condition.
    #[must_use]
    pub(crate) const fn operator(self) -> &'static str {
        match self {
            Self::Above => ">",
            Self::AtLeast => ">=",
            Self::Below => "<",
            Self::AtMost => "<=",
        }
    }

    /// Returns true if the comparison of `value` with `limit` is true.
    #[must_use]
    pub const fn is_met(self, value: i64, limit: i64) -> bool {
        match self {
            Self::Above => value > limit,
            Self::AtLeast => value >= limit,
            Self::Below => value < limit,
            Self::AtMost => value <= limit,
        }
    }

    /// Returns true if small values meet the condition.
    #[must_use]
    pub(crate) const fn is_upper_bound(self) -> bool {
        matches!(self, Self::Below | Self::AtMost)
    }
}

impl Period {
    /// All periods.
    pub const ALL: [Self; 3] = [Self::Second, Self::Minute, Self::Hour];

    /// Returns the name in the text of a condition.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Minute => "min",
            Self::Hour => "h",
        }
    }

    /// Returns the length of the period.
    #[must_use]
    pub const fn length(self) -> Duration {
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
        })
    }
}

impl Condition {
    /// Returns true if a value meets the condition.
    #[must_use]
    pub const fn is_met(&self, value: i64) -> bool {
        self.comparison.is_met(value, self.limit)
    }

    /// Returns true if the condition can be evaluated only after a whole period. Before that, a sum is below its
    /// limit only because it is incomplete.
    #[must_use]
    pub(crate) const fn needs_whole_period(&self) -> bool {
        self.period.is_some() && self.comparison.is_upper_bound()
    }

    /// Returns the limit in the syntax of the parser: `1GiB/min`, `12.5%`.
    #[must_use]
    pub(crate) fn limit_text(&self) -> String {
        let size = match self.field.unit {
            Unit::Bytes | Unit::SignedBytes => format::size_argument(self.limit.unsigned_abs()),
            Unit::Number => self.limit.unsigned_abs().to_string(),
            Unit::Percent => percent_argument(self.limit.unsigned_abs()),
        };
        self.with_sign_and_period(self.limit, &size)
    }

    /// Returns a value for the user: `1.20 GiB/min`, `12.5%`.
    #[must_use]
    pub(crate) fn value_text(&self, value: i64) -> String {
        let size = match self.field.unit {
            Unit::Bytes | Unit::SignedBytes => format::bytes(value.unsigned_abs()),
            Unit::Number => format::grouped(value.unsigned_abs()),
            Unit::Percent => format!("{:.1}%", value as f64 / 1000.0),
        };
        self.with_sign_and_period(value, &size)
    }

    fn with_sign_and_period(&self, value: i64, size: &str) -> String {
        let sign = if value < 0 { "-" } else { "" };
        let period = self.period.map_or(String::new(), |period| format!("/{}", period.name()));
        format!("{sign}{size}{period}")
    }
}

/// Returns thousandths of a percent as a percentage without trailing zeros.
fn percent_argument(thousandths: u64) -> String {
    let decimal = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    format!("{}%", decimal.trim_end_matches('0').trim_end_matches('.'))
}

impl fmt::Display for Condition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if subjects_with(self.field.name).next() != Some(self.subject) {
            write!(out, "{}.", self.subject.name())?;
        }
        write!(out, "{} {} {}", self.field.name, self.comparison.operator(), self.limit_text())
    }
}
