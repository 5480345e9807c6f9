//! Control groups with stalls, of their tasks or for their limits.

use std::cmp::Reverse;
use std::io;
use std::time::Duration;

use super::stall_columns::{pressure_time, quantile, times};
use crate::model::format as number;
use crate::model::{
    Assessment, MemcgMemory, MemcgProfile, Metric, Nanoseconds, PerSecond, Profile, ReclaimKind, StallStats,
};
use crate::report::options::Options;
use crate::report::table::{self, Column};
use crate::report::wrap::wrapped;
use crate::report::{escape, format};

/// Width of a name beside the numbers.
const NAME: usize = 24;

/// A group observed for all but this time counts as observed from the start.
const SLACK: Duration = Duration::from_secs(1);
const LATE: &str =
    "The memory of a group that had no limit when tracing began is told from where something first waited in it.";

/// A group with the sum of its stalls.
struct Row<'a> {
    name: String,
    waits: StallStats,
    group: &'a MemcgProfile,
}

/// Writes the groups with stalls, their memory, and its assessment.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    if options.top == 0 || profile.cgroups.iter().all(|group| group.id.is_none()) {
        return Ok(());
    }
    let mut rows: Vec<_> = profile.cgroups.iter().map(Row::new).collect();
    rows.sort_by_key(|row| Reverse(row.waits.stalls.time));
    let all = rows.len();
    rows.truncate(options.top);
    let of_all = if all > rows.len() { format!(", the first {} of {all}", rows.len()) } else { String::new() };
    writeln!(out, "\nControl groups by {}{of_all}\n", format::what(profile, Metric::StallTime))?;
    table::write(&waits(&rows), out)?;
    let meaning = "Waits FOR LIMIT count for the group whose limit was met, all others for the group of who waited.";
    writeln!(out, "\n{}", wrapped(meaning, 0))?;
    memory(&rows, profile.duration, out)
}

impl<'a> Row<'a> {
    fn new(group: &'a MemcgProfile) -> Self {
        let name = match (&group.path, group.id) {
            (Some(path), _) => escape::shown(path),
            (None, Some(id)) => format!("[not found, number {}]", id.number()),
            (None, None) => String::from("[not known]"),
        };
        Self { name, waits: group.all(), group }
    }

    fn shown(&self) -> String {
        format::end_of(&self.name, NAME)
    }
}

