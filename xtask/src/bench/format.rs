//! What the results have in common: the machine, and how numbers are written.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// The machine that a result is of, in a line.
pub(super) fn machine(result: &Value) -> Result<String> {
    let machine = &result["machine"];
    let text = |name: &str| machine[name].as_str().with_context(|| format!("the machine has no {name}"));
    let guest = if machine["is_virtual"] == true { "a virtual machine" } else { "no virtual machine" };
    let processors = &machine["processors"];
    Ok(format!("{}, {processors} processors, {guest}, {}, Linux {}", text("cpu")?, text("system")?, text("kernel")?))
}

/// What could not be measured, as sentences; empty where nothing was left out. `name` makes a title of a name.
pub(super) fn left_out(result: &Value, name: impl Fn(&str) -> String) -> String {
    let mut sentences = String::new();
    for left_out in list(&result["left_out"]) {
        let (what, why) = (left_out["name"].as_str().unwrap_or("?"), left_out["reason"].as_str().unwrap_or("?"));
        sentences.push_str(&format!(" Not measured: {} ({why}).", name(what)));
    }
    sentences
}

/// The elements of a list; none where it is no list.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A number that must be there.
pub(super) fn number(value: &Value, name: &str) -> Result<f64> {
    value[name].as_f64().with_context(|| format!("the result has no {name}"))
}

/// Three digits are what a measurement is good for: `0.12`, `7.2`, `58`, `1,370`.
pub(super) fn short(number: f64) -> String {
    match number.abs() {
        size if size < 1.0 => format!("{number:.2}"),
        size if size < 10.0 => format!("{number:.1}"),
        _ => thousands(number.round()),
    }
}

/// A whole number in groups of three digits.
pub(super) fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_as_long_as_they_are_sure() {
        let shown = [0.123, 7.24, 9.96, 58.4, 999.6, 1370.2, 1_234_567.0].map(short);
        assert_eq!(shown, ["0.12", "7.2", "10.0", "58", "1,000", "1,370", "1,234,567"]);
    }

    #[test]
    fn the_machine_is_named_in_a_line() {
        let machine = json!({
            "cpu": "AMD EPYC", "processors": 2, "is_virtual": true, "kernel": "6.18.44", "system": "Debian GNU/Linux 12",
        });
        assert_eq!(
            super::machine(&json!({ "machine": machine })).unwrap(),
            "AMD EPYC, 2 processors, a virtual machine, Debian GNU/Linux 12, Linux 6.18.44"
        );
        assert!(super::machine(&json!({})).is_err());
    }

    #[test]
    fn what_was_left_out_is_said_with_its_reason() {
        let result = json!({ "left_out": [{ "name": "heaptrack", "reason": "not installed" }] });
        assert_eq!(left_out(&result, str::to_uppercase), " Not measured: HEAPTRACK (not installed).");
        assert_eq!(left_out(&json!({ "left_out": [] }), str::to_uppercase), "");
    }
}
