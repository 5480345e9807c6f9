//! Interned texts: packets refer to them by their IIDs, which keeps a trace with many spans small.

use std::collections::BTreeMap;

use memtrace_model::{Activity, EventValue, SpanKind, SpanLabel};

use super::argument_names::ArgumentName;
use crate::escape;
use crate::perfetto::messages::{InternedData, InternedName, InternedString};

/// IIDs of the texts of labels and events, by index in [`Activity::names`]. These IIDs follow the IIDs of stacks,
/// because both share the table of string values of annotations.
pub(super) struct Texts {
    values: BTreeMap<u32, u64>,
}

impl Texts {
    /// IID of the category of events.
    pub(super) const EVENT: u64 = SpanKind::ALL.len() as u64 + 1;

    pub(super) fn of(activity: &Activity) -> Self {
        let first = activity.stacks.len() as u64 + 1;
        let of_spans = activity.spans.iter().filter_map(|span| match span.label {
            Some(SpanLabel::Text(number)) => Some(number),
            Some(SpanLabel::Number(_)) | None => None,
        });
        let of_events = activity.events.iter().filter_map(|event| match event.value {
            EventValue::Text(number) => Some(number),
            EventValue::Number(_) | EventValue::None => None,
        });
        let mut values: BTreeMap<u32, u64> = of_spans.chain(of_events).map(|number| (number, 0)).collect();
        values.values_mut().zip(first..).for_each(|(iid, next)| *iid = next);
        Self { values }
    }

    /// Returns the IID of the category of a span.
    pub(super) fn category_of(kind: SpanKind) -> u64 {
        SpanKind::ALL.iter().take_while(|other| **other != kind).count() as u64 + 1
    }

    /// Returns the IID of the name of a span or an event. `number`: index in [`Activity::names`].
    pub(super) fn name_of(number: u32) -> u64 {
        u64::from(number) + 1
    }

    /// Returns the IID of a stack. `number`: index in [`Activity::stacks`].
    pub(super) fn stack(number: u32) -> u64 {
        u64::from(number) + 1
    }

    /// Returns the IID of the text of a label or an event. `number`: index in [`Activity::names`].
    pub(super) fn value(&self, number: u32) -> u64 {
        self.values[&number]
    }

    /// Returns all interned texts with their IIDs.
    pub(super) fn data(&self, activity: &Activity) -> InternedData {
        let categories = SpanKind::ALL.into_iter().map(SpanKind::name).chain(["event"]);
        let names = activity.names.iter().map(|name| escape::visible(name));
        let frames = |stack: &Vec<String>| stack.iter().map(|frame| escape::visible(frame)).collect::<Vec<_>>();
        let stacks = activity.stacks.iter().map(|stack| frames(stack).join("\n"));
        let values = self.values.keys().map(|number| escape::visible(&activity.names[*number as usize]));
        InternedData {
            event_categories: rows(categories.map(String::from)),
            event_names: rows(names),
            debug_annotation_names: rows(ArgumentName::ALL.map(|name| String::from(name.name())).into_iter()),
            debug_annotation_string_values: (1..)
                .zip(stacks.chain(values))
                .map(|(iid, text)| InternedString { iid: Some(iid), str: Some(text.into_bytes()) })
                .collect(),
        }
    }
}

fn rows(names: impl Iterator<Item = String>) -> Vec<InternedName> {
    (1..).zip(names).map(|(iid, name)| InternedName { iid: Some(iid), name: Some(name) }).collect()
}
