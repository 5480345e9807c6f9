//! Constructors of facts.

use std::borrow::Cow;
use std::time::Duration;

use crate::interval::{Fact, FactValue};

/// Returns a fact with a text.
pub(super) fn text(topic: &'static str, item: impl Into<Cow<'static, str>>, value: &str) -> Fact {
    Fact { topic: topic.into(), item: item.into(), value: FactValue::Text(value.to_owned()) }
}

/// Returns a fact with a number.
pub(super) fn number(topic: &'static str, item: impl Into<Cow<'static, str>>, value: u64) -> Fact {
    Fact { topic: topic.into(), item: item.into(), value: FactValue::Number(value) }
}

/// Returns a fact with a duration in nanoseconds.
pub(super) fn duration(topic: &'static str, item: impl Into<Cow<'static, str>>, value: Duration) -> Fact {
    number(topic, item, u64::try_from(value.as_nanos()).unwrap_or(u64::MAX))
}
