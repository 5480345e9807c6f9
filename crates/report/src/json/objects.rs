//! JSON objects with names as keys.

use memtrace_json::Object;
use memtrace_model::Losses;

/// Returns a JSON object with sorted keys.
pub(crate) fn by_name<'a, T>(values: impl IntoIterator<Item = (&'a str, T)>) -> Object<'a, T> {
    let mut object: Object<'a, T> = in_order(values);
    object.sort_unstable_keys();
    object
}

/// Returns a JSON object with the keys in the order of `values`.
pub(crate) fn in_order<'a, T>(values: impl IntoIterator<Item = (&'a str, T)>) -> Object<'a, T> {
    values.into_iter().map(|(name, value)| (name.into(), value)).collect()
}

/// Returns the losses that are not zero, by name.
pub(crate) fn occurred(losses: &Losses) -> Object<'static, u64> {
    by_name(losses.iter().filter(|(_, count)| *count > 0).map(|(reason, count)| (reason.name(), count)))
}
