//! Formats the result of `cargo xtask bench sampled` as tables.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::format::{self, list, number, short};

/// Kinds of traces and their titles, ordered like the columns.
const MODES: &[(&str, &str)] = &[
    ("no-samples", "patched, no samples"),
    ("interval", "one sample in 512 KiB"),
    (RATE, "1000 samples a second"),
    ("exact", "each call"),
];

/// Kind of trace with a limit.
const RATE: &str = "rate";

/// Profilers that are preloaded, and their titles, ordered like the columns.
const PRELOADED: &[(&str, &str)] = &[("heaptrack", "heaptrack"), ("jemalloc-profiler", "profiler of jemalloc")];

/// Maximum run time of a build while the whole machine is traced, divided by the run time without memtrace.
const MACHINE_LIMIT: f64 = 1.04;

/// Maximum share of a processor that memtrace uses while the whole machine is traced.
const MEMTRACE_LIMIT: f64 = 0.03;

/// Returns the tables of the programs, of the empty loop and of the stops, and the conditions of the measurement.
pub(super) fn table(result: &Value) -> Result<String> {
    let mut above = Vec::new();
    let programs = programs(result, &mut above)?;
    let empty_loop = empty_loop(&result["empty_loop"], &mut above)?;
    let stops = stops(result)?;
    let machine = whole_machine(&result["whole_machine"], &mut above)?;
    let verdict = match above.as_slice() {
        [] => String::from("All are within their limits."),
        above => format!("EXCEEDS its limit: {}.", above.join("; ")),
    };
    Ok(format!(
        "{programs}\n\n{empty_loop}\n\n{stops}\n\n{machine}\n\nProcessor time relative to untraced phases of the same process, \
         before and after; of profilers that are preloaded, relative to another process. Median (minimum–maximum) of {} rounds with phases of \
         {} ms. {}; the programs and memtrace run on separate processors, except for the whole machine. {verdict}{}",
        number(result, "rounds")?,
        number(result, "slice_ms")?,
        format::machine(result)?,
        format::left_out(result, str::to_owned),
    ))
}

/// Returns the table of the programs. Adds the names of the programs above their limits to `above`.
fn programs(result: &Value, above: &mut Vec<String>) -> Result<String> {
    let titles = MODES.iter().chain(PRELOADED).map(|(_, title)| format!(" {title} |"));
    let mut text =
        format!("| program | ms a round | samples a second |{}\n|---|---:|---:|", titles.collect::<String>());
    text.push_str(&"---:|".repeat(MODES.len() + PRELOADED.len()));
    let mut losses = String::new();
    for program in list(&result["programs"]) {
        let name = program["name"].as_str().context("a program has no name")?;
        let does = program["does"].as_str().context("a program has no work")?;
        let rate = named(&program["modes"], RATE).with_context(|| format!("{name} has no mode {RATE}"))?;
        let samples = rate["samples_per_s"]["median"].as_f64().map_or_else(|| String::from("-"), short);
        text.push_str(&format!("\n| {name}: {does} | {} | {samples} |", short(number(&program["ms"], "median")?)));
        for (mode, title) in MODES {
            let mode = named(&program["modes"], mode).with_context(|| format!("{name} has no mode {mode}"))?;
            text.push_str(&format!(" {} |", times(mode)?));
            let lost = number(mode, "lost")?;
            if lost > 0.0 {
                losses.push_str(&format!(" memtrace lost {} events of {name}, {title}.", format::thousands(lost)));
            }
        }
        for (profiler, _) in PRELOADED {
            let measured = named(&program["preloaded"], profiler);
            let cell = measured.map_or_else(|| Ok(String::from("-")), |measured| times(&measured["ratio"]))?;
            text.push_str(&format!(" {cell} |"));
        }
        if number(rate, "median")? > number(program, "limit")? {
            above.push(name.to_owned());
        }
    }
    Ok(format!("{text}{}", if losses.is_empty() { String::new() } else { format!("\n\n{}", losses.trim_start()) }))
}

