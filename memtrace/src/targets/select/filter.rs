//! Process filter of a run, from the rules that the user gave.

use std::fmt::Write as _;
use std::io;

use memtrace_host::kernel::{Condition, ProcessFilter};
use memtrace_model::{FilterRule, ProcessAttribute};

use super::config::Target;
use crate::run_kit::error::Error;

/// Short name of memtrace's processes.
const OWN_NAME: &str = env!("CARGO_PKG_NAME");

/// Returns the filter of the BPF programs for `target`.
///
/// `only_probes`: true if all events come from probes in allocators. A target without child processes then needs no
/// filter, because the probes are attached to its processes only.
pub(crate) fn resolve(target: &Target, only_probes: bool) -> Result<ProcessFilter, Error> {
    Ok(match target {
        Target::Pids { children: false, .. } | Target::Command { children: false, .. } if only_probes => {
            ProcessFilter::Probed
        }
        Target::Pids { children: false, .. } | Target::Command { children: false, .. } => ProcessFilter::Listed,
        Target::Pids { .. } | Target::Command { .. } => ProcessFilter::Families,
        Target::Selected(rules) => {
            // Allocations of memtrace itself say nothing about the machine. `--pid` can still
            // select memtrace.
            let own = FilterRule { attribute: ProcessAttribute::Comm(String::from(OWN_NAME)), exclude: true };
            let condition =
                |rule: &FilterRule| Condition::resolve(rule.clone()).map_err(|error| unknown(&rule.attribute, &error));
            let rules = rules.iter().chain([&own]);
            ProcessFilter::Matching(rules.map(condition).collect::<Result<_, _>>()?)
        }
    })
}

fn unknown(attribute: &ProcessAttribute, error: &io::Error) -> Error {
    let remedy = match attribute {
        ProcessAttribute::Exe(_) => "give the executable's absolute path, as `readlink /proc/PID/exe` shows it",
        ProcessAttribute::Cgroup(_) => {
            "give a group's directory, or its path as `cat /proc/PID/cgroup` shows it after the second colon"
        }
        ProcessAttribute::User(_) => "give a name from /etc/passwd, or a user id",
        ProcessAttribute::Comm(_) | ProcessAttribute::Pid(_) => "`ps -e` lists all processes",
    };
    let message = match error.kind() {
        io::ErrorKind::NotFound => format!("there is no {attribute}"),
        _ => format!("cannot look up {attribute}: {error}"),
    };
    Error::NothingSelected { message, remedy: remedy.to_owned() }
}

/// Describes the rules: `all processes`, `the processes of user www-data`.
pub(crate) fn describe(rules: &[FilterRule]) -> String {
    let list = |exclude: bool| {
        let rules = rules.iter().filter(|rule| rule.exclude == exclude);
        rules.map(|rule| rule.attribute.to_string()).collect::<Vec<_>>()
    };
    let (included, excluded) = (list(false), list(true));
    let mut name = String::from("all processes");
    if !included.is_empty() {
        name = format!("the processes of {}", included.join(" or "));
    }
    if !excluded.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(name, " but not of {}", excluded.join(" or "));
    }
    name
}

#[cfg(test)]
mod tests {
    use memtrace_model::Pid;

    use super::*;

    fn rule(attribute: ProcessAttribute, exclude: bool) -> FilterRule {
        FilterRule { attribute, exclude }
    }

    #[test]
    fn rules_are_described_like_a_title() {
        assert_eq!(describe(&[]), "all processes");
        let choices = [
            rule(ProcessAttribute::User(String::from("www-data")), false),
            rule(ProcessAttribute::Comm(String::from("nginx")), false),
            rule(ProcessAttribute::Pid(Pid(7)), true),
        ];
        assert_eq!(describe(&choices), "the processes of user www-data or command nginx but not of pid 7");
        assert_eq!(describe(&choices[2..]), "all processes but not of pid 7");
    }

    #[test]
    fn unknown_attribute_has_a_remedy() {
        for attribute in [
            ProcessAttribute::User(String::from("nobody-of-that-name")),
            ProcessAttribute::Exe("/no/such".into()),
            ProcessAttribute::Cgroup("no.slice".into()),
        ] {
            let error = resolve(&Target::Selected(vec![rule(attribute.clone(), false)]), true).unwrap_err();
            assert!(matches!(error, Error::NothingSelected { .. }), "{attribute:?}: {error}");
            assert!(error.remedy().is_some());
        }
    }
}
