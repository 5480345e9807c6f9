//! Process filters of the command line.

use memtrace_model::{FilterRule, ProcessAttribute};

use super::units;

/// The longest name of a thread in bytes (`TASK_COMM_LEN`, include/linux/sched.h).
const MAX_THREAD_NAME: usize = 15;

/// Processes or threads that are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Excluded {
    /// Processes.
    Processes(FilterRule),
    /// Threads with this name.
    Threads(String),
}

/// Parses the name of a thread.
pub(super) fn thread(name: &str) -> Result<String, String> {
    match name.len() {
        0 => Err(String::from("the name of a thread is empty")),
        1..=MAX_THREAD_NAME => Ok(name.to_owned()),
        _ => Err(format!("names of threads have at most {MAX_THREAD_NAME} bytes")),
    }
}

/// Parses the value of `--exclude`: `comm=bash`, `user=root`, `exe=/usr/bin/make`, `cgroup=system.slice`, `pid=4711`,
/// `thread=worker`.
pub(super) fn excluded(text: &str) -> Result<Excluded, String> {
    let how = "write comm=NAME, exe=PATH, cgroup=PATH, user=USER, pid=PID or thread=NAME";
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
        "thread" => return thread(value).map(Excluded::Threads),
        _ => return Err(format!("'{kind}' is not an attribute of processes or threads; {how}")),
    };
    Ok(Excluded::Processes(FilterRule { attribute, exclude: true }))
}

#[cfg(test)]
mod tests {
    use memtrace_model::Pid;

    use super::*;

    #[test]
    fn exclusion_is_kind_and_value() {
        let by = |text| match excluded(text)? {
            Excluded::Processes(rule) => Ok(rule.attribute),
            Excluded::Threads(name) => Err(name),
        };
        assert_eq!(excluded("thread=a=b"), Ok(Excluded::Threads(String::from("a=b"))));
        assert!(excluded("thread=0123456789abcdef").is_err_and(|error| error.contains("at most 15 bytes")));
        assert_eq!(by("comm=a=b"), Ok(ProcessAttribute::Comm(String::from("a=b"))));
        assert_eq!(by("pid=7"), Ok(ProcessAttribute::Pid(Pid(7))));
        assert_eq!(by("exe=/bin/true"), Ok(ProcessAttribute::Exe("/bin/true".into())));
        for wrong in ["bash", "comm=", "name=bash", "pid=seven"] {
            assert!(by(wrong).is_err(), "{wrong}");
        }
    }
}
