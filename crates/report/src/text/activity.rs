//! Tables of the activity of threads: tasks and spans, locks, and calls of allocator functions.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

use memtrace_model::format as number;
use memtrace_model::{
    Activity, Bytes, CallSums, LockRow, LockSums, Log2, Nanoseconds, Pid, Profile, SpanKind, SpanSums, UNTIL_TAIL_CALL,
    WaitClass,
};

use super::processes::COMMAND_COLUMNS;
use super::text_writer::TextWriter;
use super::waits;
use crate::activity_names::ActivityNames;
use crate::options::Options;
use crate::table::Column;
use crate::{escape, format};

/// Writes the `top` rows of each table, the sum of the other rows, and sentences about lost records and activity that is
/// left out of timelines.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut TextWriter<'_>) -> io::Result<()> {
    let Some(activity) = &profile.run.activity else { return Ok(()) };
    if activity.totals.is_empty() && activity.locks.is_empty() && activity.calls.is_empty() {
        writeln!(out, "\nActivity of threads: no task, span or wait was recorded.")?;
    } else if options.top > 0 {
        let names = ActivityNames::new(activity);
        spans(activity, options.top, out)?;
        tail_calls(activity, out)?;
        waits::deadlocks(activity, &names, out)?;
        LOCK_TABLES.iter().try_for_each(|of_class| locks(activity, &names, of_class, options.top, out))?;
        waits::longest(activity, &names, options.top, out)?;
        calls(activity, options.top, out)?;
    }
    lost_ends(activity, out)?;
    missing(activity, out)?;
    let Some(left_out) = format::left_out(&activity.left_out) else { return Ok(()) };
    let totals = if activity.left_out.spans > 0 { " The totals of this report include the spans." } else { "" };
    writeln!(out, "\n{}", out.wrapped(&format!("Outputs with a timeline: {left_out}.{totals}"), 0))
}

fn lost_ends(activity: &Activity, out: &mut TextWriter<'_>) -> io::Result<()> {
    let text = match activity.totals.iter().map(|row| row.sums.lost_ends).sum::<u64>() {
        0 => return Ok(()),
        1 => String::from(
            "The end of 1 span was lost. The span is shown up to the last record of its thread before the loss; it may have \
             lasted longer.",
        ),
        count => format!(
            "The ends of {} spans were lost. Each is shown up to the last record of its thread before the loss; it may have \
             lasted longer.",
            number::grouped(count)
        ),
    };
    writeln!(out, "\n{}", out.wrapped(&text, 0))
}

/// Maximum number of names with missing spans in the sentence about them.
const MAX_MISSING: usize = 5;

/// Maximum length of each of these names.
const MISSING_CHARACTERS: usize = 60;

/// Writes a sentence such as `1,207 spans are missing, because of lost records: function compute (1,200), task (7).`
fn missing(activity: &Activity, out: &mut TextWriter<'_>) -> io::Result<()> {
    let mut rows: Vec<_> = activity.totals.iter().filter(|row| row.sums.missing > 0).collect();
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_by_key(|row| Reverse(row.sums.missing));
    let sum: u64 = rows.iter().map(|row| row.sums.missing).sum();
    let of_row = |row: &&memtrace_model::SpanRow| {
        // The names of spans of other kinds were in the lost records, so they are not known.
        let name = match row.kind {
            SpanKind::Function => {
                let name = escape::visible(&activity.names[row.name as usize]);
                format!(" {}", format::shortened_name(&name, MISSING_CHARACTERS))
            }
            _ => String::new(),
        };
        format!("{}{name} ({})", row.kind.title(), number::grouped(row.sums.missing))
    };
    let mut parts: Vec<String> = rows.iter().take(MAX_MISSING).map(of_row).collect();
    let rest: u64 = rows.iter().skip(MAX_MISSING).map(|row| row.sums.missing).sum();
    parts.extend((rest > 0).then(|| format!("others ({})", number::grouped(rest))));
    let verb = if sum == 1 { "is" } else { "are" };
    let text = format!(
        "{} {verb} missing, because of lost records: {}.",
        number::counted(sum, "span", "spans"),
        parts.join(", ")
    );
    writeln!(out, "\n{}", out.wrapped(&text, 0))
}

/// Row of the table of tasks and spans. `kind` is `None` for the sum of the other rows.
struct SpanRow {
    kind: Option<SpanKind>,
    name: String,
    sums: SpanSums,
}

