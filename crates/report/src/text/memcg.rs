//! Tables of control groups with stalls: stalls of their tasks, and stalls for their limits.

use std::cmp::Reverse;
use std::io;
use std::time::Duration;

use memtrace_model::format as number;
use memtrace_model::{MemcgMemory, MemcgProfile, Nanoseconds, Profile, ReclaimKind, StallStats};

use super::assessment;
use super::stall_columns::{pressure_time, quantile, times};
use super::text_writer::TextWriter;
use crate::options::Options;
use crate::table::Column;
use crate::{escape, format};

/// Maximum width of the path of a control group, in characters: the space that the columns of numbers leave.
const NAME: usize = 24;

/// If a group was first observed within this time after the start, it counts as observed from the start.
const SLACK: Duration = Duration::from_secs(1);
const LATE: &str = "A group without a limit at the start of tracing was observed from its first stall.";

/// Row of a control group, with the sum of its stalls.
struct Row<'a> {
    name: String,
    waits: StallStats,
    group: &'a MemcgProfile,
}

/// Writes a table of the stalls of groups, a table of their memory, and assessments of their memory.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut TextWriter<'_>) -> io::Result<()> {
    if options.top == 0 || profile.cgroups.iter().all(|group| group.id.is_none()) {
        return Ok(());
    }
    let mut rows: Vec<_> = profile.cgroups.iter().map(Row::new).collect();
    rows.sort_by_key(|row| Reverse(row.waits.stalls.time));
    let all = rows.len();
    rows.truncate(options.top);
    let of_all = if all > rows.len() { format!(", the first {} of {all}", rows.len()) } else { String::new() };
    writeln!(out, "\nControl groups by time stalled for memory{of_all}\n")?;
    out.table(waits(&rows))?;
    let meaning =
        "Waits FOR LIMIT count for the group that reached its limit, all others for the group of the waiting task.";
    writeln!(out, "\n{}", out.wrapped(meaning, 0))?;
    memory(&rows, profile.run.duration, out)
}

impl<'a> Row<'a> {
    fn new(group: &'a MemcgProfile) -> Self {
        let name = match (&group.path, group.id) {
            (Some(path), _) => escape::visible(path),
            (None, Some(id)) => format!("[not found, ID {}]", id.number()),
            (None, None) => String::from("[unknown]"),
        };
        Self { name, waits: group.all(), group }
    }

    fn shown(&self) -> String {
        format::shortened_left(&self.name, NAME)
    }
}

fn waits(rows: &[Row<'_>]) -> Vec<Column> {
    let stalls = || rows.iter().map(|row| &row.waits);
    let for_limit =
        |row: &Row<'_>| row.group.stalls.get(&ReclaimKind::Memcg).map_or(Nanoseconds(0), |stats| stats.stalls.time);
    let [stalled, times] = times(stalls());
    vec![
        stalled,
        Column::numbers("FOR LIMIT", rows.iter().map(|row| for_limit(row).to_string())),
        times,
        quantile("50%", stalls(), 0.5).with_importance(1),
        quantile("99%", stalls(), 0.99).with_importance(3),
        Column::numbers("LONGEST", stalls().map(|stats| stats.longest.to_string())).with_importance(4),
        Column::numbers("SCANNED", stalls().map(|stats| number::compact(stats.scanned))).with_importance(2),
        Column::text("CGROUP", rows.iter().map(Row::shown)),
    ]
}

fn memory(rows: &[Row<'_>], duration: Duration, out: &mut TextWriter<'_>) -> io::Result<()> {
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
    writeln!(out, "\nMemory of these groups\n")?;
    let refaulted = memories().map(|memory| memory.refaults.map_or_else(dash, number::compact));
    let paging = memories().map(|memory| match memory.refaults {
        Some(_) => of_all(memory.seconds.paging, memory),
        None => dash(),
    });
    out.table(vec![
        Column::numbers("LIMIT", memories().map(limit)),
        Column::numbers("USED", memories().map(|memory| memory.current.map_or_else(dash, |used| used.to_string()))),
        Column::numbers("REFAULTED", refaulted).with_importance(1),
        Column::numbers("PRESSURE (PSI)", memories().map(pressure)).with_importance(2),
        Column::numbers("SCANNING", memories().map(|memory| of_all(memory.seconds.scanning, memory)))
            .with_importance(4),
        Column::numbers("PAGING", paging).with_importance(3),
        Column::text("CGROUP", known.iter().map(|(row, _)| row.shown())),
    ])?;
    let missing = missing_values(memories());
    let late = memories().any(|memory| memory.watched + SLACK < duration);
    let late = late.then(|| String::from(LATE));
    let assessments = known.iter().filter_map(|(row, memory)| assessment::of_group(&row.name, memory));
    for (nth, text) in missing.into_iter().chain(late).chain(assessments).enumerate() {
        let gap = if nth == 0 { "\n" } else { "" };
        writeln!(out, "{gap}{}", out.wrapped(&text, 0))?;
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

/// Returns a note about values that the kernel does not report, so that readers do not take them for zeros.
fn missing_values<'a>(memories: impl Iterator<Item = &'a MemcgMemory>) -> Option<String> {
    let (mut pressure, mut refaults, mut version_2) = (false, false, false);
    for memory in memories {
        pressure |= memory.pressure.is_none();
        refaults |= memory.refaults.is_none();
        version_2 |= memory.version_2;
    }
    let by = if version_2 { "this kernel" } else { "control groups of version 1" };
    match (pressure, refaults) {
        (true, true) => Some(format!("Not reported by {by}: pressure (PSI) and refaults of a group.")),
        (true, false) => Some(format!("Not reported by {by}: pressure (PSI) of a group.")),
        (false, true) => Some(format!("Not reported by {by}: refaults of a group.")),
        (false, false) => None,
    }
}
