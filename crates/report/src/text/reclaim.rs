//! Stalls of the traced processes, and the reclaim activity of the machine.

use super::cells;
use std::io;
use std::time::Duration;

use memtrace_model::format as number;
use memtrace_model::{KernelThread, Latencies, MachineReclaim, PressureTime, Profile, ReclaimActivity, StallStats};

use super::stall_columns::{microseconds, pressure_time, quantile, times};
use super::text_writer::TextWriter;
use super::{assessment, memcg};
use crate::options::Options;
use crate::table::Column;
use crate::{escape, stalls};

/// Length of the longest bar of a histogram, in characters.
const BAR: u64 = 40;

/// Writes stalls, control groups and the activity of the machine.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut TextWriter<'_>) -> io::Result<()> {
    if !profile.run.class.counts_stalls() {
        return Ok(());
    }
    waits(profile, out)?;
    memcg::write(profile, options, out)?;
    match &profile.run.reclaim {
        Some(machine) => of_machine(machine, profile.run.duration, out),
        None => Ok(()),
    }
}

fn waits(profile: &Profile, out: &mut TextWriter<'_>) -> io::Result<()> {
    let by_kind = stalls::by_kind(profile);
    if by_kind.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nWaits for memory of the traced processes\n")?;
    let rows: Vec<_> = by_kind.iter().map(|(kind, stats)| (kind.words(), stats)).collect();
    out.table(columns(&rows))?;
    orders(&rows, out)?;
    for (name, stats) in rows {
        writeln!(out, "\nDuration of {name}\n")?;
        histogram(&stats.latencies, out)?;
    }
    Ok(())
}

fn histogram(latencies: &Latencies, out: &mut TextWriter<'_>) -> io::Result<()> {
    let most = latencies.iter().map(|(_, count)| count).max().unwrap_or(1);
    for (below, count) in latencies.iter() {
        let head = below.map_or_else(|| String::from("longer"), |below| format!("< {}", microseconds(below)));
        // A bucket that is not empty has a bar.
        let bar = (count.saturating_mul(BAR) / most).max(1) as usize;
        writeln!(out, "  {head:>12}{:>12}  {}", number::grouped(count), "#".repeat(bar))?;
    }
    Ok(())
}

/// Returns the columns of the table of stalls by kind.
fn columns(rows: &[(&str, &StallStats)]) -> Vec<Column> {
    let stats = || rows.iter().map(|(_, stats)| *stats);
    let count =
        |head, of: fn(&StallStats) -> u64| Column::numbers(head, stats().map(|stats| number::compact(of(stats))));
    let [stalled, times] = times(stats());
    vec![
        stalled,
        times,
        quantile("50%", stats(), 0.5).with_importance(3),
        quantile("99%", stats(), 0.99).with_importance(5),
        Column::numbers("LONGEST", stats().map(|stats| stats.longest.to_string())).with_importance(6),
        Column::numbers("THROTTLED", stats().map(|stats| stats.throttled.to_string())).with_importance(4),
        count("SCANNED", |stats| stats.scanned).with_importance(2),
        count("FREED", |stats| stats.reclaimed).with_importance(1),
        Column::text("WAITED IN", rows.iter().map(|(name, _)| (*name).to_owned())),
    ]
}

/// Writes the stalls for contiguous pages: allocations with an order above 0, or with an unknown order.
fn orders(rows: &[(&str, &StallStats)], out: &mut TextWriter<'_>) -> io::Result<()> {
    let each =
        rows.iter().flat_map(|(name, stats)| stats.orders.iter().map(move |(order, stalls)| (*name, order, stalls)));
    let beyond: Vec<_> = each.filter(|(_, order, _)| order.is_none_or(|order| order.number() > 0)).collect();
    if beyond.is_empty() {
        return writeln!(out, "\n{}", out.wrapped("All stalls were for single pages (order 0).", 0));
    }
    let dash = || String::from("-");
    let [stalled, times] = cells::stalls(beyond.iter().map(|(.., stalls)| *stalls));
    writeln!(out, "\nStalls for contiguous pages (order above 0)\n")?;
    out.table(vec![
        stalled,
        times,
        Column::numbers(
            "ORDER",
            beyond.iter().map(|(_, order, _)| order.map_or_else(dash, |order| order.number().to_string())),
        ),
        Column::numbers(
            "SIZE",
            beyond.iter().map(|(_, order, _)| order.map_or_else(dash, |order| order.size().to_string())),
        ),
        Column::text("WAITED IN", beyond.iter().map(|(name, ..)| (*name).to_owned())),
    ])?;
    if beyond.iter().any(|(_, order, _)| order.is_none()) {
        let note = "Stalls without an order: compaction of all memory, or the kernel does not report the order.";
        writeln!(out, "\n{}", out.wrapped(note, 0))?;
    }
    Ok(())
}

