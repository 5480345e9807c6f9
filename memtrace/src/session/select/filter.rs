//! Who is traced: from what the user calls processes to what the kernel half chooses them by.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use crate::kernel::{Property, Rule, Selection};
use crate::model::Pid;
use crate::procfs;
use crate::session::config::{By, Choice, Target};
use crate::session::error::Error;

/// What the kernel half is told, and the processes that it is to leave out.
///
/// Where only probes are placed, and for a single process, whoever runs into one is meant.
pub(in crate::session) fn of(target: &Target, only_probes: bool) -> Result<(Selection, Vec<Pid>), Error> {
    match target {
        Target::Pids { children: false, .. } | Target::Command { children: false, .. } => {
            Ok((if only_probes { Selection::Probed } else { Selection::Listed }, Vec::new()))
        }
        Target::Pids { .. } | Target::Command { .. } => Ok((Selection::Families, Vec::new())),
        Target::Selected(choices) => {
            let mut rules = Vec::new();
            let mut left_out = Vec::new();
            for choice in choices {
                match &choice.by {
                    By::Pid(pid) => left_out.push(*pid),
                    by => rules.push(Rule { property: property(by)?, exclude: choice.exclude }),
                }
            }
            Ok((Selection::Selected(rules), left_out))
        }
    }
}

/// Whether the kernel half chooses `pid`, as it can be seen from outside: by what it is now or, where it has ended, by the
/// name that it had, `comm`.
pub(in crate::session) fn chooses(selection: &Selection, pid: Pid, comm: Option<&str>) -> bool {
    let Selection::Selected(rules) = selection else { return true };
    let traits = procfs::traits(pid);
    let comm = traits.as_ref().map(|traits| traits.comm.as_str()).or(comm);
    let has = |property: &Property| match property {
        Property::Comm(name) => {
            comm.is_some_and(|comm| name.as_bytes().get(..15).unwrap_or(name.as_bytes()) == comm.as_bytes())
        }
        Property::User(user) => traits.as_ref().is_some_and(|traits| *user == traits.user),
        Property::Exe { device, inode, .. } => traits.as_ref().is_some_and(|traits| (*device, *inode) == traits.exe),
        Property::Cgroup(id) => procfs::is_in_cgroup(pid, *id).unwrap_or(false),
    };
    let is_excluded = rules.iter().any(|rule| rule.exclude && has(&rule.property));
    let mut includes = rules.iter().filter(|rule| !rule.exclude).peekable();
    let is_included = includes.peek().is_none() || includes.any(|rule| has(&rule.property));
    is_included && !is_excluded
}

fn property(by: &By) -> Result<Property, Error> {
    Ok(match by {
        By::Comm(name) => Property::Comm(name.clone()),
        By::Exe(path) => {
            let file = fs::metadata(path).map_err(|error| unknown(by, &error))?;
            Property::Exe { path: path.clone(), device: file.dev(), inode: file.ino() }
        }
        By::Cgroup(path) => Property::Cgroup(procfs::cgroup_id(path).map_err(|error| unknown(by, &error))?),
        By::User(user) => {
            let id = procfs::user_id(user).map_err(|error| unknown(by, &error))?;
            Property::User(id.ok_or_else(|| unknown(by, &io::Error::from(io::ErrorKind::NotFound)))?)
        }
        By::Pid(pid) => return Err(Error::NoSuchProcess { pid: *pid }),
    })
}

fn unknown(by: &By, error: &io::Error) -> Error {
    let remedy = match by {
        By::Exe(_) => "give the program's whole path, as `readlink /proc/PID/exe` shows it",
        By::Cgroup(_) => "give a group's directory, or its path as `cat /proc/PID/cgroup` shows it behind `0::`",
        By::User(_) => "give a name from /etc/passwd, or a user id",
        By::Comm(_) | By::Pid(_) => "`ps -e` lists all processes",
    };
    let what = match error.kind() {
        io::ErrorKind::NotFound => format!("there is no {}", described(by)),
        _ => format!("{} cannot be looked up: {error}", described(by)),
    };
    Error::NothingSelected { what, remedy: remedy.to_owned() }
}

/// What the choices come to, in words: `all processes`, `the processes of user www-data`.
pub(in crate::session) fn name(choices: &[Choice]) -> String {
    let list = |exclude: bool| {
        let described = choices.iter().filter(|choice| choice.exclude == exclude).map(|choice| described(&choice.by));
        described.collect::<Vec<_>>()
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

fn described(by: &By) -> String {
    match by {
        By::Comm(name) => format!("command {name}"),
        By::Exe(path) => format!("program {}", path.display()),
        By::Cgroup(path) => format!("control group {}", path.display()),
        By::User(user) => format!("user {user}"),
        By::Pid(pid) => format!("pid {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(by: By, exclude: bool) -> Choice {
        Choice { by, exclude }
    }

    #[test]
    fn choices_read_like_a_title() {
        assert_eq!(name(&[]), "all processes");
        let choices = [
            choice(By::User(String::from("www-data")), false),
            choice(By::Comm(String::from("nginx")), false),
            choice(By::Pid(Pid(7)), true),
        ];
        assert_eq!(name(&choices), "the processes of user www-data or command nginx but not of pid 7");
        assert_eq!(name(&choices[2..]), "all processes but not of pid 7");
    }

    #[test]
    fn what_is_not_there_is_said_with_what_to_do() {
        for by in
            [By::User(String::from("nobody-of-that-name")), By::Exe("/no/such".into()), By::Cgroup("no.slice".into())]
        {
            let error = of(&Target::Selected(vec![choice(by.clone(), false)]), true).unwrap_err();
            assert!(matches!(error, Error::NothingSelected { .. }), "{by:?}: {error}");
            assert!(error.remedy().is_some());
        }
    }

    #[test]
    fn whom_the_kernel_half_chooses_is_known() {
        let own = Pid(std::process::id());
        let user = procfs::traits(own).unwrap().user;
        let rule = |property, exclude| Rule { property, exclude };
        let chosen = |rules| chooses(&Selection::Selected(rules), own, None);
        assert!(chosen(vec![]));
        assert!(chosen(vec![rule(Property::User(user), false)]));
        assert!(!chosen(vec![rule(Property::User(user), true)]));
        assert!(!chosen(vec![rule(Property::User(user + 1), false)]));
        let root = procfs::cgroup_id("/".as_ref()).unwrap();
        assert!(chosen(vec![rule(Property::User(user + 1), false), rule(Property::Cgroup(root), false)]));
        let nobody = || vec![rule(Property::Comm(String::from("nobody")), false)];
        assert!(!chosen(nobody()));
        let ended = |comm| chooses(&Selection::Selected(nobody()), Pid(u32::MAX), Some(comm));
        assert!(ended("nobody") && !ended("somebody"));
    }

    #[test]
    fn pids_are_left_out_one_by_one() {
        let choices = vec![choice(By::Pid(Pid(7)), true), choice(By::User(String::from("0")), true)];
        let (selection, left_out) = of(&Target::Selected(choices), true).unwrap();
        assert_eq!(selection, Selection::Selected(vec![Rule { property: Property::User(0), exclude: true }]));
        assert_eq!(left_out, [Pid(7)]);
    }
}
