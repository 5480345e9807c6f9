//! Names of the tracks of accounts.

use memtrace_model::{AccountKeys, PartKeys, Pid};

/// Separator between the name of a thread and the name of its process.
const OF: &str = " of ";

/// Names of the tracks of an account.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TrackNames<'a> {
    /// Name of the process that the account belongs to; `None` if it does not belong to a single process.
    pub(super) process: Option<&'a str>,
    /// The other names of the account, joined; empty if there are none.
    pub(super) account: String,
}

impl<'a> TrackNames<'a> {
    /// Returns the names of the tracks of an account. `names`: name for each of the `keys`, or nothing for the total.
    pub(super) fn of(keys: &AccountKeys, names: &'a [String]) -> Self {
        if names.is_empty() {
            return Self { process: None, account: String::from("total") };
        }
        let mut process = None;
        let mut others = Vec::new();
        for (key, name) in keys.iter().zip(names) {
            if key.is_process() {
                process = Some(name.as_str());
            } else if key.parts() == PartKeys::THREAD {
                let (thread, of) = split_thread(name);
                process = process.or(Some(of));
                others.push(thread);
            } else {
                others.push(name);
            }
        }
        Self { process, account: others.join(", ") }
    }
}

/// Splits `worker (13) of server (12)` into the thread and its process. A name without a separator is the name of
/// both, as for the main thread.
fn split_thread(name: &str) -> (&str, &str) {
    let splits = name.match_indices(OF).map(|(at, _)| (&name[..at], &name[at + OF.len()..]));
    let is_thread = |thread: &str| {
        thread.ends_with(']')
            || process(thread).is_some()
            || thread.strip_prefix("thread ").is_some_and(|tid| tid.parse::<u32>().is_ok())
    };
    splits.into_iter().find(|(thread, _)| is_thread(thread)).unwrap_or((name, name))
}

/// Splits a name such as `server (4711)` into the command and the PID; `None` for other names.
pub(super) fn process(name: &str) -> Option<(&str, Pid)> {
    let (comm, pid) = name.strip_suffix(')')?.rsplit_once(" (")?;
    Some((comm, Pid(pid.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use memtrace_model::GroupBy;

    use super::*;

    #[test]
    fn accounts_of_threads_are_below_their_process() {
        let names = |keys: &[GroupBy], names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let TrackNames { process, account } = TrackNames::of(&keys.to_vec().into(), &names);
            (process.map(str::to_owned), account)
        };
        let server = || Some(String::from("server (12)"));
        let thread = [GroupBy::Thread];
        assert_eq!(names(&thread, &["a of b (13) of server (12)"]), (server(), String::from("a of b (13)")));
        assert_eq!(names(&thread, &["thread 14 of server (12)"]), (server(), String::from("thread 14")));
        assert_eq!(names(&thread, &["[ended threads] of server (12)"]), (server(), String::from("[ended threads]")));
        assert_eq!(names(&thread, &["server (12)"]), (server(), String::from("server (12)")));
        assert_eq!(names(&[GroupBy::Process], &["server (12)"]), (server(), String::new()));
        let both = [GroupBy::Process, GroupBy::Tag];
        assert_eq!(names(&both, &["server (12)", "parser"]), (server(), String::from("parser")));
        let none = [GroupBy::User, GroupBy::Comm];
        assert_eq!(names(&none, &["root", "sh"]), (None, String::from("root, sh")));
        assert_eq!(names(&thread, &[]), (None, String::from("total")));
    }

    #[test]
    fn sums_of_processes_have_no_pid() {
        assert_eq!(process("a (b) (12)"), Some(("a (b)", Pid(12))));
        assert_eq!((process("sh [ended]"), process("[process not known]")), (None, None));
    }
}
