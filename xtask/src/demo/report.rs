//! Reads memtrace's JSON, as any program would, and says which site holds most.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// How many sites the summary shows.
const SHOWN: usize = 5;

/// The summary, when `expected` is the widest site.
///
/// # Errors
///
/// When it is not, or when `report` is not what memtrace writes.
pub(super) fn judge(report: &str, expected: &str) -> Result<String> {
    let sites = sites(report)?;
    let (widest, bytes) = sites.first().context("memtrace saw no live memory at all")?;
    if widest != expected {
        bail!("the widest site should be {expected}, but is {widest}\n{}", table(&sites));
    }
    let all: u64 = sites.iter().map(|(_, bytes)| bytes).sum();
    let share = *bytes as f64 / all as f64 * 100.0;
    Ok(format!(
        "Live bytes by site, of what was allocated while memtrace looked:\n{}\n\n\
         {widest} is the widest site, with {share:.1} % of all live bytes: it is the one that grows.",
        table(&sites)
    ))
}

/// The sites of all stacks, each with the live bytes of all its stacks, the widest first.
fn sites(report: &str) -> Result<Vec<(String, u64)>> {
    let report: Value = serde_json::from_str(report).context("the report is not JSON")?;
    let stacks = report["stacks"].as_array().context("the report has no stacks")?;
    let mut sites: BTreeMap<String, u64> = BTreeMap::new();
    for stack in stacks {
        let live = stack["live_bytes"].as_u64().context("a stack has no live_bytes")?;
        let indices = stack["frames"].as_array().map_or(&[][..], Vec::as_slice);
        let frames: Vec<_> =
            indices.iter().map(|index| &report["frames"][index.as_u64().unwrap_or(u64::MAX) as usize]).collect();
        *sites.entry(site(&frames)).or_default() += live;
    }
    let mut sites: Vec<(String, u64)> = sites.into_iter().filter(|(_, live)| *live > 0).collect();
    sites.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    Ok(sites)
}

/// The innermost function that is not a part of the language's own library, as vectors and strings are.
fn site(frames: &[&Value]) -> String {
    let own = frames.iter().rfind(|frame| !frame["name"].as_str().is_some_and(is_library));
    own.or(frames.last()).map_or_else(|| String::from("(no stack)"), |frame| label(frame))
}

fn is_library(name: &str) -> bool {
    let name = name.trim_start_matches('<');
    ["alloc::", "core::", "std::", "__rust"].iter().any(|library| name.starts_with(library))
}

fn label(frame: &Value) -> String {
    frame["name"].as_str().map_or_else(|| format!("{}+{}", frame["object"], frame["offset"]), String::from)
}

fn table(sites: &[(String, u64)]) -> String {
    let rows = sites.iter().take(SHOWN).map(|(name, bytes)| format!("  {:>10.1} KiB  {name}", *bytes as f64 / 1024.0));
    rows.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report() -> String {
        let mut all: Vec<Value> = Vec::new();
        let mut stack = |names: &[&str], live: u64| {
            let first = all.len();
            all.extend(names.iter().map(|name| json!({ "name": name })));
            json!({ "frames": (first..all.len()).collect::<Vec<_>>(), "live_bytes": live })
        };
        let stacks = [
            stack(&["main", "login_with_token", "remember"], 600),
            stack(&["main", "render", "<alloc::raw_vec::RawVec<T,A>>::grow", "alloc::alloc::alloc"], 1000),
            stack(&["main", "login_with_password", "remember"], 800),
            stack(&["main", "churn"], 0),
            stack(&[], 100),
        ];
        json!({ "frames": all, "stacks": stacks }).to_string()
    }

    #[test]
    fn a_site_is_the_sum_of_the_stacks_that_end_in_it_or_in_the_library_below_it() {
        let expected = [("remember", 1400), ("render", 1000), ("(no stack)", 100)];
        assert_eq!(sites(&report()).unwrap(), expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    }

    #[test]
    fn the_summary_names_the_widest_site() {
        let summary = judge(&report(), "remember").unwrap();
        assert!(summary.contains("remember is the widest site, with 56.0 % of all live bytes"), "{summary}");
    }

    #[test]
    fn another_widest_site_is_a_failure() {
        let error = judge(&report(), "render").unwrap_err().to_string();
        assert!(error.starts_with("the widest site should be render, but is remember"), "{error}");
    }

    #[test]
    fn what_is_no_report_is_a_failure() {
        assert!(judge("", "remember").is_err());
        assert!(judge("{}", "remember").is_err());
        assert!(judge("{\"stacks\": []}", "remember").is_err());
    }
}
