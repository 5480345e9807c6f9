//! Formats the common parts of results: the machine, omitted variants and numbers.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Returns a description of the machine in one line.
pub(super) fn machine(result: &Value) -> Result<String> {
    let machine = &result["machine"];
    let text = |name: &str| machine[name].as_str().with_context(|| format!("the machine has no {name}"));
    let guest = if machine["is_virtual"] == true { "a virtual machine" } else { "not a virtual machine" };
    let processors = &machine["processors"];
    Ok(format!("{}, {processors} processors, {guest}, {}, Linux {}", text("cpu")?, text("system")?, text("kernel")?))
}

/// Returns sentences about the variants that were not measured. `title` returns the title of a variant.
pub(super) fn left_out(result: &Value, title: impl Fn(&str) -> String) -> String {
    let mut sentences = String::new();
    for left_out in list(&result["left_out"]) {
        let (name, reason) = (left_out["name"].as_str().unwrap_or("?"), left_out["reason"].as_str().unwrap_or("?"));
        sentences.push_str(&format!(" Not measured: {} ({reason}).", title(name)));
    }
    sentences
}

/// Returns the elements of an array; no elements for another type.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the number in the member `name`.
pub(super) fn number(value: &Value, name: &str) -> Result<f64> {
    value[name].as_f64().with_context(|| format!("the result has no {name}"))
}

/// Formats a number with a precision that depends on its size, because measurements have few significant digits:
/// `0.12`, `7.2`, `58`, `1,370`.
pub(super) fn short(number: f64) -> String {
    match number.abs() {
        size if size < 1.0 => format!("{number:.2}"),
        size if size < 10.0 => format!("{number:.1}"),
        _ => thousands(number.round()),
    }
}

/// Formats an integer in groups of three digits.
pub(super) fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
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
    fn precision_depends_on_the_size_of_a_number() {
        let shown = [0.123, 7.24, 9.96, 58.4, 999.6, 1370.2, 1_234_567.0].map(short);
        assert_eq!(shown, ["0.12", "7.2", "10.0", "58", "1,000", "1,370", "1,234,567"]);
    }

    #[test]
    fn machine_is_described_in_a_line() {
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
    fn omitted_variants_have_a_reason() {
        let result = json!({ "left_out": [{ "name": "heaptrack", "reason": "not installed" }] });
        assert_eq!(left_out(&result, str::to_uppercase), " Not measured: HEAPTRACK (not installed).");
        assert_eq!(left_out(&json!({ "left_out": [] }), str::to_uppercase), "");
    }
}
