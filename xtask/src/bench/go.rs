//! Formats the result of `cargo xtask bench go` as a table.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::format::{self, number, short};

/// Kinds of readings and their titles, ordered like the rows.
const READINGS: [(&str, &str); 2] = [("first", "first reading"), ("repeated", "repeated reading, all stacks known")];

/// Maximum time of a reading of 10,000 buckets in milliseconds.
const MAX_MS: f64 = 20.0;

/// Returns the table and the conditions of the measurement.
pub(super) fn table(result: &Value) -> Result<String> {
    let mut text =
        String::from("| | ms | floor: one copy of as many bytes, ms | × floor | KiB |\n|---|---:|---:|---:|---:|");
    let mut above = Vec::new();
    for (name, title) in READINGS {
        let reading = &result[name];
        let median = |spread: &str| number(&reading[spread], "median").with_context(|| format!("{name}: {spread}"));
        let (ms, floor) = (median("ms")?, median("floor_ms")?);
        let (min, max) = (number(&reading["ratio"], "min")?, number(&reading["ratio"], "max")?);
        text.push_str(&format!(
            "\n| {title} | {} | {} | **{}** ({}–{}) | {} |",
            short(ms),
            short(floor),
            short(median("ratio")?),
            short(min),
            short(max),
            format::thousands(number(reading, "bytes")? / 1024.0),
        ));
        if ms > MAX_MS {
            above.push(title);
        }
    }
    let verdict = match above.as_slice() {
        [] => format!("Both are within the limit of {MAX_MS} ms."),
        above => format!("EXCEEDS the limit of {MAX_MS} ms: {}.", above.join("; ")),
    };
    let version = result["version"].as_str().context("the result has no version")?;
    text.push_str(&format!(
        "\n\nTime to read a heap profile of {} buckets, of a program made by {version}. Medians of {} rounds; ratios within a \
         round, with minimum and maximum. {verdict} {}.",
        format::thousands(number(result, "buckets")?),
        number(result, "rounds")?,
        format::machine(result)?,
    ));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(first: f64) -> Value {
        let spread = |median: f64| json!({ "median": median, "min": median / 2.0, "max": median * 2.0 });
        let reading = |ms: f64| {
            let (floor, ratio) = (spread(2.0), spread(ms / 2.0));
            json!({ "bytes": 10_485_760, "ms": spread(ms), "floor_ms": floor, "ratio": ratio })
        };
        json!({
            "rounds": 50, "version": "go1.19.8", "buckets": 10_003, "first": reading(first), "repeated": reading(5.0),
            "machine": { "cpu": "C", "processors": 2, "is_virtual": false, "kernel": "6.1", "system": "S" },
        })
    }

    #[test]
    fn rows_are_kinds_of_readings() {
        let text = table(&result(12.0)).unwrap();
        let rows: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).skip(2).collect();
        assert_eq!(
            rows,
            [
                "| first reading | 12 | 2.0 | **6.0** (3.0–12) | 10,240 |",
                "| repeated reading, all stacks known | 5.0 | 2.0 | **2.5** (1.2–5.0) | 10,240 |",
            ]
        );
        assert!(text.contains("10,003 buckets, of a program made by go1.19.8. Medians of 50 rounds;"), "{text}");
        assert!(
            text.ends_with("Both are within the limit of 20 ms. C, 2 processors, not a virtual machine, S, Linux 6.1.")
        );
    }

    #[test]
    fn slow_reading_is_reported() {
        assert!(table(&result(20.0)).unwrap().contains("within the limit of 20 ms."));
        assert!(table(&result(20.1)).unwrap().contains("EXCEEDS the limit of 20 ms: first reading."));
    }

    #[test]
    fn missing_reading_is_an_error() {
        let mut result = result(12.0);
        result["repeated"] = Value::Null;
        assert!(table(&result).is_err());
    }
}
