//! Working sets as CSV (RFC 4180): a line for each process and reading. `docs/json.md` documents the columns.

use std::io;

use memtrace_model::{MappingKind, ProcessWorkingSet, WorkingSets};

use crate::escape::csv_text;

/// Names of the columns before the columns of each kind of memory.
const LEADING: [&str; 15] = [
    "at_s",
    "method",
    "requested_s",
    "pid",
    "process",
    "estimated_s",
    "clear_s",
    "read_s",
    "rss_bytes",
    "pss_bytes",
    "referenced_bytes",
    "least_referenced_bytes",
    "huge_bytes",
    "swap_bytes",
    "hugetlb_bytes",
];

/// Writes the lines of a reading. The line of column names precedes the first reading.
///
/// # Errors
///
/// Returns the errors of `out`.
pub(super) fn write(sets: &WorkingSets, is_first: bool, out: &mut dyn io::Write) -> io::Result<()> {
    let mut writer = ::csv::Writer::from_writer(out);
    if is_first {
        let of_kinds =
            kinds().flat_map(|kind| ["rss", "referenced"].map(|value| format!("{}_{value}_bytes", kind.name())));
        writer.write_record(LEADING.iter().map(|&name| name.to_owned()).chain(of_kinds))?;
    }
    for process in &sets.processes {
        writer.write_record(line(sets, process))?;
    }
    writer.flush()
}

fn line(sets: &WorkingSets, process: &ProcessWorkingSet) -> Vec<String> {
    let seconds = |time: std::time::Duration| format!("{:.6}", time.as_secs_f64());
    let total = process.total();
    let mut line = vec![
        seconds(sets.at()),
        sets.method.name().to_owned(),
        seconds(sets.requested),
        process.pid.to_string(),
        csv_text(process.comm.raw()),
        seconds(process.duration()),
        seconds(process.clear_time()),
        seconds(process.read_time()),
    ];
    let touches = [total.resident, total.pss, total.referenced, total.least_referenced];
    let bytes = touches.into_iter().chain([total.huge, total.swap, process.hugetlb]);
    line.extend(bytes.map(|bytes| bytes.0.to_string()));
    for kind in kinds() {
        let memory = process.of_kind(kind);
        line.extend([memory.resident, memory.referenced].map(|bytes| bytes.0.to_string()));
    }
    line
}

/// Returns the kinds of memory with columns. The kernel does not report references to hugetlbfs pages.
fn kinds() -> impl Iterator<Item = MappingKind> {
    MappingKind::ALL.into_iter().filter(|kind| *kind != MappingKind::Hugetlb)
}