fn spans(activity: &Activity, top: usize, out: &mut TextWriter<'_>) -> io::Result<()> {
    // All other spans are waits for locks and futexes, holds of locks, and allocator calls. Other tables show them.
    let is_span = |kind| matches!(kind, SpanKind::Task | SpanKind::Function | SpanKind::Stall);
    let mut all: Vec<_> = activity.totals.iter().filter(|row| is_span(row.kind) && row.sums.count > 0).collect();
    if all.is_empty() {
        return Ok(());
    }
    all.sort_by_key(|row| Reverse(row.sums.time));
    let (shown, others) = all.split_at(top.min(all.len()));
    let shown = shown.iter().map(|row| SpanRow {
        kind: Some(row.kind),
        name: escape::visible(&activity.names[row.name as usize]),
        sums: row.sums,
    });
    let rest = others.iter().map(|row| row.sums).reduce(|mut sum, sums| {
        sum += sums;
        sum
    });
    let rest = rest.map(|sums| SpanRow { kind: None, name: others_of(others.len()), sums });
    let rows: Vec<_> = shown.chain(rest).collect();
    let time = |head, of: fn(&SpanSums) -> Nanoseconds| {
        Column::numbers(head, rows.iter().map(|row| of(&row.sums).to_string()))
    };
    let mut columns = vec![
        time("TIME", |sums| sums.time),
        Column::numbers("COUNT", rows.iter().map(|row| number::compact(row.sums.count))),
        time("MEAN", |sums| mean(sums.time, sums.count)).with_importance(1),
        time("LONGEST", |sums| sums.longest).with_importance(4),
        time("CPU TIME", |sums| sums.cpu).with_importance(2),
    ];
    if activity.counts_bytes {
        let allocated = Column::numbers("ALLOCATED", rows.iter().map(|row| Bytes(row.sums.allocated).to_string()));
        columns.push(allocated.with_importance(3));
    }
    columns.push(Column::text("KIND", rows.iter().map(|row| row.kind.map_or("", SpanKind::title).to_owned())));
    columns.push(Column::names("NAME", rows.iter().map(|row| row.name.clone()), format::shortened_name));
    writeln!(out, "\nTasks and spans by time\n")?;
    out.table(columns)
}

/// Explains the names of calls that ended with a jump, if there are any.
fn tail_calls(activity: &Activity, out: &mut TextWriter<'_>) -> io::Result<()> {
    let is_tail_call = |row: &memtrace_model::SpanRow| {
        row.kind == SpanKind::Function && activity.names[row.name as usize].ends_with(UNTIL_TAIL_CALL)
    };
    if !activity.totals.iter().any(is_tail_call) {
        return Ok(());
    }
    let text = format!(
        "{UNTIL_TAIL_CALL}: these calls ended with a jump to another library or by a pointer. Their times do not contain that \
         of the function that they jumped to."
    );
    writeln!(out, "\n{}", out.wrapped(&text, 0))
}

/// Table of the locks and futexes of a class.
struct LockTable {
    class: WaitClass,
    title: &'static str,
    /// Head of the column with the names.
    head: &'static str,
}

/// Tables in the order of the report.
const LOCK_TABLES: [LockTable; 3] = [
    LockTable { class: WaitClass::Lock, title: "Locks by the time of waiting for them", head: "LOCK" },
    LockTable { class: WaitClass::Join, title: "Waits for the exit of threads", head: "FUTEX" },
    LockTable {
        class: WaitClass::Idle,
        title: "Idle waits, for condition variables, semaphores and barriers",
        head: "FUTEX",
    },
];

/// Row of the table of locks. `pid` is `None` for the sum of the other rows.
struct Lock {
    pid: Option<Pid>,
    name: String,
    sums: LockSums,
    /// False for a futex: its holds are unknown, because releases of a futex are not traced.
    has_holds: bool,
}