/// Writes the reclaim activity of the whole machine.
fn of_machine(machine: &MachineReclaim, duration: Duration, out: &mut TextWriter<'_>) -> io::Result<()> {
    writeln!(out, "\nThe whole machine\n")?;
    let rows: Vec<_> = machine.efforts.iter().map(|(kind, effort)| (kind.words(), effort)).collect();
    if rows.is_empty() {
        writeln!(out, "  No reclaim took place.")?;
    } else {
        out.table(efforts(&rows))?;
    }
    if !machine.threads.is_empty() {
        writeln!(out, "\nKernel threads\n")?;
        out.table(threads(&machine.threads))?;
    }
    let counters = &machine.counters;
    let pages = |count| number::counted(count, "page", "pages");
    writeln!(
        out,
        "\n{}",
        out.wrapped(
            &format!(
                "By /proc/vmstat: {} scanned, {} freed, {} refaulted; {} read from swap, {} written to it; {}; {}.",
                pages(counters.scanned),
                pages(counters.reclaimed),
                pages(counters.refaults),
                pages(counters.swapped_in),
                pages(counters.swapped_out),
                number::counted(counters.major_faults, "major fault", "major faults"),
                number::counted(counters.oom_kills, "OOM kill", "OOM kills"),
            ),
            0
        )
    )?;
    if let Some(pressure) = &machine.pressure {
        writeln!(out, "{}", out.wrapped(&of_pressure(pressure, duration), 0))?;
    }
    writeln!(out, "{}", out.wrapped(&assessment::of_machine(machine), 0))?;
    if !machine.missing.is_empty() {
        let missing = format!("Tracepoints that this kernel lacks: {}.", machine.missing.join(", "));
        writeln!(out, "{}", out.wrapped(&missing, 0))?;
    }
    Ok(())
}

/// Returns a sentence about memory pressure (PSI), with its share of `duration`.
fn of_pressure(pressure: &PressureTime, duration: Duration) -> String {
    let shown = |time| format!("for {}", pressure_time(time, duration));
    let full = pressure.full.map_or_else(String::new, |full| format!(", all non-idle tasks {}", shown(full)));
    format!("Pressure (PSI): some task stalled on memory {}{full}.", shown(pressure.some))
}

fn efforts(rows: &[(&str, &ReclaimActivity)]) -> Vec<Column> {
    let count = |head, of: fn(&ReclaimActivity) -> u64| {
        Column::numbers(head, rows.iter().map(|(_, effort)| number::compact(of(effort))))
    };
    vec![
        count("TIMES", |effort| effort.times),
        Column::numbers("TIME", rows.iter().map(|(_, effort)| effort.time.to_string())),
        count("SCANNED", |effort| effort.scanned),
        count("ISOLATED", |effort| effort.taken).with_importance(1),
        count("FREED", |effort| effort.reclaimed).with_importance(5),
        count("ACTIVE", |effort| effort.scanned_active).with_importance(2),
        count("AGED", |effort| effort.deactivated).with_importance(3),
        count("WRITTEN", |effort| effort.written).with_importance(4),
        Column::text("BY", rows.iter().map(|(name, _)| (*name).to_owned())),
    ]
}

fn threads(threads: &[KernelThread]) -> Vec<Column> {
    let count = |head, of: fn(&ReclaimActivity) -> u64| {
        Column::numbers(head, threads.iter().map(|thread| number::compact(of(&thread.effort))))
    };
    vec![
        count("TIMES", |effort| effort.times),
        Column::numbers("TIME", threads.iter().map(|thread| thread.effort.time.to_string())),
        count("SCANNED", |effort| effort.scanned),
        count("FREED", |effort| effort.reclaimed),
        Column::text("KIND", threads.iter().map(|thread| thread.work.words().to_owned())),
        Column::text("THREAD", threads.iter().map(|thread| escape::visible(&thread.name))),
    ]
}