/// Returns the table of the experiments with the empty loop.
fn empty_loop(measured: &Value, above: &mut Vec<String>) -> Result<String> {
    let mut text = String::from(
        "| empty loop | blocks before | ratio | added ns a pair | in user space |\n|---|---:|---:|---:|---:|",
    );
    let limit = number(measured, "limit")?;
    for victim in list(&measured["victims"]) {
        let shift = number(victim, "shift")?;
        text.push_str(&format!("\n| untraced: {} ns | {shift} | | | |", short(number(&victim["ns"], "median")?)));
        for experiment in list(&victim["experiments"]) {
            let name = experiment["name"].as_str().context("an experiment has no name")?;
            text.push_str(&format!(
                "\n| {name} | {shift} | {} | {} | {} |",
                times(&experiment["ratio"])?,
                spread(&experiment["added_ns"])?,
                spread(&experiment["added_user_ns"])?,
            ));
            if name == RATE && number(&experiment["ratio"], "median")? > limit {
                above.push(format!("empty loop with {shift} blocks before"));
            }
        }
    }
    Ok(format!(
        "{text}\n\nA pair of malloc and free of {} bytes. The experiments act after each {} pairs, as often as samples are taken.",
        number(measured, "size")?,
        format::thousands(number(measured, "every")?),
    ))
}

/// Returns the table of the stops.
fn stops(result: &Value) -> Result<String> {
    let mut text = String::from("| threads | busy | stop: median ms | 99 % | worst |\n|---:|---:|---:|---:|---:|");
    for stops in list(&result["stops"]) {
        let of = |name: &str| number(stops, name);
        text.push_str(&format!(
            "\n| {} | {} | {:.2} | {:.2} | {:.2} |",
            of("threads")?,
            of("busy")?,
            of("median_ms")?,
            of("most_ms")?,
            of("worst_ms")?,
        ));
    }
    Ok(text)
}

/// Returns a paragraph about the trace of the whole machine.
fn whole_machine(measured: &Value, above: &mut Vec<String>) -> Result<String> {
    let lost = measured["lost"].as_object().context("the whole machine has no losses")?;
    let lost: Vec<String> = lost.iter().map(|(name, count)| format!("{count} of `{name}`")).collect();
    if number(&measured["ratio"], "median")? > MACHINE_LIMIT {
        above.push(String::from("the run time of the whole machine"));
    }
    let share = number(&measured["memtrace"], "median")?;
    if share > MEMTRACE_LIMIT {
        above.push(String::from("the processor time of memtrace"));
    }
    if !lost.is_empty() {
        above.push(String::from("losses of the whole machine"));
    }
    Ok(format!(
        "The whole machine {}: {} times the run time; memtrace uses {:.1} % of a processor and patches {} processes. Lost events: {}.",
        measured["does"].as_str().context("the whole machine has no work")?,
        times(&measured["ratio"])?,
        share * 100.0,
        short(number(&measured["patched"], "median")?),
        if lost.is_empty() { String::from("none") } else { lost.join(", ") },
    ))
}

/// Returns the element with this name.
fn named<'a>(entries: &'a Value, name: &str) -> Option<&'a Value> {
    list(entries).iter().find(|entry| entry["name"] == name)
}

/// Formats the median and the range of a ratio.
fn times(ratio: &Value) -> Result<String> {
    let of = |part: &str| number(ratio, part);
    Ok(format!("{:.3} ({:.3}–{:.3})", of("median")?, of("min")?, of("max")?))
}

