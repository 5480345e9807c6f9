//! Tags that targets have set, and the functions that set them.

use std::collections::BTreeMap;

use aya::maps::{Array, HashMap, MapData, MapError};
use memtrace_common::wire::{OTHER_TAGS, SeenValue, TagEntry, TagFunctionState, TagKey};
use memtrace_model::{TagEffect, TagField, TagFunctionCalls, TagId, TagName, TagSource, TestedArgument};

use super::bpf::Bpf;
use super::error::KernelError;
use super::wire_type::MapEntry;

/// Map of the functions, by their index.
const FUNCTIONS: &str = "TAG_FUNCTIONS";

/// Returns the tags that targets have set so far.
pub(super) fn read(bpf: &Bpf) -> BTreeMap<TagId, TagName> {
    type Entries<M> = HashMap<M, MapEntry<TagKey>, MapEntry<TagEntry>>;
    let map = bpf.map("TAGS").and_then(|map| Entries::try_from(map).ok());
    let all = map.iter().flat_map(HashMap::iter).filter_map(Result::ok);
    let tag =
        |(MapEntry(key), MapEntry(entry)): (MapEntry<TagKey>, MapEntry<TagEntry>)| (id(entry.number), name(key, entry));
    all.map(tag).chain([(id(OTHER_TAGS), TagName::Text(String::from("[other tags]")))]).collect()
}

/// Prepares the counts of the function with the number `index`, and the position of the field that contains the tag. The probe
/// must not be attached yet.
///
/// # Errors
///
/// There are too many functions.
pub(super) fn add_function(bpf: &mut Bpf, index: u8, effect: TagEffect) -> Result<(), KernelError> {
    let mut state = TagFunctionState::default();
    if let Some(TagSource::Field(TagField { steps, offsets, .. })) = effect.source {
        state = TagFunctionState { steps: steps.into(), offsets, ..state };
    }
    let failed = |error: MapError| KernelError::from_error("write the functions that set tags", &error);
    let mut functions: Array<&mut MapData, MapEntry<TagFunctionState>> =
        bpf.map_mut(FUNCTIONS)?.try_into().map_err(failed)?;
    functions.set(index.into(), MapEntry(state), 0).map_err(failed)
}

/// Returns the calls so far of the function with the number `index`; `None` if they cannot be read.
pub(super) fn calls(bpf: &Bpf, index: u8, effect: TagEffect, rule: &str) -> Option<TagFunctionCalls> {
    let functions: Array<&MapData, MapEntry<TagFunctionState>> = bpf.map(FUNCTIONS)?.try_into().ok()?;
    let MapEntry(state) = functions.get(&index.into(), 0).ok()?;
    Some(calls_of(&state, effect, rule))
}

fn calls_of(state: &TagFunctionState, effect: TagEffect, rule: &str) -> TagFunctionCalls {
    let value = |seen: &SeenValue| Some((u32::try_from(seen.key.checked_sub(1)?).ok()?, seen.calls));
    let tested = effect.condition.map(|(argument, _)| TestedArgument {
        argument,
        values: state.values.iter().filter_map(value).collect(),
        others: state.others,
    });
    TagFunctionCalls { rule: rule.to_owned(), calls: state.calls, effective: state.effective, tested }
}

/// Converts the number of a tag, which is below 2^16.
const fn id(number: u32) -> TagId {
    TagId(number as u16)
}

fn name(key: TagKey, entry: TagEntry) -> TagName {
    if key.is_name == 0 {
        return TagName::Number(key.value);
    }
    let text = entry.name.split(|&byte| byte == 0).next().unwrap_or_default();
    TagName::Text(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use memtrace_model::{TagAction, TagValue};

    use super::*;

    #[test]
    fn calls_have_the_values_of_the_tested_argument() {
        let mut state = TagFunctionState { calls: 12, effective: 3, others: 4, ..TagFunctionState::default() };
        state.values[0] = SeenValue { key: 1, calls: 5 };
        state.values[1] = SeenValue { key: 1 << 32, calls: 3 };
        let set = TagEffect {
            action: TagAction::Set,
            source: Some(TagSource::Argument(1)),
            value: TagValue::Word,
            condition: None,
        };
        let without = calls_of(&state, set, "set=f(id=arg1)");
        let expected = TagFunctionCalls { rule: "set=f(id=arg1)".into(), calls: 12, effective: 3, tested: None };
        assert_eq!(without, expected);
        let with = calls_of(&state, TagEffect { condition: Some((2, 7)), ..set }, "");
        let tested = TestedArgument { argument: 2, values: vec![(0, 5), (u32::MAX, 3)], others: 4 };
        assert_eq!(with.tested, Some(tested));
    }

    #[test]
    fn names_end_at_the_first_zero() {
        let mut entry = TagEntry { number: 1, reserved: 0, name: [0; _] };
        assert_eq!(name(TagKey { is_name: 0, value: 7 }, entry), TagName::Number(7));
        assert_eq!(name(TagKey { is_name: 1, value: 7 }, entry), TagName::Text(String::new()));
        entry.name[..4].copy_from_slice(b"net\xff");
        assert_eq!(name(TagKey { is_name: 1, value: 7 }, entry), TagName::Text(String::from("net\u{fffd}")));
        entry.name = [b'a'; _];
        assert_eq!(name(TagKey { is_name: 1, value: 7 }, entry), TagName::Text("a".repeat(64)));
    }
}
