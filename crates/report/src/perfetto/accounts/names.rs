//! Names of the tracks of accounts.

use memtrace_model::{AccountKeys, PartKeys};

use crate::account_names::{process_of, split_thread};

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
        let others = keys.iter().zip(names).filter(|(key, _)| !key.is_process());
        let others = others.map(
            |(key, name)| {
                if key.parts() == PartKeys::THREAD { split_thread(name).0 } else { name.as_str() }
            },
        );
        Self { process: process_of(keys, names), account: others.collect::<Vec<_>>().join(", ") }
    }
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
}
