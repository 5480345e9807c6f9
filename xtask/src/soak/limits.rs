//! Limits of the soak test, and the table of measured values.

use super::memory;
use super::options::{LONG, Limited, Options};
use super::trace::Measured;

const MIB: f64 = 1024.0 * 1024.0;

/// Maximum growth of the RSS in MiB per 10 minutes.
const GROWTH: f64 = 1.0;

/// Number of allocations per second to which the measured processor time is scaled. An unscaled time would depend on the
/// speed of the machine, because a faster machine runs more turns of the loops.
const RATE: f64 = 230_000.0;

/// Measured value and its limit.
pub(super) struct Row {
    pub(super) name: &'static str,
    unit: &'static str,
    measured: f64,
    limit: Limit,
    /// Further facts for the table.
    note: String,
}

enum Limit {
    AtMost(f64),
    AtLeast(f64),
    None,
}

impl Row {
    pub(super) fn is_met(&self) -> bool {
        match self.limit {
            Limit::AtMost(limit) => self.measured <= limit,
            Limit::AtLeast(limit) => self.measured >= limit,
            Limit::None => true,
        }
    }
}

/// Returns a row for each measured value.
pub(super) fn compare(measured: &Measured, options: &Options) -> Vec<Row> {
    let settle = options.settle();
    let other = |limit| if options.limited == Limited::All { limit } else { Limit::None };
    let slope = if options.duration >= LONG { Limit::AtMost(GROWTH) } else { Limit::None };
    let certain = memory::certain_growth(&measured.samples, settle);
    let report = &measured.report;
    let seconds = measured.traced.as_secs_f64();
    let cpu = 100.0 * measured.cpu.as_secs_f64();
    let highest = measured.samples.iter().map(|sample| sample.rss).max().unwrap_or_default();
    let last = measured.samples.last().map_or(0, |sample| sample.rss);
    let losses = report.losses();
    let (entries, processes) = report.processes();
    let row = |name, unit, measured, limit, note: String| Row { name, unit, measured, limit, note };
    let per_second = |count: f64| format!("{:.0} a second", count / seconds);
    vec![
        row("duration", "s", seconds, Limit::None, format!("{} turns of the loops", measured.turns)),
        row("processes", "", processes as f64, Limit::None, format!("in {entries} entries of the report")),
        row("allocations", "", report.allocations() as f64, Limit::None, per_second(report.allocations() as f64)),
        row(
            "highest RSS",
            "MiB",
            highest as f64 / MIB,
            Limit::AtMost(256.0),
            format!("{:.1} at the end", last as f64 / MIB),
        ),
        row(
            "slope of the RSS",
            "MiB per 10 minutes",
            memory::slope(&measured.samples, settle) * 600.0 / MIB,
            slope,
            format!("after {} s", settle.as_secs()),
        ),
        row(
            "certain growth of the RSS",
            "MiB per 10 minutes",
            certain.unwrap_or_default() * 600.0 / MIB,
            Limit::AtMost(GROWTH),
            String::from(if certain.is_some() {
                "with a probability of 99 %"
            } else {
                "unknown: the run is too short"
            }),
        ),
        row(
            "processor time at 230,000 allocations a second",
            "% of one core",
            RATE * cpu / report.allocations() as f64,
            other(Limit::AtMost(12.0)),
            format!("{:.2} % at the measured rate", cpu / seconds),
        ),
        row("losses", "", losses.values().sum::<u64>() as f64, Limit::AtMost(0.0), list(losses.iter())),
        row(
            "complete stacks",
            "%",
            100.0 * report.complete(),
            other(Limit::AtLeast(99.5)),
            shares(&report.incomplete()),
        ),
        row(
            "time to report",
            "s",
            measured.report_time.as_secs_f64(),
            other(Limit::AtMost(3.0)),
            String::from("from the signal to the exit"),
        ),
        row("JSON report", "MiB", report.json_bytes as f64 / MIB, other(Limit::AtMost(40.0)), String::new()),
        row("SVG report", "MiB", report.svg_bytes as f64 / MIB, other(Limit::AtMost(5.0)), String::new()),
    ]
}

fn list<'a>(counts: impl Iterator<Item = (&'a &'a str, &'a u64)>) -> String {
    counts.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

fn shares(ends: &[(&str, f64)]) -> String {
    ends.iter().map(|(name, share)| format!("{name} {:.2} %", 100.0 * share)).collect::<Vec<_>>().join(", ")
}

/// Formats the rows as a table in Markdown.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text = String::from("| | measured | limit | | |\n|---|---:|---:|---|---|");
    for row in rows {
        let limit = match row.limit {
            Limit::AtMost(limit) => format!("≤ {limit}"),
            Limit::AtLeast(limit) => format!("≥ {limit}"),
            Limit::None => String::new(),
        };
        let verdict = if row.is_met() { "" } else { "**beyond**" };
        let unit = if row.unit.is_empty() { String::new() } else { format!(" {}", row.unit) };
        let decimals = if row.measured.fract() == 0.0 { 0 } else { 2 };
        text.push_str(&format!(
            "\n| {} | {:.decimals$}{unit} | {limit} | {verdict} | {} |",
            row.name, row.measured, row.note
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_a_limit_are_marked() {
        let row = |measured, limit| Row { name: "RSS", unit: "MiB", measured, limit, note: String::from("note") };
        let rows = [row(256.0, Limit::AtMost(256.0)), row(99.25, Limit::AtLeast(99.5)), row(1.0, Limit::None)];
        assert_eq!(rows.each_ref().map(Row::is_met), [true, false, true]);
        let table = table(&rows);
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| RSS | 256 MiB | ≤ 256 |  | note |",
                "| RSS | 99.25 MiB | ≥ 99.5 | **beyond** | note |",
                "| RSS | 1 MiB |  |  | note |",
            ]
        );
    }
}
