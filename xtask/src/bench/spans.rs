//! Formats the result of `cargo xtask bench spans` as a table.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::format::{self, list, number, short};

/// Kinds of spans and their titles, ordered like the rows.
const KINDS: &[(&str, &str)] = &[
    ("event", "event"),
    ("task", "task"),
    ("lock", "lock without contention"),
    ("call", "call of a function"),
    ("leaf", "call of a function with a single-stepped first instruction"),
    (COMPUTE, "computation without waits, with `--min-wait`"),
];

/// Kind of span without probes.
const COMPUTE: &str = "compute";

/// Maximum time of a program that never waits while memtrace traces waits, divided by its time without memtrace.
const MAX_RATIO: f64 = 1.01;

/// Variants and their titles, ordered like the columns.
const VARIANTS: &[(&str, &str)] = &[
    ("bare", "untraced"),
    ("floor", "floor: empty BPF programs at memtrace's probes"),
    ("uretprobe-floor", "the same with a uretprobe"),
    ("memtrace", "memtrace"),
];

/// Returns the table and the conditions of the measurement.
pub(super) fn table(result: &Value) -> Result<String> {
    let mut text = String::from("| ns a span (× floor) | probes |");
    for (_, title) in VARIANTS {
        text.push_str(&format!(" {title} |"));
    }
    text.push_str("\n|---|---:|");
    text.push_str(&"---:|".repeat(VARIANTS.len()));
    let mut lost = 0.0;
    for (name, title) in KINDS {
        let kind = list(&result["kinds"]).iter().find(|entry| entry["name"] == *name);
        let kind = kind.with_context(|| format!("the result lacks {name}"))?;
        text.push_str(&format!("\n| {title} | {} |", list(&kind["sites"]).len()));
        for (name, _) in VARIANTS {
            let variant = list(&kind["variants"]).iter().find(|entry| entry["name"] == *name);
            text.push_str(&format!(" {} |", cell(variant)?));
            lost += variant.and_then(|variant| variant["lost"].as_f64()).unwrap_or_default();
        }
    }
    let (rounds, slice) = (number(result, "rounds")?, number(result, "slice_ms")?);
    let losses = match lost > 0.0 {
        true => format!("memtrace lost {} events, which makes it look faster than it is.", format::thousands(lost)),
        false => String::from("memtrace lost no event."),
    };
    text.push_str(&format!(
        "\n\nNanoseconds per span; medians of {rounds} rounds of {slice} ms, all variants in turn. The ratio is that of the \
         times without the untraced one. {}; target and tracer run on separate processors. {} {losses}",
        format::machine(result)?,
        verdict(result)?,
    ));
    Ok(text)
}

/// Returns the time of a program without waits, compared with the limit.
fn verdict(result: &Value) -> Result<String> {
    let find = |entries: &Value, name: &str| list(entries).iter().find(|entry| entry["name"] == name).cloned();
    let kind = find(&result["kinds"], COMPUTE).with_context(|| format!("the result lacks {COMPUTE}"))?;
    let median = |name: &str| {
        let variant = find(&kind["variants"], name).with_context(|| format!("the result lacks {name}"))?;
        number(&variant, "median")
    };
    let ratio = median("memtrace")? / median("bare")?;
    Ok(match ratio > MAX_RATIO {
        true => format!("Tracing waits EXCEEDS the limit for a program without waits: {ratio:.3} times its time."),
        false => format!("A program without waits takes {ratio:.3} times as long while waits are traced."),
    })
}

fn cell(variant: Option<&Value>) -> Result<String> {
    let Some(variant) = variant else { return Ok(String::from("-")) };
    let ns = short(number(variant, "median")?);
    Ok(match variant["to_floor"].as_f64() {
        Some(ratio) => format!("{ns} ({ratio:.2})"),
        None => ns,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(lost: u64) -> Value {
        let kind = |name: &str, probes: usize| {
            json!({
                "name": name,
                "sites": vec![Value::Null; probes],
                "variants": [
                    { "name": "memtrace", "median": 1501.0, "to_floor": 1.5, "lost": lost },
                    { "name": "bare", "median": 1.0, "to_floor": null, "lost": null },
                    { "name": "floor", "median": 1001.0, "to_floor": 1.0, "lost": null },
                ],
            })
        };
        let compute = |traced: f64| {
            let variant = |name: &str, median: f64| json!({ "name": name, "median": median, "lost": null });
            let variants = [variant("memtrace", traced), variant("bare", 1000.0)];
            json!({ "name": "compute", "sites": [], "variants": variants })
        };
        json!({
            "rounds": 15, "slice_ms": 100,
            "machine": { "cpu": "C", "processors": 2, "is_virtual": true, "kernel": "6.1", "system": "S" },
            "kinds": [
                compute(1005.0), kind("leaf", 2), kind("call", 2), kind("event", 1), kind("lock", 3), kind("task", 2),
            ],
        })
    }

    #[test]
    fn rows_are_kinds_with_the_number_of_probes() {
        let text = table(&result(0)).unwrap();
        let rows: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).skip(2).collect();
        assert_eq!(
            rows,
            [
                "| event | 1 | 1.0 | 1,001 (1.00) | - | 1,501 (1.50) |",
                "| task | 2 | 1.0 | 1,001 (1.00) | - | 1,501 (1.50) |",
                "| lock without contention | 3 | 1.0 | 1,001 (1.00) | - | 1,501 (1.50) |",
                "| call of a function | 2 | 1.0 | 1,001 (1.00) | - | 1,501 (1.50) |",
                "| call of a function with a single-stepped first instruction \
                 | 2 | 1.0 | 1,001 (1.00) | - | 1,501 (1.50) |",
                "| computation without waits, with `--min-wait` | 0 | 1,000 | - | - | 1,005 |",
            ]
        );
        assert!(text.contains("C, 2 processors, a virtual machine, S, Linux 6.1;"), "{text}");
        assert!(text.ends_with("memtrace lost no event."), "{text}");
    }

    #[test]
    fn time_of_a_program_without_waits_is_compared_with_the_limit() {
        let mut result = result(0);
        let within = "A program without waits takes 1.005 times as long while waits are traced.";
        assert!(table(&result).unwrap().contains(within));
        result["kinds"][0]["variants"][0]["median"] = json!(1020.0);
        assert!(table(&result).unwrap().contains("EXCEEDS the limit for a program without waits: 1.020"));
    }

    #[test]
    fn losses_are_reported() {
        assert!(table(&result(2000)).unwrap().contains("memtrace lost 10,000 events"));
    }

    #[test]
    fn missing_kind_is_an_error() {
        let mut result = result(0);
        result["kinds"].as_array_mut().unwrap().pop();
        assert!(table(&result).is_err());
    }
}
