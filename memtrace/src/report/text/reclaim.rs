//! Stalls of the traced processes, and the reclaim activity of the machine.

use super::cells;
use std::io;
use std::time::Duration;

use super::memcg;
use super::stall_columns::{microseconds, pressure_time, quantile, times};
use crate::model::format as number;
use crate::model::{
    Assessment, KernelThread, Latencies, MachineReclaim, PerSecond, PressureTime, Profile, ReclaimActivity,
    ReclaimKind, StallStats,
};
use crate::report::options::Options;
use crate::report::table::{self, Column};
use crate::report::wrap::wrapped;
use crate::report::{escape, stalls};

/// The longest bar of a histogram.
const BAR: u64 = 40;

/// Writes stalls, control groups and the activity of the machine.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    if !profile.class.counts_stalls() {
        return Ok(());
    }
    waits(profile, out)?;
    memcg::write(profile, options, out)?;
    match &profile.reclaim {
        Some(machine) => of_machine(machine, profile.duration, out),
        None => Ok(()),
    }
}

fn waits(profile: &Profile, out: &mut dyn io::Write) -> io::Result<()> {
    let books = stalls::by_work(profile);
    if books.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nWaits for memory of the traced processes\n")?;
    let rows: Vec<_> = books.iter().map(|(work, book)| (work.words(), book)).collect();
    table::write(&columns(&rows), out)?;
    orders(&rows, out)?;
    for (name, book) in rows {
        writeln!(out, "\nHow long {name} took\n")?;
        histogram(&book.latencies, out)?;
    }
    Ok(())
}

fn histogram(latencies: &Latencies, out: &mut dyn io::Write) -> io::Result<()> {
    let most = latencies.iter().map(|(_, count)| count).max().unwrap_or(1);
    for (below, count) in latencies.iter() {
        let head = below.map_or_else(|| String::from("longer"), |below| format!("< {}", microseconds(below)));
        // A bucket that is not empty has a bar.
        let bar = (count.saturating_mul(BAR) / most).max(1) as usize;
        writeln!(out, "  {head:>12}{:>12}  {}", number::grouped(count), "#".repeat(bar))?;
    }
    Ok(())
}

/// Returns the columns of stalls by kind.
fn columns(rows: &[(&str, &StallStats)]) -> Vec<Column> {
    let books = || rows.iter().map(|(_, book)| *book);
    let count = |head, of: fn(&StallStats) -> u64| Column::numbers(head, books().map(|book| number::compact(of(book))));
    let [stalled, times] = times(books());
    vec![
        stalled,
        times,
        quantile("HALF", books(), 0.5),
        quantile("99%", books(), 0.99),
        Column::numbers("LONGEST", books().map(|book| book.longest.to_string())),
        Column::numbers("SLEPT", books().map(|book| book.throttled.to_string())),
        count("SCANNED", |book| book.scanned),
        count("FREED", |book| book.reclaimed),
        Column::text("WAITED IN", rows.iter().map(|(name, _)| (*name).to_owned())),
    ]
}

/// Writes the stalls for contiguous pages: only allocations of several pages need them, and compaction creates them.
fn orders(rows: &[(&str, &StallStats)], out: &mut dyn io::Write) -> io::Result<()> {
    let each =
        rows.iter().flat_map(|(name, book)| book.orders.iter().map(move |(order, stalls)| (*name, order, stalls)));
    let beyond: Vec<_> = each.filter(|(_, order, _)| order.is_none_or(|order| order.number() > 0)).collect();
    if beyond.is_empty() {
        return writeln!(out, "\n{}", wrapped("All of it was for single pages (order 0).", 0));
    }
    let dash = || String::from("-");
    let [stalled, times] = cells::stalls(beyond.iter().map(|(.., stalls)| *stalls));
    writeln!(out, "\nOf that, for memory in one piece (order above 0)\n")?;
    table::write(
        &[
            stalled,
            times,
            Column::numbers(
                "ORDER",
                beyond.iter().map(|(_, order, _)| order.map_or_else(dash, |order| order.number().to_string())),
            ),
            Column::numbers(
                "PIECE",
                beyond.iter().map(|(_, order, _)| order.map_or_else(dash, |order| order.size().to_string())),
            ),
            Column::text("WAITED IN", beyond.iter().map(|(name, ..)| (*name).to_owned())),
        ],
        out,
    )?;
    if beyond.iter().any(|(_, order, _)| order.is_none()) {
        let untold = "Without an order: all memory was compacted, or the kernel does not tell what it was for.";
        writeln!(out, "\n{}", wrapped(untold, 0))?;
    }
    Ok(())
}