/// Formats the median and the range of times, which can be negative.
fn spread(times: &Value) -> Result<String> {
    let of = |part: &str| number(times, part);
    Ok(format!("{:.2} ({:.2}–{:.2})", of("median")?, of("min")?, of("max")?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(rate: f64, lost: u64) -> Value {
        let spread = |median: f64| json!({ "median": median, "min": median - 0.5, "max": median + 0.5 });
        let mode = |name: &str, ratio: f64, samples: Option<f64>, lost: u64| {
            let samples = samples.map(spread);
            json!({
                "name": name, "median": ratio, "min": ratio - 0.5, "max": ratio + 0.5, "samples_per_s": samples, "lost": lost,
            })
        };
        json!({
            "rounds": 7, "slice_ms": 700,
            "machine": { "cpu": "C", "processors": 2, "is_virtual": true, "kernel": "6.1", "system": "S" },
            "programs": [{
                "name": "perl", "does": "builds a hash", "limit": 1.05, "ms": spread(50.0),
                "modes": [
                    mode("no-samples", 1.01, None, 0), mode("interval", 1.02, Some(200.0), 0),
                    mode("rate", rate, Some(990.0), 0), mode("exact", 15.0, None, lost),
                ],
                "preloaded": [{ "name": "heaptrack", "ratio": spread(4.25) }],
            }],
            "empty_loop": {
                "size": 64, "every": 8192, "limit": 1.25,
                "victims": [{
                    "shift": 13, "ns": spread(5.8),
                    "experiments": [
                        { "name": "rate", "ratio": spread(1.2), "added_ns": spread(1.0), "added_user_ns": spread(-1.0) },
                    ],
                }],
            },
            "stops": [{ "threads": 16, "busy": 1, "median_ms": 0.3, "most_ms": 1.25, "worst_ms": 2.0 }],
            "whole_machine": {
                "does": "compiles", "ratio": spread(1.03), "memtrace": spread(0.025), "patched": spread(9.0), "lost": {},
            },
            "left_out": [{ "name": "ruby", "reason": "ruby is not installed" }],
        })
    }

    #[test]
    fn each_program_has_a_row() {
        let text = table(&result(1.04, 0)).unwrap();
        let expected = "| perl: builds a hash | 50 | 990 | 1.010 (0.510–1.510) | 1.020 (0.520–1.520) | 1.040 (0.540–1.540) | 15.000 \
                        (14.500–15.500) | 4.250 (3.750–4.750) | - |";
        assert!(text.lines().any(|line| line == expected), "{text}");
        for line in [
            "| untraced: 5.8 ns | 13 | | | |",
            "| rate | 13 | 1.200 (0.700–1.700) | 1.00 (0.50–1.50) | -1.00 (-1.50–-0.50) |",
            "| 16 | 1 | 0.30 | 1.25 | 2.00 |",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
        assert!(
            text.contains("The whole machine compiles: 1.030 (0.530–1.530) times the run time; memtrace uses 2.5 % of"),
            "{text}"
        );
        assert!(text.contains("and patches 9.0 processes. Lost events: none."), "{text}");
        assert!(text.ends_with("All are within their limits. Not measured: ruby (ruby is not installed)."), "{text}");
    }

    #[test]
    fn limits_and_losses_are_reported() {
        let text = table(&result(1.06, 1234)).unwrap();
        assert!(text.contains("memtrace lost 1,234 events of perl, each call."), "{text}");
        assert!(text.contains("EXCEEDS its limit: perl."), "{text}");
        let mut result = result(1.04, 0);
        result["whole_machine"]["ratio"]["median"] = json!(1.05);
        result["whole_machine"]["lost"] = json!({ "ring_full": 5 });
        result["empty_loop"]["victims"][0]["experiments"][0]["ratio"]["median"] = json!(1.3);
        let text = table(&result).unwrap();
        let above = "empty loop with 13 blocks before; the run time of the whole machine; losses of the whole machine.";
        assert!(text.contains(&format!("EXCEEDS its limit: {above}")), "{text}");
        assert!(text.contains("Lost events: 5 of `ring_full`."), "{text}");
    }

    #[test]
    fn missing_mode_is_an_error() {
        let mut result = result(1.04, 0);
        result["programs"][0]["modes"].as_array_mut().unwrap().pop();
        assert!(table(&result).is_err());
    }
}
