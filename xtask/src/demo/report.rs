//! Finds the sites with the most live bytes in memtrace's JSON report.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use harness::Report;
use harness::report::{Frame, Stack};

/// Number of sites in the summary.
const SHOWN: usize = 5;

/// Returns a summary of the sites with the most live bytes.
///
/// # Errors
///
/// The report has no live memory, or the largest site is not `expected`.
pub(super) fn summarize(report: &Report, expected: &str) -> Result<String> {
    let sites = sites(report);
    let (largest, bytes) = sites.first().context("the report has no live memory")?;
    if largest != expected {
        bail!("the largest site should be {expected}, but is {largest}\n{}", table(&sites));
    }
    let total: u64 = sites.iter().map(|(_, bytes)| bytes).sum();
    let share = *bytes as f64 / total as f64 * 100.0;
    Ok(format!(
        "Live bytes by site, of allocations during the trace:\n{}\n\n\
         {largest} is the largest site, with {share:.1} % of all live bytes: it is the leak.",
        table(&sites)
    ))
}

/// Returns the sites of all stacks with the sum of their live bytes, largest first.
fn sites(report: &Report) -> Vec<(String, u64)> {
    let mut sites: BTreeMap<String, u64> = BTreeMap::new();
    for stack in &report.stacks {
        *sites.entry(site(stack)).or_default() += stack.totals.live_bytes;
    }
    let mut sites: Vec<(String, u64)> = sites.into_iter().filter(|(_, live)| *live > 0).collect();
    sites.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    sites
}

/// Returns the innermost function outside of Rust's standard library.
fn site(stack: &Stack) -> String {
    let own = stack.frames.iter().rfind(|frame| !frame.name.as_deref().is_some_and(is_library));
    own.or(stack.frames.last()).map_or_else(|| String::from("(no stack)"), |frame| label(frame))
}

fn is_library(name: &str) -> bool {
    let name = name.trim_start_matches('<');
    ["alloc::", "core::", "std::", "__rust"].iter().any(|library| name.starts_with(library))
}

fn label(frame: &Frame) -> String {
    let place = || format!("{}+{:#x}", frame.object.as_deref().unwrap_or("?"), frame.offset.unwrap_or_default());
    frame.name.as_deref().map_or_else(place, String::from)
}

fn table(sites: &[(String, u64)]) -> String {
    let rows = sites.iter().take(SHOWN).map(|(name, bytes)| format!("  {:>10.1} KiB  {name}", *bytes as f64 / 1024.0));
    rows.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use harness::Totals;

    use super::*;

    fn report() -> Report {
        let stack = |names: &[&str], live: u64| {
            let frame = |name: &&str| Arc::new(Frame { name: Some(String::from(*name).into()), ..Frame::default() });
            Stack { frames: names.iter().map(frame).collect(), totals: Totals::live(live, 1), ..Stack::default() }
        };
        let stacks = vec![
            stack(&["main", "login_with_token", "remember"], 600),
            stack(&["main", "render", "<alloc::raw_vec::RawVec<T,A>>::grow", "alloc::alloc::alloc"], 1000),
            stack(&["main", "login_with_password", "remember"], 800),
            stack(&["main", "churn"], 0),
            stack(&[], 100),
        ];
        Report { stacks, ..Report::default() }
    }

    #[test]
    fn sites_are_summed_without_library_frames() {
        let expected = [("remember", 1400), ("render", 1000), ("(no stack)", 100)];
        assert_eq!(sites(&report()), expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    }

    #[test]
    fn summary_names_the_largest_site() {
        let summary = summarize(&report(), "remember").unwrap();
        assert!(summary.contains("remember is the largest site, with 56.0 % of all live bytes"), "{summary}");
    }

    #[test]
    fn unexpected_largest_site_is_an_error() {
        let error = summarize(&report(), "render").unwrap_err().to_string();
        assert!(error.starts_with("the largest site should be render, but is remember"), "{error}");
    }

    #[test]
    fn report_without_live_memory_is_an_error() {
        assert!(summarize(&Report::default(), "remember").is_err());
    }
}