/// Writes the reclaim activity of the whole machine.
fn of_machine(machine: &MachineReclaim, duration: Duration, out: &mut dyn io::Write) -> io::Result<()> {
    writeln!(out, "\nThe whole machine\n")?;
    let rows: Vec<_> = machine.efforts.iter().map(|(work, effort)| (work.words(), effort)).collect();
    if rows.is_empty() {
        writeln!(out, "  No pages were looked for.")?;
    } else {
        table::write(&efforts(&rows), out)?;
    }
    if !machine.threads.is_empty() {
        writeln!(out, "\nOf that, the kernel's own threads\n")?;
        table::write(&threads(&machine.threads), out)?;
    }
    let counters = &machine.counters;
    let pages = |count| number::counted(count, "page", "pages");
    writeln!(
        out,
        "\n{}",
        wrapped(
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
        writeln!(out, "{}", wrapped(&of_pressure(pressure, duration), 0))?;
    }
    writeln!(out, "{}", wrapped(&reading(machine), 0))?;
    if !machine.missing.is_empty() {
        let missing = format!("Not told of by this kernel: {}.", machine.missing.join(", "));
        writeln!(out, "{}", wrapped(&missing, 0))?;
    }
    Ok(())
}

/// Returns a sentence about pressure, with its share of the duration.
fn of_pressure(pressure: &PressureTime, duration: Duration) -> String {
    let shown = |time| format!("for {}", pressure_time(time, duration));
    let full = pressure.full.map_or_else(String::new, |full| format!(", all that had work {}", shown(full)));
    format!("Pressure (PSI): some task waited for memory {}{full}.", shown(pressure.some))
}

fn efforts(rows: &[(&str, &ReclaimActivity)]) -> Vec<Column> {
    let count = |head, of: fn(&ReclaimActivity) -> u64| {
        Column::numbers(head, rows.iter().map(|(_, effort)| number::compact(of(effort))))
    };
    vec![
        count("TIMES", |effort| effort.times),
        Column::numbers("TIME", rows.iter().map(|(_, effort)| effort.time.to_string())),
        count("SCANNED", |effort| effort.scanned),
        count("TAKEN", |effort| effort.taken),
        count("FREED", |effort| effort.reclaimed),
        count("ACTIVE", |effort| effort.scanned_active),
        count("AGED", |effort| effort.deactivated),
        count("WRITTEN", |effort| effort.written),
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
        Column::text("DOES", threads.iter().map(|thread| thread.work.words().to_owned())),
        Column::text("THREAD", threads.iter().map(|thread| escape::shown(&thread.name))),
    ]
}

/// Returns the assessment with its numbers and thresholds.
fn reading(machine: &MachineReclaim) -> String {
    let PerSecond { all, scanning, paging } = machine.seconds;
    let scanned = |work: ReclaimKind| machine.efforts.get(&work).map_or(0, |effort| effort.scanned);
    let everybody: u64 = machine.efforts.values().map(|effort| effort.scanned).sum();
    // Memcg reclaim occurs even if the machine has free memory.
    let limit = if scanned(ReclaimKind::Memcg) * 2 > everybody { "the limits of control groups" } else { "memory" };
    let (scans, pages) = (
        format!("pages were scanned in {scanning} of {all} seconds"),
        format!("1 MiB or more was brought back into memory in {paging} of {all} seconds"),
    );
    match machine.seconds.assessment() {
        Assessment::TooShort => format!(
            "Assessment: none, since {} is too short to tell what is sustained; it takes {} seconds.",
            number::counted(all, "second", "seconds"),
            PerSecond::LEAST
        ),
        Assessment::Quiet => format!("Assessment: {scans}; memory was not short."),
        Assessment::Bursts => {
            format!("Assessment: {scans}, less than half of them; memory was short now and then, not for long.")
        }
        Assessment::Near => format!(
            "Assessment: {scans}, at least half of them, and {pages}, less than half: scanning is sustained and paging is \
             not, so the working set is near the size of {limit}."
        ),
        Assessment::Beyond => format!(
            "Assessment: {scans}, and {pages}, at least half of them: paging is sustained, so the working set is beyond the \
             size of {limit}."
        ),
    }
}
