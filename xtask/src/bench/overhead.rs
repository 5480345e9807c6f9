//! Formats the result of `cargo xtask bench overhead` as a table.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::format::{self, list, number, short};

/// Variants and their titles, ordered like the rows.
const VARIANTS: &[(&str, &str)] = &[
    ("bare", "untraced"),
    ("floor", "floor: empty BPF programs at memtrace's probes"),
    ("memtrace-without-stacks", "memtrace, no stacks (`--max-depth 0`)"),
    ("memtrace", "memtrace, stacks of 5 frames"),
    ("return-floor", "floor of the next two: empty BPF programs at malloc's entry and return, and at free"),
    ("memtrace-at-return-without-stacks", "memtrace with these probes (`--probe-site return`), no stacks"),
    ("memtrace-at-return", "memtrace with these probes, stacks of 5 frames"),
    ("memtrace-at-entry", "memtrace with probes on first instructions (`--probe-site entry`), stacks of 5 frames"),
    ("bpftrace", "bpftrace with the same totals"),
    ("heaptrack", "heaptrack, preloaded, whole stacks"),
    ("threads-floor", "floor of `memtrace threads`: empty BPF programs at the return of malloc and at free"),
    ("memtrace-threads", "`memtrace threads`, which counts without records"),
];

/// Modes and their titles, ordered like the columns.
const MODES: &[(&str, &str)] =
    &[("loop", "one block after the other"), ("live", "20,000 live blocks"), ("threads", "4 threads")];

/// Returns the table and the conditions of the measurement.
pub(super) fn table(result: &Value) -> Result<String> {
    let mut text = String::from("| ns a pair (× floor, × untraced) |");
    for (_, title) in MODES {
        text.push_str(&format!(" {title} |"));
    }
    text.push_str("\n|---|");
    text.push_str(&"---:|".repeat(MODES.len()));
    for (name, title) in VARIANTS {
        let cells = MODES.iter().map(|(mode, _)| cell(result, mode, name)).collect::<Result<Vec<_>>>()?;
        if cells.iter().any(Option::is_some) {
            let cells: Vec<String> = cells.into_iter().map(|cell| cell.unwrap_or_else(|| String::from("-"))).collect();
            text.push_str(&format!("\n| {title} | {} |", cells.join(" | ")));
        }
    }
    let (rounds, slice) = (number(result, "rounds")?, number(result, "slice_ms")?);
    text.push_str(&format!(
        "\n\nNanoseconds of CPU time per pair of `malloc` and `free`; medians of {rounds} rounds of {slice} ms, all \
         variants in turn. {}; the target and the tracer run on separate processors, the 4 threads on {}. {}{}{}",
        format::machine(result)?,
        threads(result)?,
        sites(result)?,
        losses(result),
        format::left_out(result, title),
    ));
    Ok(text)
}

fn title(name: &str) -> String {
    let row = VARIANTS.iter().find(|(variant, _)| *variant == name);
    row.map_or(name, |(_, title)| title).to_owned()
}

fn mode<'a>(result: &'a Value, name: &str) -> Result<&'a Value> {
    let mode = list(&result["modes"]).iter().find(|entry| entry["name"] == name);
    mode.with_context(|| format!("the result lacks the mode {name}"))
}

fn variant<'a>(result: &'a Value, mode_name: &str, name: &str) -> Result<Option<&'a Value>> {
    Ok(list(&mode(result, mode_name)?["variants"]).iter().find(|entry| entry["name"] == name))
}

fn cell(result: &Value, mode: &str, name: &str) -> Result<Option<String>> {
    let Some(variant) = variant(result, mode, name)? else { return Ok(None) };
    let ns = short(number(variant, "median")?);
    let times = |field: &str| number(variant, field);
    Ok(Some(match name {
        "bare" => ns,
        _ => format!("{ns} ({:.2}, {})", times("to_floor")?, short(times("to_bare")?)),
    }))
}

/// Returns the number of processors that the threads run on, as text: `one` or `2`.
fn threads(result: &Value) -> Result<String> {
    let processors = mode(result, "threads")?["processors"].as_str().context("a mode has no processors")?;
    Ok(match processors.split(',').count() {
        1 => String::from("one"),
        count => count.to_string(),
    })
}

