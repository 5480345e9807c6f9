//! Formats the result of `cargo xtask bench real` as a table.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::format::{self, list, number, short};

/// Returns the table, the conditions of the measurement, the lost events, and a paragraph about page faults.
pub(super) fn table(result: &Value) -> Result<String> {
    let mut text = String::from(
        "| program | untraced | allocations a second | memtrace | with `--probe-site return` | heaptrack |\n",
    );
    text.push_str("|---|---:|---:|---:|---:|---:|");
    let mut losses = String::new();
    for program in list(&result["programs"]) {
        let (name, does) = (field(program, "name")?, field(program, "does")?);
        let seconds = number(&program["seconds"], "median")?;
        let rate = format::thousands(number(program, "allocations")? / seconds);
        let (memtrace, at_return) = (slowdown(&program["memtrace"])?, slowdown(&program["at_return"])?);
        let heaptrack = match &program["heaptrack"] {
            Value::Null => String::from("-"),
            traced => slowdown(traced)?,
        };
        text.push_str(&format!(
            "\n| {name}: {does} | {} s | {rate} | {memtrace} | {at_return} | {heaptrack} |",
            short(seconds),
        ));
        let lost = number(&program["memtrace"], "lost")? + number(&program["at_return"], "lost")?;
        if lost > 0.0 {
            losses.push_str(&format!(" memtrace lost {} events of {name}.", format::thousands(lost)));
        }
    }
    if losses.is_empty() {
        losses.push_str(" memtrace lost no event.");
    }
    text.push_str(&format!(
        "\n\nRun time relative to untraced: median (minimum–maximum) of {} rounds, all variants in turn; memtrace with its \
         default options, that is, with complete stacks. {}; the target and the tracer run on separate processors, and the client of redis-server runs on those of the target.{losses}{}",
        number(result, "rounds")?,
        format::machine(result)?,
        format::left_out(result, str::to_owned),
    ));
    text.push_str(&faults(&result["faults"])?);
    Ok(text)
}

/// Returns a paragraph about the overhead of tracing page faults.
fn faults(faults: &Value) -> Result<String> {
    let times = |mode: &str, quantity: &str| -> Result<String> {
        let of = |part: &str| number(&faults[mode][quantity], part);
        Ok(format!("{:.3} ({:.3}–{:.3})", of("median")?, of("min")?, of("max")?))
    };
    let lost = faults["lost"].as_object().context("page faults have no losses")?;
    let lost: Vec<String> = lost.iter().map(|(name, count)| format!("{count} of `{name}`")).collect();
    Ok(format!(
        "\n\nPage faults of the whole machine while it {}, on processors shared with memtrace: with one page in {} sampled, {} \
         times the run time and {} times the CPU time including memtrace's; with all of {} pages, {} and {} times. Of the ten \
         largest sites of each round, {} of {} estimates were within the reported error. Lost events: {}.",
        field(faults, "does")?,
        number(faults, "sample")?,
        times("sampled", "time")?,
        times("sampled", "processor")?,
        format::thousands(number(faults, "touched")?),
        times("exact", "time")?,
        times("exact", "processor")?,
        number(faults, "within")?,
        number(faults, "sites")?,
        if lost.is_empty() { String::from("none") } else { lost.join(", ") },
    ))
}

fn field<'a>(program: &'a Value, name: &str) -> Result<&'a str> {
    program[name].as_str().with_context(|| format!("a program has no {name}"))
}

fn slowdown(traced: &Value) -> Result<String> {
    let slowdown = &traced["slowdown"];
    let times = |name: &str| number(slowdown, name);
    Ok(format!("{:.2}× ({:.2}–{:.2})", times("median")?, times("min")?, times("max")?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(lost: u64) -> Value {
        let spread = |median: f64| json!({ "median": median, "min": median - 0.5, "max": median + 0.5 });
        json!({
            "rounds": 7,
            "machine": { "cpu": "C", "processors": 2, "is_virtual": true, "kernel": "6.1", "system": "S" },
            "programs": [
                {
                    "name": "sqlite3", "does": "inserts", "allocations": 3_000_000, "seconds": spread(2.0),
                    "memtrace": { "slowdown": spread(3.0), "lost": lost },
                    "at_return": { "slowdown": spread(4.0), "lost": 0 },
                    "heaptrack": { "slowdown": spread(4.25), "lost": null },
                },
                {
                    "name": "python3", "does": "computes", "allocations": 10, "seconds": spread(1.0),
                    "memtrace": { "slowdown": spread(1.5), "lost": 0 },
                    "at_return": { "slowdown": spread(1.75), "lost": 0 }, "heaptrack": null,
                },
            ],
            "faults": {
                "does": "builds", "sample": 64, "touched": 500_000, "lost": { "ring_full_fault": 5 },
                "sampled": { "time": spread(1.5), "processor": spread(1.25) },
                "exact": { "time": spread(2.5), "processor": spread(2.0) },
                "sites": 70, "within": 69,
            },
            "left_out": [{ "name": "heaptrack", "reason": "it is not installed" }],
        })
    }

    #[test]
    fn each_program_has_a_row() {
        let text = table(&result(0)).unwrap();
        let rows: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).skip(2).collect();
        assert_eq!(
            rows,
            [
                "| sqlite3: inserts | 2.0 s | 1,500,000 | 3.00× (2.50–3.50) | 4.00× (3.50–4.50) | 4.25× (3.75–4.75) |",
                "| python3: computes | 1.0 s | 10 | 1.50× (1.00–2.00) | 1.75× (1.25–2.25) | - |",
            ]
        );
        assert!(text.contains("memtrace lost no event. Not measured: heaptrack (it is not installed)."), "{text}");
        assert!(
            text.contains("one page in 64 sampled, 1.500 (1.000–2.000) times the run time and 1.250 (0.750–1.750)"),
            "{text}"
        );
        assert!(text.contains("all of 500,000 pages, 2.500 (2.000–3.000) and 2.000 (1.500–2.500) times"), "{text}");
        assert!(
            text.ends_with("69 of 70 estimates were within the reported error. Lost events: 5 of `ring_full_fault`."),
            "{text}"
        );
    }

    #[test]
    fn losses_are_reported() {
        let text = table(&result(1234)).unwrap();
        assert!(text.contains(" memtrace lost 1,234 events of sqlite3."), "{text}");
        assert!(!text.contains("lost no event"), "{text}");
    }
}
