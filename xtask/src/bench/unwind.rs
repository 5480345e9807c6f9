//! Formats the result of `cargo xtask bench unwind` as a table.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::format::{self, list, number, short};

/// Variants and their titles, ordered like the rows.
const VARIANTS: &[(&str, &str)] = &[
    ("empty", "an empty program"),
    ("helper", "only `bpf_get_stack`, target with frame pointers"),
    ("without-stacks", "memtrace, no stacks (`--max-depth 0`)"),
    ("tables", "memtrace, stacks by unwind tables, target without frame pointers"),
    ("cold", "memtrace, stacks by unwind tables, frames not in the cache"),
];

/// Ratios and their titles, ordered like the rows.
const RATIOS: &[(&str, &str)] = &[
    ("ratio", "memtrace by unwind tables / only `bpf_get_stack`"),
    ("ratio_of_stacks", "(memtrace by unwind tables − no stacks) / (`bpf_get_stack` − an empty program)"),
];

/// Maximum of the first ratio: the run time of memtrace's BPF program with a walk by unwind tables, divided by the run
/// time of a BPF program that only calls `bpf_get_stack`.
const MAX_RATIO: f64 = 1.2;

/// Returns the table and the conditions of the measurement.
pub(super) fn table(result: &Value) -> Result<String> {
    let depths = list(&result["depths"]);
    let mut text = String::from("| ns at malloc's return (ns per pair of malloc and free) |");
    for depth in depths {
        text.push_str(&format!(" {} frames |", number(depth, "frames")?));
    }
    text.push_str("\n|---|");
    text.push_str(&"---:|".repeat(depths.len()));
    for (name, title) in VARIANTS {
        let cells = depths.iter().map(|depth| cell(depth, name)).collect::<Result<Vec<_>>>()?;
        text.push_str(&format!("\n| {title} | {} |", cells.join(" | ")));
    }
    for (name, title) in RATIOS {
        let cells = depths.iter().map(|depth| ratio(depth, name)).collect::<Result<Vec<_>>>()?;
        text.push_str(&format!("\n| {title} | {} |", cells.join(" | ")));
    }
    let (rounds, slice) = (number(result, "rounds")?, number(result, "slice_ms")?);
    text.push_str(&format!(
        "\n\nRun time of the program at malloc's return in nanoseconds, measured by the kernel and including the time of \
         this measurement; in parentheses the time of a `malloc` and a `free` with all their probes, measured by the target. \
         Medians of {rounds} rounds of {slice} ms, all variants in turn; ratios within a round, with minimum and maximum. \
         memtrace and `bpf_get_stack` both report complete stacks with exactly this number of frames. All frames of a stack \
         occurred in the previous stack, except in the row of frames not in the cache: there only main and its callers did. \
         {} {}.",
        verdict(depths)?,
        format::machine(result)?,
    ));
    Ok(text)
}

fn cell(depth: &Value, name: &str) -> Result<String> {
    let variant = list(&depth["variants"]).iter().find(|entry| entry["name"] == name);
    let variant = variant.with_context(|| format!("the result lacks {name}"))?;
    let median = |spread: &str| number(&variant[spread], "median").map(short);
    Ok(format!("{} ({})", median("program_ns")?, median("pair_ns")?))
}

fn ratio(depth: &Value, name: &str) -> Result<String> {
    let of = |field: &str| number(&depth[name], field);
    Ok(format!("**{:.2}** ({:.2}–{:.2})", of("median")?, of("min")?, of("max")?))
}

fn verdict(depths: &[Value]) -> Result<String> {
    let mut above = Vec::new();
    for depth in depths {
        if number(&depth["ratio"], "median")? > MAX_RATIO {
            above.push(format!("{} frames", number(depth, "frames")?));
        }
    }
    Ok(match above.as_slice() {
        [] => format!("The first ratio is within the limit of {MAX_RATIO}."),
        above => format!("The first ratio EXCEEDS the limit of {MAX_RATIO} at {}.", above.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(ratio: f64) -> Value {
        let spread = |median: f64| json!({ "median": median, "min": median / 2.0, "max": median * 2.0 });
        let variant =
            |name: &str, ns: f64| json!({ "name": name, "program_ns": spread(ns), "pair_ns": spread(ns + 2000.0) });
        let depth = |frames: u32, ratio: f64| {
            let variants = [
                variant("tables", 600.0),
                variant("cold", 1000.0),
                variant("without-stacks", 200.0),
                variant("helper", 800.0),
                variant("empty", 50.0),
            ];
            json!({ "frames": frames, "variants": variants, "ratio": spread(ratio), "ratio_of_stacks": spread(0.5) })
        };
        json!({
            "rounds": 25, "slice_ms": 50,
            "machine": { "cpu": "C", "processors": 2, "is_virtual": false, "kernel": "6.1", "system": "S" },
            "depths": [depth(5, 0.6), depth(50, ratio)],
        })
    }

    #[test]
    fn columns_are_depths_and_last_rows_are_ratios() {
        let text = table(&result(0.8)).unwrap();
        let rows: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
        assert_eq!(
            rows,
            [
                "| ns at malloc's return (ns per pair of malloc and free) | 5 frames | 50 frames |",
                "|---|---:|---:|",
                "| an empty program | 50 (2,050) | 50 (2,050) |",
                "| only `bpf_get_stack`, target with frame pointers | 800 (2,800) | 800 (2,800) |",
                "| memtrace, no stacks (`--max-depth 0`) | 200 (2,200) | 200 (2,200) |",
                "| memtrace, stacks by unwind tables, target without frame pointers \
                 | 600 (2,600) | 600 (2,600) |",
                "| memtrace, stacks by unwind tables, frames not in the cache \
                 | 1,000 (3,000) | 1,000 (3,000) |",
                "| memtrace by unwind tables / only `bpf_get_stack` \
                 | **0.60** (0.30–1.20) | **0.80** (0.40–1.60) |",
                "| (memtrace by unwind tables − no stacks) / (`bpf_get_stack` − an empty program) \
                 | **0.50** (0.25–1.00) | **0.50** (0.25–1.00) |",
            ]
        );
    }

    #[test]
    fn depth_of_an_excessive_ratio_is_reported() {
        assert!(table(&result(1.2)).unwrap().contains("within the limit of 1.2."));
        assert!(table(&result(1.21)).unwrap().contains("EXCEEDS the limit of 1.2 at 50 frames."));
    }

    #[test]
    fn missing_variant_is_an_error() {
        let mut result = result(1.0);
        result["depths"][0]["variants"].as_array_mut().unwrap().pop();
        assert!(table(&result).is_err());
    }
}
