//! Reader of the tags that targets have set.

use std::collections::BTreeMap;

use aya::maps::HashMap;
use memtrace_common::wire::{OTHER_TAGS, TagEntry, TagKey};
use memtrace_model::{TagId, TagName};

use super::bpf::Bpf;
use super::wire_type::MapEntry;

/// Returns the tags that targets have set so far.
pub(super) fn read(bpf: &Bpf) -> BTreeMap<TagId, TagName> {
    type Entries<M> = HashMap<M, MapEntry<TagKey>, MapEntry<TagEntry>>;
    let map = bpf.map("TAGS").and_then(|map| Entries::try_from(map).ok());
    let all = map.iter().flat_map(HashMap::iter).filter_map(Result::ok);
    let tag =
        |(MapEntry(key), MapEntry(entry)): (MapEntry<TagKey>, MapEntry<TagEntry>)| (id(entry.number), name(key, entry));
    all.map(tag).chain([(id(OTHER_TAGS), TagName::Text(String::from("[other tags]")))]).collect()
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
    use super::*;

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
