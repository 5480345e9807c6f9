//! Writes the section "Outside the RSS": page tables, blocks of the heap, totals of Go's runtime, PSS, huge pages, the largest
//! thread stack, the cgroup, and memory pressure.

use std::io;

use memtrace_model::format as number;
use memtrace_model::{Bytes, CgroupMemory, Explanation, HeapSource};

use super::cgroup_facts::{limit, pressure};
use super::facts;
use super::painter::Painter;
use super::rss_parts::go_sizes;
use crate::text::text_writer::TextWriter;

pub(super) fn write(page: &Explanation, painter: &Painter, out: &mut TextWriter<'_>) -> io::Result<()> {
    let counted = &page.counted;
    writeln!(out, "\n{}", painter.strong("Outside the RSS"))?;
    let mut lines = vec![("page tables", format!("{}, not in the RSS", counted.page_tables))];
    lines.extend(heap(page).into_iter().map(|text| ("heap", text)));
    lines.extend(go(page).into_iter().map(|text| ("Go", text)));
    lines.push(("PSS", format!("{}: the RSS with each page divided among the processes that map it", page.pss)));
    lines.extend(huge(page));
    lines.extend(
        page.thread_stacks.largest.map(|(tid, resident)| ("largest stack", format!("{resident}, of thread {}", tid.0))),
    );
    lines.extend(page.cgroup.as_ref().map(|group| ("control group", cgroup(group))));
    let waits = page.cgroup.as_ref().and_then(|group| group.pressure).map(|found| ("its pressure", pressure(found)));
    lines.extend(waits);
    lines.extend(page.pressure.map(|found| ("machine", pressure(found))));
    facts::write(&lines, out)
}

fn heap(page: &Explanation) -> Option<String> {
    let HeapSource::Known(stats) = &page.heap.source else { return None };
    let arenas = number::counted(stats.arenas.into(), "arena", "arenas");
    let mut text = format!("{} in {} in use", stats.in_use, number::counted(stats.blocks, "block", "blocks"));
    if stats.mapped_blocks > 0 {
        text += &format!(" ({} with mappings of their own, {})", number::grouped(stats.mapped_blocks), stats.mapped);
    }
    text += &format!(" and {} free, touched or not, in {arenas}", stats.free);
    if stats.own.0 > 0 {
        text += &format!(", whose metadata takes {}", stats.own);
    }
    Some(text + ". Freed blocks in tcache and fast bins count as in use")
}

/// Returns the totals of Go's runtime with their names in `runtime.MemStats`.
fn go(page: &Explanation) -> Option<String> {
    let totals = &go_sizes(page)?.totals;
    let version = page.go.as_ref()?.version.as_deref().unwrap_or("the runtime");
    Some(format!(
        "totals of {version}, touched or not: HeapInuse {}, HeapIdle {}, HeapReleased {}, StackInuse {}, Sys {}",
        totals.in_use,
        totals.idle_or_released(),
        totals.released,
        totals.stacks,
        totals.sys()
    ))
}

fn huge(page: &Explanation) -> Option<(&'static str, String)> {
    let huge = page.held().huge;
    let pool = page.hugetlb;
    if huge.0 == 0 && pool.reserved.0 == 0 {
        return None;
    }
    let mut text = format!("{huge} of the RSS");
    if pool.reserved.0 > 0 {
        text += &format!("; in addition {} of {} from the kernel's pool", pool.resident, pool.reserved);
    }
    Some(("huge pages", text))
}

fn cgroup(group: &CgroupMemory) -> String {
    let mut text = format!("{} uses {}", group.path, group.current);
    let part = |name: &str, bytes: Option<Bytes>| bytes.map(|bytes| format!("{bytes} {name}"));
    let counters = &group.counters;
    let parts: Vec<_> =
        [part("anonymous", counters.anonymous), part("page cache", counters.file)].into_iter().flatten().collect();
    if !parts.is_empty() {
        text += &format!(" ({})", parts.join(", "));
    }
    text + &limit(group)
}