fn locks(
    activity: &Activity,
    names: &ActivityNames<'_>,
    of_class: &LockTable,
    top: usize,
    out: &mut TextWriter<'_>,
) -> io::Result<()> {
    let all: Vec<&LockRow> = activity.locks.iter().filter(|lock| lock.class == of_class.class).collect();
    if all.is_empty() {
        return Ok(());
    }
    let processes: BTreeMap<_, _> = activity.threads.iter().map(|thread| (thread.pid, thread.process.raw())).collect();
    let (shown, others) = all.split_at(top.min(all.len()));
    let shown = shown.iter().map(|lock| Lock {
        pid: Some(lock.pid),
        name: names.any_lock(lock),
        sums: lock.sums,
        has_holds: lock.name.is_some(),
    });
    let rest = others.iter().map(|lock| lock.sums).reduce(|mut sum, sums| {
        sum += sums;
        sum
    });
    let rest = rest.map(|sums| Lock { pid: None, name: others_of(others.len()), sums, has_holds: true });
    let rows: Vec<_> = shown.chain(rest).collect();
    let time = |head, of: fn(&LockSums) -> Nanoseconds| {
        Column::numbers(head, rows.iter().map(|row| of(&row.sums).to_string()))
    };
    let count =
        |head, of: fn(&LockSums) -> u64| Column::numbers(head, rows.iter().map(|row| number::compact(of(&row.sums))));
    let of_holds = |head, of: fn(&LockSums) -> String| {
        let cell = |row: &Lock| if row.has_holds { of(&row.sums) } else { String::from("-") };
        Column::numbers(head, rows.iter().map(cell))
    };
    let process = |row: &Lock| {
        let comm = row.pid.and_then(|pid| processes.get(&pid)).map(|comm| escape::visible(comm));
        comm.map_or_else(String::new, |comm| format::shortened(&comm, COMMAND_COLUMNS))
    };
    let mut columns = vec![
        time("WAITED", |sums| sums.wait_time),
        count("WAITS", |sums| sums.waits),
        time("LONGEST", |sums| sums.longest_wait),
    ];
    if of_class.class == WaitClass::Lock {
        columns.push(of_holds("HELD", |sums| sums.hold_time.to_string()).with_importance(3));
        columns.push(of_holds("HOLDS", |sums| number::compact(sums.holds)).with_importance(1));
    }
    columns.push(count("WAITERS", |sums| sums.most_waiters).with_importance(2));
    let pid = |row: &Lock| row.pid.map_or_else(String::new, |pid| pid.to_string());
    columns.push(Column::numbers("PID", rows.iter().map(pid)));
    columns.push(Column::text("COMMAND", rows.iter().map(process)).with_importance(4));
    columns.push(Column::text(of_class.head, rows.iter().map(|row| row.name.clone())));
    writeln!(out, "\n{}\n", of_class.title)?;
    out.table(columns)?;
    if of_class.class != WaitClass::Lock {
        return Ok(());
    }
    writeln!(out, "\n{}", out.wrapped("WAITERS is the largest number of threads that waited for the lock at once.", 0))
}

fn calls(activity: &Activity, top: usize, out: &mut TextWriter<'_>) -> io::Result<()> {
    if activity.calls.is_empty() {
        return Ok(());
    }
    let (shown, others) = activity.calls.split_at(top.min(activity.calls.len()));
    let shown = shown.iter().map(|(name, sums)| (escape::visible(&activity.names[*name as usize]), sums.clone()));
    let rest = (!others.is_empty()).then(|| (others_of(others.len()), sum(others.iter().map(|(_, sums)| sums))));
    let rows: Vec<_> = shown.chain(rest).collect();
    let below = |head, share| {
        let cell = |(_, sums): &(String, CallSums)| match quantile(sums, share) {
            Some(log2) => format!("< {}", Nanoseconds(log2.end())),
            None => String::from("-"),
        };
        Column::numbers(head, rows.iter().map(cell))
    };
    writeln!(out, "\nAllocator calls by time\n")?;
    out.table(vec![
        Column::numbers("TIME", rows.iter().map(|(_, sums)| sums.time.to_string())),
        Column::numbers("CALLS", rows.iter().map(|(_, sums)| number::compact(sums.count))),
        Column::numbers("MEAN", rows.iter().map(|(_, sums)| mean(sums.time, sums.count).to_string())),
        below("50%", 0.5).with_importance(1),
        below("99%", 0.99).with_importance(3),
        below("LONGEST", 1.0).with_importance(2),
        Column::text("FUNCTION", rows.iter().map(|(name, _)| name.clone())),
    ])
}

fn sum<'a>(all: impl Iterator<Item = &'a CallSums>) -> CallSums {
    let mut sum = CallSums::default();
    let mut histogram: BTreeMap<Log2, u64> = BTreeMap::new();
    for sums in all {
        sum.count += sums.count;
        sum.time.0 += sums.time.0;
        sums.histogram.iter().for_each(|(log2, count)| *histogram.entry(*log2).or_default() += count);
    }
    CallSums { histogram: histogram.into_iter().collect(), ..sum }
}

