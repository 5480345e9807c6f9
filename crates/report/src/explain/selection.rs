//! Writes the memory of several processes as text.

use std::io;

use memtrace_model::format as number;
use memtrace_model::{Bytes, ProcessSizes, ProcessesUse, SelectionExplanation};

use super::painter::Painter;
use super::rss_parts::share;
use super::{PageOptions, advice, cgroup_facts, facts, selection_advice};
use crate::escape;
use crate::table::Column;
use crate::text::text_writer::TextWriter;

/// Writes the memory of several processes as text. Without colour, the line feed is the only control character in the text.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write(page: &SelectionExplanation, options: PageOptions, out: &mut dyn io::Write) -> io::Result<()> {
    let painter = Painter::new(options.colour);
    let out = &mut TextWriter::new(out, options.columns);
    let total = page.total();
    let count = number::counted(total.processes, "process", "processes");
    writeln!(out, "memtrace: {}, {count}\n", escape::visible(&page.name))?;
    let ProcessSizes { pss, resident, .. } = total.sizes;
    let headline = format!("  PSS {pss}: each shared page counts once. Sum of the RSS: {resident}");
    writeln!(out, "{}", painter.strong(&headline))?;
    if total.processes > 0 {
        processes(page, &total, options.top, out)?;
    }
    let conclusions = selection_advice::conclusions(page);
    if !conclusions.is_empty() {
        advice::write(&conclusions, &painter, out)?;
    }
    if total.processes > 0 {
        writeln!(out, "\n{}", painter.strong("Parts of the PSS"))?;
        facts::write(&parts(page, &total), out)?;
    }
    for group in &page.cgroups {
        let title = format!("Control group {}", escape::visible(&group.memory.path));
        writeln!(out, "\n{}", painter.strong(&title))?;
        let mut all = cgroup_facts::of_group(&group.memory, page.unmapped_shmem(group));
        if !group.is_whole {
            all.push(("processes", String::from("the group may have other processes too")));
        }
        facts::write(&all, out)?;
    }
    if let Some(machine) = &page.machine {
        writeln!(out, "\n{}", painter.strong("Machine"))?;
        let mut all = cgroup_facts::of_machine(machine);
        all.extend(page.pressure.map(|found| ("pressure", cgroup_facts::pressure(found))));
        facts::write(&all, out)?;
    }
    Ok(())
}

/// Writes the table of the largest processes, with the sum of the others, and the total.
fn processes(
    page: &SelectionExplanation,
    total: &ProcessesUse,
    top: usize,
    out: &mut TextWriter<'_>,
) -> io::Result<()> {
    let shown = page.processes.iter().take(top);
    let mut rows: Vec<(ProcessSizes, String, String)> =
        shown.map(|process| (process.sizes, process.pid.to_string(), escape::visible(process.comm.raw()))).collect();
    let rest = page.rest(rows.len());
    let has_sum = total.processes > 1;
    if rest.processes > 0 {
        let others = number::counted(rest.processes, "other process", "other processes");
        rows.push((rest.sizes, String::new(), others));
    }
    if has_sum {
        rows.push((total.sizes, String::new(), String::from("all processes")));
    }
    let bytes = |of: fn(&ProcessSizes) -> Bytes| rows.iter().map(move |(sizes, ..)| of(sizes).to_string());
    let shares = rows.iter().map(|(sizes, ..)| number::percent(share(sizes.pss, total.sizes.pss)));
    writeln!(out)?;
    out.table(vec![
        Column::numbers("PSS", bytes(|sizes| sizes.pss)),
        Column::numbers("SHARE", shares),
        Column::numbers("PRIVATE", bytes(|sizes| sizes.private)),
        Column::numbers("RSS", bytes(|sizes| sizes.resident)),
        Column::numbers("SWAPPED OUT", bytes(|sizes| sizes.swap)).with_importance(1),
        Column::numbers("RETURNABLE", bytes(|sizes| sizes.returnable.sum())).with_importance(2),
        Column::numbers("PID", rows.iter().map(|(_, pid, _)| pid.clone())),
        Column::text("COMMAND", rows.iter().map(|(.., name)| name.clone())),
    ])
}

/// Returns the parts of the PSS of all processes.
fn parts(page: &SelectionExplanation, total: &ProcessesUse) -> Vec<(&'static str, String)> {
    let sizes = &total.sizes;
    let part = |bytes: Bytes| format!("{bytes} ({})", number::percent(share(bytes, sizes.pss)));
    let mut all = vec![
        ("anonymous", format!("{}: heaps, stacks and other memory without a file", part(sizes.anonymous))),
        ("files", part(sizes.file)),
        ("shared memory", part(sizes.shmem)),
    ];
    let returnable = &sizes.returnable;
    all.push((
        "returnable",
        format!(
            "{}: about {} of free heap memory that malloc_trim(3) returns ({}), {} that the programs have freed with \
             MADV_FREE, {} of unmodified file pages",
            returnable.sum(),
            returnable.heap,
            known_heaps(page, total),
            returnable.lazy_free,
            returnable.clean_file
        ),
    ));
    all.push(("page tables", format!("{}, not in the PSS", sizes.page_tables)));
    if sizes.hugetlb.0 > 0 {
        let text = "of the kernel's pool (hugetlb), not in the PSS; a shared page counts for each process";
        all.push(("huge pages", format!("{} {text}", sizes.hugetlb)));
    }
    all
}

/// Describes the processes with known free heap memory: `known of 3 of 40 processes`.
fn known_heaps(page: &SelectionExplanation, total: &ProcessesUse) -> String {
    let processes = number::counted(total.processes, "process", "processes");
    format!("known of {} of {processes}", number::grouped(page.known_heaps() as u64))
}

#[cfg(test)]
mod tests;
