//! Process filter of a run, from the rules that the user gave.

use std::fmt::Write as _;
use std::io;

use memtrace_host::kernel::{Condition, Memtraces, ProcessFilter};
use memtrace_host::procfs::{self, ProcessError};
use memtrace_model::{FilterRule, ProcessAttribute};

use super::config::Target;
use super::running::RunningSelection;
use crate::run_kit::error::{Error, from_engines};

/// Returns the filter of the BPF programs for `target`. Without selected pids, the processes of `memtraces` are left out: their
/// allocations say nothing about the machine.
///
/// `only_probes`: true if all events come from probes in allocators. A target without child processes then needs no
/// filter, because the probes are attached to its processes only.
pub(crate) fn resolve(target: &Target, only_probes: bool, memtraces: &Memtraces) -> Result<ProcessFilter, Error> {
    Ok(match target {
        Target::Pids { children: false, .. } | Target::Command { children: false, .. } if only_probes => {
            ProcessFilter::Probed
        }
        Target::Pids { children: false, .. } | Target::Command { children: false, .. } => ProcessFilter::Listed,
        Target::Pids { .. } | Target::Command { .. } => ProcessFilter::Families,
        Target::Selected { rules, .. } => {
            let condition =
                |rule: &FilterRule| Condition::resolve(rule.clone()).map_err(|error| unknown(&rule.attribute, &error));
            let mut conditions = rules.iter().map(condition).collect::<Result<Vec<_>, _>>()?;
            conditions.extend(Condition::of_memtraces(memtraces));
            ProcessFilter::Matching(conditions)
        }
    })
}

/// Checks that a running process is selected, unless the run waits for one.
pub(crate) fn require_match(target: &Target, filter: &ProcessFilter) -> Result<(), Error> {
    let Target::Selected { rules, waits: false } = target else { return Ok(()) };
    let failed = |error| Error::Failed(format!("cannot list the running processes: {error}"));
    let selection = RunningSelection::new(filter.clone());
    if !target.includes_some() || has_match(rules, &selection).map_err(failed)? {
        return Ok(());
    }
    match procfs::kernel_threads().map_err(failed)?.into_iter().find(|&pid| selection.contains(pid)) {
        Some(pid) => {
            let comm = procfs::comm(pid).unwrap_or_default().into();
            Err(from_engines::process(pid, ProcessError::KernelThread { pid, comm }))
        }
        None => Err(Error::NothingSelected {
            message: format!("{} do not run", describe(rules)),
            remedy: String::from("--wait waits until one starts; `ps -e` lists all processes"),
        }),
    }
}

/// Returns a note if the run waits for a process, because none is selected yet.
pub(crate) fn waiting_note(target: &Target, filter: &ProcessFilter) -> Option<String> {
    let Target::Selected { rules, waits: true } = target else { return None };
    // If the processes cannot be listed, nothing is known about them, so there is no note.
    let is_waiting = has_match(rules, &RunningSelection::new(filter.clone())).is_ok_and(|has_match| !has_match);
    is_waiting.then(|| format!("no process matches yet: waiting for {}", describe(rules)))
}

/// Returns true if a running process is selected, or may be selected.
fn has_match(rules: &[FilterRule], selection: &RunningSelection) -> io::Result<bool> {
    // A process that memtrace cannot read may run the executable, and the BPF programs can compare it. So the process
    // may be selected.
    let compares_exe = rules.iter().any(|rule| matches!(rule.attribute, ProcessAttribute::Exe(_)));
    let is_unknown = |pid| compares_exe && procfs::traits(pid, None).is_some_and(|traits| traits.exe.is_none());
    Ok(procfs::all_processes()?.into_iter().any(|pid| selection.contains(pid) || is_unknown(pid)))
}

/// Returns the error of a run that has selected no process. `name`: name of the target.
pub(crate) fn nothing_seen(name: &str) -> Error {
    Error::NothingSelected {
        message: format!("{name} did not run"),
        remedy: String::from("`ps -e` lists all processes"),
    }
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

    fn selected(attribute: ProcessAttribute) -> Target {
        Target::Selected { rules: vec![rule(attribute, false)], waits: false }
    }

    #[test]
    fn selection_without_a_process_is_refused() {
        let require = |name: &str| {
            let target = selected(ProcessAttribute::Comm(String::from(name)));
            require_match(&target, &resolve(&target, true, &Memtraces::default()).unwrap())
        };
        let error = require("no-such-name").unwrap_err();
        assert_eq!(error.to_string(), "the processes of command no-such-name do not run");
        assert!(matches!(require("kthreadd"), Err(Error::Untraceable { pid: Pid(2), .. })));
        let waiting = Target::Selected {
            rules: vec![rule(ProcessAttribute::Comm(String::from("no-such-name")), false)],
            waits: true,
        };
        let filter = resolve(&waiting, true, &Memtraces::default()).unwrap();
        assert!(require_match(&waiting, &filter).is_ok());
        let note = "no process matches yet: waiting for the processes of command no-such-name";
        assert_eq!(waiting_note(&waiting, &filter).as_deref(), Some(note));
        let others = Target::Selected { rules: vec![rule(ProcessAttribute::Pid(Pid(7)), true)], waits: false };
        assert!(require_match(&others, &resolve(&others, true, &Memtraces::default()).unwrap()).is_ok());
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
            let error = resolve(&selected(attribute.clone()), true, &Memtraces::default()).unwrap_err();
            assert!(matches!(error, Error::NothingSelected { .. }), "{attribute:?}: {error}");
            assert!(error.remedy().is_some());
        }
    }
}
