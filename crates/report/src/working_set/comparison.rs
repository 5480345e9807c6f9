//! A sentence that compares a working set with other sizes.

use memtrace_model::{Bytes, ComparedSizes, WorkingSetMethod, WorkingSets};

/// Returns a sentence that compares the last reading with the caches and the limit of the memory. `None` if nothing is known, or if the
/// reading is a lower bound.
pub(super) fn comparison(readings: &[WorkingSets], sizes: &ComparedSizes) -> Option<String> {
    let last = readings.last().filter(|sets| !sets.processes.is_empty() && sets.method != WorkingSetMethod::Faults)?;
    let touched = last.total().referenced;
    let reach = sizes.tlb_reach.map(|reach| (String::from("the TLB reach"), reach));
    let caches = sizes.caches.iter().map(|cache| (format!("the L{} cache", cache.level), cache.size));
    let limit = sizes.memory_limit.map(|limit| (String::from("the memory limit"), limit));
    let parts: Vec<_> =
        reach.into_iter().chain(caches).chain(limit).map(|(name, size)| part(touched, &name, size)).collect();
    let (last, others) = parts.split_last()?;
    let list = if others.is_empty() { last.clone() } else { format!("{} and {last}", others.join(", ")) };
    Some(format!("{touched} are {list}."))
}

/// Returns `31 times the L2 cache (1.00 MiB)` or `5% of the memory limit (1.00 GiB)`.
fn part(touched: Bytes, name: &str, size: Bytes) -> String {
    let ratio = touched.0 as f64 / size.0.max(1) as f64;
    let amount = if ratio < 1.995 { format!("{:.0}% of", ratio * 100.0) } else { format!("{ratio:.1} times") };
    format!("{amount} {name} ({size})")
}
