//! Which processes are traced, as people write it.

use super::args::Trace;
use super::units;
use crate::model::{FilterRule, ProcessAttribute};

/// Reads what `--exclude` says: `comm=bash`, `user=root`, `exe=/usr/bin/make`, `cgroup=system.slice`, `pid=4711`.
pub(super) fn excluded(text: &str) -> Result<FilterRule, String> {
    let how = "write comm=NAME, exe=PATH, cgroup=PATH, user=USER or pid=PID";
    let (kind, value) = text.split_once('=').ok_or(how)?;
    if value.is_empty() {
        return Err(format!("nothing follows '{kind}='; {how}"));
    }
    let attribute = match kind {
        "comm" => ProcessAttribute::Comm(value.to_owned()),
        "exe" => ProcessAttribute::Exe(value.into()),
        "cgroup" => ProcessAttribute::Cgroup(value.into()),
        "user" => ProcessAttribute::User(value.to_owned()),
        "pid" => ProcessAttribute::Pid(units::pid(value)?),
        _ => return Err(format!("'{kind}' is nothing that processes are left out by; {how}")),
    };
    Ok(FilterRule { attribute, exclude: true })
}

/// Everything that was given to choose processes by.
pub(super) fn given(given: &Trace) -> Vec<FilterRule> {
    let include = |attribute| FilterRule { attribute, exclude: false };
    let comms = given.comms.iter().cloned().map(ProcessAttribute::Comm);
    let exes = given.exes.iter().cloned().map(ProcessAttribute::Exe);
    let cgroups = given.cgroups.iter().cloned().map(ProcessAttribute::Cgroup);
    let users = given.users.iter().cloned().map(ProcessAttribute::User);
    comms.chain(exes).chain(cgroups).chain(users).map(include).chain(given.exclude.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Pid;

    #[test]
    fn whom_to_leave_out_is_said_by_kind_and_value() {
        let by = |text| excluded(text).map(|rule| rule.attribute);
        assert_eq!(by("comm=a=b"), Ok(ProcessAttribute::Comm(String::from("a=b"))));
        assert_eq!(by("pid=7"), Ok(ProcessAttribute::Pid(Pid(7))));
        assert_eq!(by("exe=/bin/true"), Ok(ProcessAttribute::Exe("/bin/true".into())));
        for wrong in ["bash", "comm=", "name=bash", "pid=seven"] {
            assert!(by(wrong).is_err(), "{wrong}");
        }
    }
}
