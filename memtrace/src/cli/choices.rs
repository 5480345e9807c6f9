//! Which processes are traced, as people write it.

use super::args::Trace;
use super::units;
use crate::session::{By, Choice};

/// Reads what `--exclude` says: `comm=bash`, `user=root`, `exe=/usr/bin/make`, `cgroup=system.slice`, `pid=4711`.
pub(super) fn excluded(text: &str) -> Result<Choice, String> {
    let how = "write comm=NAME, exe=PATH, cgroup=PATH, user=USER or pid=PID";
    let (kind, value) = text.split_once('=').ok_or(how)?;
    if value.is_empty() {
        return Err(format!("nothing follows '{kind}='; {how}"));
    }
    let by = match kind {
        "comm" => By::Comm(value.to_owned()),
        "exe" => By::Exe(value.into()),
        "cgroup" => By::Cgroup(value.into()),
        "user" => By::User(value.to_owned()),
        "pid" => By::Pid(units::pid(value)?),
        _ => return Err(format!("'{kind}' is nothing that processes are left out by; {how}")),
    };
    Ok(Choice { by, exclude: true })
}

/// Everything that was given to choose processes by.
pub(super) fn given(given: &Trace) -> Vec<Choice> {
    let include = |by| Choice { by, exclude: false };
    let comms = given.comms.iter().cloned().map(By::Comm);
    let exes = given.exes.iter().cloned().map(By::Exe);
    let cgroups = given.cgroups.iter().cloned().map(By::Cgroup);
    let users = given.users.iter().cloned().map(By::User);
    comms.chain(exes).chain(cgroups).chain(users).map(include).chain(given.exclude.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Pid;

    #[test]
    fn whom_to_leave_out_is_said_by_kind_and_value() {
        let by = |text| excluded(text).map(|choice| choice.by);
        assert_eq!(by("comm=a=b"), Ok(By::Comm(String::from("a=b"))));
        assert_eq!(by("pid=7"), Ok(By::Pid(Pid(7))));
        assert_eq!(by("exe=/bin/true"), Ok(By::Exe("/bin/true".into())));
        for wrong in ["bash", "comm=", "name=bash", "pid=seven"] {
            assert!(by(wrong).is_err(), "{wrong}");
        }
    }
}