fn waits(rows: &[Row<'_>]) -> Vec<Column> {
    let books = || rows.iter().map(|row| &row.waits);
    let for_limit =
        |row: &Row<'_>| row.group.stalls.get(&ReclaimKind::Memcg).map_or(Nanoseconds(0), |book| book.stalls.time);
    let [stalled, times] = times(books());
    vec![
        stalled,
        Column::numbers("FOR LIMIT", rows.iter().map(|row| for_limit(row).to_string())),
        times,
        quantile("HALF", books(), 0.5),
        quantile("99%", books(), 0.99),
        Column::numbers("LONGEST", books().map(|book| book.longest.to_string())),
        Column::numbers("SCANNED", books().map(|book| number::compact(book.scanned))),
        Column::text("CGROUP", rows.iter().map(Row::shown)),
    ]
}

fn memory(rows: &[Row<'_>], duration: Duration, out: &mut dyn io::Write) -> io::Result<()> {
    let known: Vec<_> = rows.iter().filter_map(|row| Some((row, row.group.memory.as_ref()?))).collect();
    if known.is_empty() {
        return Ok(());
    }
    let memories = || known.iter().map(|(_, memory)| *memory);
    let dash = || String::from("-");
    let of_all = |count: u64, memory: &MemcgMemory| match memory.seconds.all {
        0 => dash(),
        all => format!("{count} of {all} s"),
    };
    let pressure =
        |memory: &MemcgMemory| memory.pressure.map_or_else(dash, |found| pressure_time(found.some, memory.watched));
    writeln!(out, "\nTheir memory\n")?;
    table::write(
        &[
            Column::numbers("LIMIT", memories().map(limit)),
            Column::numbers("USED", memories().map(|memory| memory.current.map_or_else(dash, |used| used.to_string()))),
            Column::numbers("REFAULTED", memories().map(|memory| memory.refaults.map_or_else(dash, number::compact))),
            Column::numbers("WAITED (PSI)", memories().map(pressure)),
            Column::numbers("SCANNING", memories().map(|memory| of_all(memory.seconds.scanning, memory))),
            Column::numbers(
                "PAGING",
                memories().map(|memory| match memory.refaults {
                    Some(_) => of_all(memory.seconds.paging, memory),
                    None => dash(),
                }),
            ),
            Column::text("CGROUP", known.iter().map(|(row, _)| row.shown())),
        ],
        out,
    )?;
    let untold = untold(memories());
    let late = memories().any(|memory| memory.watched + SLACK < duration);
    let late = late.then(|| String::from(LATE));
    let readings = known.iter().filter_map(|(row, memory)| reading(&row.name, memory));
    for (nth, text) in untold.into_iter().chain(late).chain(readings).enumerate() {
        let gap = if nth == 0 { "\n" } else { "" };
        writeln!(out, "{gap}{}", wrapped(&text, 0))?;
    }
    Ok(())
}

fn limit(memory: &MemcgMemory) -> String {
    match memory.effective_limit() {
        None => String::from("none"),
        Some(least) if memory.limit != Some(least) => format!("{least} (high)"),
        Some(least) => least.to_string(),
    }
}

/// Returns a note on values that the kernel does not report, as opposed to zeros.
fn untold<'a>(memories: impl Iterator<Item = &'a MemcgMemory>) -> Option<String> {
    let (mut pressure, mut refaults, mut version_2) = (false, false, false);
    for memory in memories {
        pressure |= memory.pressure.is_none();
        refaults |= memory.refaults.is_none();
        version_2 |= memory.version_2;
    }
    let who = if version_2 { "by this kernel" } else { "by control groups of version 1" };
    match (pressure, refaults) {
        (true, true) => Some(format!("Not told {who}: the pressure (PSI) of a group, and what came back (refaults).")),
        (true, false) => Some(format!("Not told {who}: the pressure (PSI) of a group.")),
        (false, true) => Some(format!("Not told {who}: what came back (refaults) of a group.")),
        (false, false) => None,
    }
}

/// Returns the assessment of a group; `None` if it was observed for too few seconds, or was quiet.
fn reading(name: &str, memory: &MemcgMemory) -> Option<String> {
    let PerSecond { all, scanning, paging } = memory.seconds;
    let limit =
        memory.effective_limit().map_or_else(|| String::from("its limit"), |limit| format!("its limit of {limit}"));
    let scans = format!("pages were scanned for its limit in {scanning} of {all} seconds");
    let pages = format!("1 MiB or more was brought back in {paging} of {all} seconds");
    let is_scanned = scanning * 2 >= all;
    let text = match memory.seconds.assessment() {
        Assessment::TooShort | Assessment::Quiet => return None,
        Assessment::Bursts => format!("{scans}, less than half of them: it was at {limit} now and then, not for long."),
        Assessment::Near if memory.refaults.is_none() => format!(
            "{scans}, at least half of them: its working set is near {limit}, or beyond it; what came back is not told."
        ),
        Assessment::Near => format!(
            "{scans}, at least half of them, and {pages}, less than half: scanning is sustained and paging is not, so its \
             working set is near {limit}."
        ),
        Assessment::Beyond if is_scanned => {
            format!(
                "{scans}, and {pages}, at least half of them: paging is sustained, so its working set is beyond {limit}."
            )
        }
        Assessment::Beyond => format!(
            "{pages}, at least half of them, and {scans}, less than half: paging is sustained, and not for its own limit; \
             memory of the machine, or of a group above, is short."
        ),
    };
    Some(format!("Assessment of {name}: {text}"))
}