/// Returns a sentence with the offsets of the probes, such as `malloc +0`.
fn sites(result: &Value) -> Result<String> {
    let sites = list(&result["sites"]["floor"]).iter().map(|site| {
        let function = site["function"].as_str().context("a site has no function")?;
        let event = if site["event"] == "return" { " return" } else { "" };
        let offset = number(site, "offset")?;
        Ok(format!("{function}{event} +{offset}"))
    });
    let sites = sites.collect::<Result<Vec<_>>>()?;
    if sites.is_empty() {
        bail!("the result has no probe sites");
    }
    Ok(format!("Probe offsets of memtrace and the floor: {}.", sites.join(", ")))
}

/// Returns sentences about lost events. Lost events make a tool look faster than it is.
fn losses(result: &Value) -> String {
    let mut sentences = String::new();
    for (mode, mode_title) in MODES {
        for (name, title) in VARIANTS {
            let lost = variant(result, mode, name).ok().flatten().and_then(|variant| variant["lost"].as_f64());
            if let Some(lost) = lost.filter(|&lost| lost > 0.0) {
                sentences.push_str(&format!(" Lost events ({mode_title}; {title}): {}.", format::thousands(lost)));
            }
        }
    }
    if sentences.is_empty() { String::from(" memtrace lost no event.") } else { sentences }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(lost: u64) -> Value {
        let variant = |name: &str, median: f64, lost: Option<u64>| {
            json!({
                "name": name, "median": median, "to_floor": median / 1000.0, "to_bare": median / 10.0, "lost": lost,
            })
        };
        let mode = |name: &str| {
            let variants =
                [variant("memtrace", 1500.0, Some(lost)), variant("bare", 10.0, None), variant("floor", 1000.0, None)];
            json!({ "name": name, "processors": "1", "variants": variants })
        };
        json!({
            "rounds": 15, "slice_ms": 400,
            "machine": { "cpu": "C", "processors": 2, "is_virtual": false, "kernel": "6.1", "system": "S" },
            "sites": {
                "floor": [
                    { "function": "malloc", "event": "entry", "offset": 50 },
                    { "function": "malloc", "event": "return", "offset": 0 },
                    { "function": "free", "event": "entry", "offset": 3 },
                ],
            },
            "modes": MODES.iter().map(|(name, _)| mode(name)).collect::<Vec<_>>(),
            "left_out": [{ "name": "heaptrack", "reason": "it is not installed" }],
        })
    }

    #[test]
    fn rows_have_a_fixed_order_and_ratios() {
        let text = table(&result(0)).unwrap();
        let rows: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).skip(2).collect();
        assert_eq!(
            rows,
            [
                "| untraced | 10 | 10 | 10 |",
                "| floor: empty BPF programs at memtrace's probes \
                 | 1,000 (1.00, 100) | 1,000 (1.00, 100) | 1,000 (1.00, 100) |",
                "| memtrace, stacks of 5 frames | 1,500 (1.50, 150) | 1,500 (1.50, 150) | 1,500 (1.50, 150) |",
            ]
        );
    }

    #[test]
    fn conditions_are_below_the_table() {
        let text = table(&result(0)).unwrap();
        let conditions = text.lines().last().unwrap();
        for part in [
            "medians of 15 rounds of 400 ms",
            "C, 2 processors, not a virtual machine, S, Linux 6.1;",
            "the 4 threads on one.",
            "malloc +50, malloc return +0, free +3.",
            "memtrace lost no event.",
            "Not measured: heaptrack, preloaded, whole stacks (it is not installed).",
        ] {
            assert!(conditions.contains(part), "{part} is not in: {conditions}");
        }
    }

    #[test]
    fn losses_are_reported() {
        let text = table(&result(1234)).unwrap();
        assert!(text.contains("Lost events (4 threads; memtrace, stacks of 5 frames): 1,234."), "{text}");
        assert!(!text.contains("lost no event"), "{text}");
    }

    #[test]
    fn other_json_is_an_error() {
        assert!(table(&json!({})).is_err());
    }
}