/// Returns the lowest bucket such that at least `share` (from 0 to 1) of the calls are in this bucket or below; `None`
/// without calls.
fn quantile(sums: &CallSums, share: f64) -> Option<Log2> {
    let all: u64 = sums.histogram.iter().map(|(_, count)| count).sum();
    let mut below = 0;
    sums.histogram.iter().filter(|(_, count)| *count > 0).find_map(|(log2, count)| {
        below += count;
        (below as f64 >= share * all as f64).then_some(*log2)
    })
}

fn mean(time: Nanoseconds, count: u64) -> Nanoseconds {
    Nanoseconds(time.0.checked_div(count).unwrap_or_default())
}

fn others_of(number: usize) -> String {
    number::counted(number as u64, "other", "others")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::COLUMNS;

    #[test]
    fn lost_ends_of_all_names_are_counted() {
        let activity = |lost: &[u64]| Activity {
            totals: lost
                .iter()
                .map(|&lost_ends| {
                    let sums = SpanSums { count: 2000, lost_ends, ..SpanSums::default() };
                    memtrace_model::SpanRow { kind: SpanKind::Task, name: 0, sums }
                })
                .collect(),
            ..Activity::default()
        };
        let text = |lost: &[u64]| {
            let mut text = Vec::new();
            lost_ends(&activity(lost), &mut TextWriter::new(&mut text, COLUMNS)).unwrap();
            String::from_utf8(text).unwrap().replace('\n', " ")
        };
        assert_eq!(text(&[0, 0]), "");
        assert!(text(&[0, 1]).starts_with(" The end of 1 span was lost. The span is shown up to "));
        assert!(text(&[1200, 3]).starts_with(" The ends of 1,203 spans were lost. Each is shown up to "));
    }

    #[test]
    fn names_of_tail_calls_are_explained() {
        let text = |kind, name: &str| {
            let totals = vec![memtrace_model::SpanRow { kind, name: 0, sums: SpanSums::default() }];
            let activity = Activity { names: vec![name.to_owned()], totals, ..Activity::default() };
            let mut text = Vec::new();
            tail_calls(&activity, &mut TextWriter::new(&mut text, COLUMNS)).unwrap();
            String::from_utf8(text).unwrap()
        };
        let name = "handle [until its tail call]";
        assert!(text(SpanKind::Function, name).starts_with("\n[until its tail call]: these calls ended with a jump"));
        assert_eq!([text(SpanKind::Task, name), text(SpanKind::Function, "handle")], ["", ""]);
    }

    #[test]
    fn missing_spans_are_counted_by_function_or_kind() {
        let text = |rows: &[(SpanKind, u64)]| {
            let row = |&(kind, missing): &(SpanKind, u64)| {
                let sums = SpanSums { missing, ..SpanSums::default() };
                memtrace_model::SpanRow { kind, name: 0, sums }
            };
            let totals = rows.iter().map(row).collect();
            let activity = Activity { names: vec![String::from("parse")], totals, ..Activity::default() };
            let mut text = Vec::new();
            missing(&activity, &mut TextWriter::new(&mut text, COLUMNS)).unwrap();
            String::from_utf8(text).unwrap().replace('\n', " ").trim().to_owned()
        };
        assert_eq!(text(&[(SpanKind::Task, 0)]), "");
        assert_eq!(text(&[(SpanKind::Stall, 1)]), "1 span is missing, because of lost records: memory stall (1).");
        assert_eq!(
            text(&[(SpanKind::Task, 7), (SpanKind::Function, 1200)]),
            "1,207 spans are missing, because of lost records: function parse (1,200), task (7)."
        );
        let many = text(&[(SpanKind::Function, 2); 7]);
        assert!(many.starts_with("14 spans are missing") && many.ends_with("parse (2), others (4)."), "{many}");
    }

    #[test]
    fn quantiles_of_calls_are_upper_bounds() {
        let log2 = |number| Log2::from_number(number).unwrap();
        let one = CallSums { count: 3, time: Nanoseconds(300), histogram: vec![(log2(6), 3)] };
        let other = CallSums { count: 1, time: Nanoseconds(900), histogram: vec![(log2(6), 0), (log2(9), 1)] };
        let both = sum([&one, &other].into_iter());
        assert_eq!((both.count, both.time, mean(both.time, both.count)), (4, Nanoseconds(1200), Nanoseconds(300)));
        let of_both = |share| quantile(&both, share).map(Log2::number);
        assert_eq!([0.0, 0.75, 0.76, 1.0].map(of_both), [6, 6, 9, 9].map(Some));
        assert_eq!(quantile(&CallSums::default(), 0.5), None);
    }
}
