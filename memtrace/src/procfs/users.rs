//! Names of users, by their numbers: `passwd(5)`. Directory services are not asked: what answers for them are the
//! target's or other programs, which might be those that are traced.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::process::proc_path;
use crate::model::{Pid, User};

/// The host's users.
#[derive(Debug, Default)]
pub(crate) struct Users(HashMap<u32, String>);

impl Users {
    /// Those of `/etc/passwd`; none where it cannot be read.
    pub(crate) fn read() -> Self {
        Self(read(Path::new("/etc/passwd")))
    }

    /// The user with this number, by the name that the host gives it, or else the one that process `pid` sees, as one
    /// in a container may.
    pub(crate) fn user(&self, pid: Pid, uid: u32) -> User {
        let own = || read(&proc_path(pid, "root/etc/passwd")).remove(&uid);
        User { uid, name: self.0.get(&uid).cloned().or_else(own) }
    }
}

fn read(path: &Path) -> HashMap<u32, String> {
    // The file may be a target's own, and anything: a larger one is none.
    const MOST: u64 = 1 << 20;
    let is_small = fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= MOST);
    let text = if is_small { fs::read(path).unwrap_or_default() } else { Vec::new() };
    parse(&String::from_utf8_lossy(&text))
}

/// Lines of `NAME:PASSWORD:UID:…`; the first name of a number counts, as with getpwuid(3).
fn parse(text: &str) -> HashMap<u32, String> {
    let mut users = HashMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(uid)) = (fields.next(), fields.nth(1).and_then(|uid| uid.parse().ok()))
            && !name.is_empty()
        {
            users.entry(uid).or_insert_with(|| name.to_owned());
        }
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_number_and_the_first_counts() {
        let text = "root:x:0:0:root:/root:/bin/bash\ntoor:x:0:0::/:/bin/sh\n\n+nis\n:x:5:\nredis:x:107:114::/var:/bin/false\n\
                    broken:x:many\n";
        let users = parse(text);
        assert_eq!(users, HashMap::from([(0, "root".to_owned()), (107, "redis".to_owned())]));
    }

    #[test]
    fn a_number_without_a_name_is_itself() {
        let user = Users::default().user(Pid(u32::MAX), 4_000_000_000);
        assert_eq!((user.to_string(), user.name), ("4000000000".to_owned(), None));
    }

    #[test]
    fn a_name_that_only_the_process_sees_is_its_own() {
        let user = Users::default().user(Pid(std::process::id()), 0);
        assert_eq!(user.name.as_deref(), Some("root"));
    }
}
