//! Traces of victims that count their own blocks by tag.

use std::collections::BTreeMap;

use crate::accounts::Accounts;
use crate::{Outcome, Report, Totals, Trace, Victim, victim};

/// Returns the totals of the groups of a report, by name.
///
/// # Panics
///
/// If the report contradicts itself.
#[must_use]
pub fn roots(report: &Report) -> BTreeMap<String, Totals> {
    report.assert_consistent();
    report.roots.iter().map(|root| (root.name.clone(), root.totals)).collect()
}

/// Traces the victim `name`. Returns the victim's own totals by tag, and the outcome.
#[must_use]
pub fn traced(name: &str, arguments: &[&str], options: &[&str]) -> (BTreeMap<String, Totals>, Outcome) {
    run(name, arguments, |victim| Trace::victim(victim).options(options))
}

/// Traces the accounts of the victim `name`. Returns the victim's own totals by tag, and the accounts.
///
/// # Panics
///
/// If the accounts contradict themselves, or if their number differs from the number of tags.
#[must_use]
pub fn accounts(name: &str, arguments: &[&str], options: &[&str]) -> (BTreeMap<String, Totals>, Accounts) {
    let (expected, outcome) = run(name, arguments, |victim| Trace::victim(victim).options(options).accounts());
    let accounts = outcome.accounts();
    accounts.assert_consistent();
    assert_eq!(accounts.accounts.len(), expected.len());
    (expected, accounts)
}

fn run(name: &str, arguments: &[&str], trace: impl FnOnce(&Victim) -> Trace) -> (BTreeMap<String, Totals>, Outcome) {
    let mut victim = victim::start_with(name, arguments);
    let tracer = trace(&victim).start();
    victim.process().write_line("");
    let expected = victim.read_json();
    let outcome = tracer.stop();
    victim.finish();
    (expected, outcome)
}

/// Asserts that the report of a trace of the victim `name` has the victim's totals of `tags` tags, without losses.
///
/// # Panics
///
/// If the totals differ, or events were lost.
pub fn assert_equal(name: &str, arguments: &[&str], options: &[&str], tags: usize) {
    let (expected, outcome) = traced(name, arguments, options);
    assert_eq!(expected.len(), tags, "{name} {arguments:?}");
    let report = outcome.report();
    assert!(report.losses.values().all(|count| *count == 0), "{:?}", report.losses);
    assert_eq!(roots(&report), expected, "{name} {arguments:?}");
}
