//! Process filters of the command line.

use super::units;
use crate::model::{FilterRule, ProcessAttribute};

/// Parses the value of `--exclude`: `comm=bash`, `user=root`, `exe=/usr/bin/make`, `cgroup=system.slice`, `pid=4711`.
pub(super) fn excluded(text: &str) -> Result<FilterRule, String> {
    let how = "write comm=NAME, exe=PATH, cgroup=PATH, user=USER or pid=PID";
    let (kind, value) = text.split_once('=').ok_or(how)?;
    if value.is_empty() {
        return Err(format!("'{kind}=' has no value; {how}"));
    }
    let attribute = match kind {
        "comm" => ProcessAttribute::Comm(value.to_owned()),
        "exe" => ProcessAttribute::Exe(value.into()),
        "cgroup" => ProcessAttribute::Cgroup(value.into()),
        "user" => ProcessAttribute::User(value.to_owned()),
        "pid" => ProcessAttribute::Pid(units::pid(value)?),
        _ => return Err(format!("'{kind}' is not an attribute of processes; {how}")),
    };
    Ok(FilterRule { attribute, exclude: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Pid;

    #[test]
    fn exclusion_is_kind_and_value() {
        let by = |text| excluded(text).map(|rule| rule.attribute);
        assert_eq!(by("comm=a=b"), Ok(ProcessAttribute::Comm(String::from("a=b"))));
        assert_eq!(by("pid=7"), Ok(ProcessAttribute::Pid(Pid(7))));
        assert_eq!(by("exe=/bin/true"), Ok(ProcessAttribute::Exe("/bin/true".into())));
        for wrong in ["bash", "comm=", "name=bash", "pid=seven"] {
            assert!(by(wrong).is_err(), "{wrong}");
        }
    }
}
