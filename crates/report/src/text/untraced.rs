//! Table of the processes in scope that are not traced.

use std::io;

use memtrace_model::format as number;
use memtrace_model::{Bytes, ProcessMemory, Profile, Untraced, UntracedProcess, UntracedReason};

use super::processes::COMMAND_COLUMNS;
use super::text_writer::TextWriter;
use crate::options::Options;
use crate::table::Column;
use crate::{escape, format};

/// Row: a process, or the sum of the processes with the same reason that are not shown.
struct Row {
    pid: String,
    command: String,
    rss: Option<Bytes>,
    reason: UntracedReason,
}

/// Writes a heading with the sums, the `top` processes by RSS, and the sums of the other processes by reason.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut TextWriter<'_>) -> io::Result<()> {
    let Some(sentence) = format::untraced(profile) else { return Ok(()) };
    writeln!(out, "\n{}", format::capitalised(&sentence))?;
    if options.top == 0 {
        return Ok(());
    }
    let untraced = &profile.run.untraced;
    let shown = &untraced.listed()[..untraced.listed().len().min(options.top)];
    let rows: Vec<_> = shown.iter().map(row).chain(others(untraced, shown)).collect();
    writeln!(out)?;
    out.table(vec![
        Column::numbers("PID", rows.iter().map(|row| row.pid.clone())),
        Column::text("COMMAND", rows.iter().map(|row| row.command.clone())),
        Column::numbers("RSS", rows.iter().map(|row| row.rss.map_or_else(|| String::from("-"), Bytes::compact))),
        Column::text("REASON", rows.iter().map(|row| String::from(row.reason.explanation()))),
    ])
}

fn row(process: &UntracedProcess) -> Row {
    Row {
        pid: process.pid.to_string(),
        command: format::shortened(&escape::visible(process.comm.raw()), COMMAND_COLUMNS),
        rss: process.rss,
        reason: process.reason,
    }
}

/// Returns a row for each reason with processes that are not shown.
fn others<'all>(untraced: &'all Untraced, shown: &'all [UntracedProcess]) -> impl Iterator<Item = Row> + use<'all> {
    UntracedReason::ALL.into_iter().filter_map(|reason| {
        let ProcessMemory { processes, rss } = untraced.with_reason(reason);
        let shown = || shown.iter().filter(|process| process.reason == reason);
        let others = processes.saturating_sub(shown().count() as u64);
        let of_shown: u64 = shown().filter_map(|process| process.rss).map(|rss| rss.0).sum();
        let rss = rss.0.saturating_sub(of_shown);
        (others > 0).then(|| Row {
            pid: String::new(),
            command: number::counted(others, "other", "others"),
            rss: (rss > 0).then_some(Bytes(rss)),
            reason,
        })
    })
}
