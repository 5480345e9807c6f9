//! User names from passwd(5). Directory services are not queried: their daemons may be among the traced processes.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use memtrace_model::{Pid, User};

use super::process::proc_path;

/// Names of the host's users by uid.
#[derive(Debug, Default)]
pub(super) struct Users(HashMap<u32, String>);

impl Users {
    /// Reads `/etc/passwd`. If it cannot be read, no user has a name.
    pub(super) fn read() -> Self {
        Self(read(Path::new("/etc/passwd")))
    }

    /// Returns a user with its name on the host.
    pub(super) fn of_host(&self, uid: u32) -> User {
        User { uid, name: self.0.get(&uid).cloned() }
    }

    /// Returns a user with its name on the host, or else with its name in the root directory of the process `pid`, such
    /// as the root of a container.
    pub(super) fn user(&self, pid: Pid, uid: u32) -> User {
        let own = || read(&proc_path(pid, "root/etc/passwd")).remove(&uid);
        User { uid, name: self.0.get(&uid).cloned().or_else(own) }
    }
}

fn read(path: &Path) -> HashMap<u32, String> {
    // The file of a container can have any content, so a large one is ignored.
    const MAX_SIZE: u64 = 1 << 20;
    let is_small = fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= MAX_SIZE);
    let text = if is_small { fs::read(path).unwrap_or_default() } else { Vec::new() };
    parse(&String::from_utf8_lossy(&text))
}

/// Parses lines of `NAME:PASSWORD:UID:…`. The first name of a uid counts, as in getpwuid(3).
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
    fn the_first_name_of_a_uid_counts() {
        let text = "root:x:0:0:root:/root:/bin/bash\ntoor:x:0:0::/:/bin/sh\n\n+nis\n:x:5:\nredis:x:107:114::/var:/bin/false\n\
                    broken:x:many\n";
        let users = parse(text);
        assert_eq!(users, HashMap::from([(0, "root".to_owned()), (107, "redis".to_owned())]));
    }

    #[test]
    fn a_uid_without_a_name_is_shown_as_a_number() {
        let user = Users::default().user(Pid(u32::MAX), 4_000_000_000);
        assert_eq!((user.to_string(), user.name), ("4000000000".to_owned(), None));
    }

    #[test]
    fn a_name_in_the_processs_root_directory_counts() {
        let user = Users::default().user(Pid(std::process::id()), 0);
        assert_eq!(user.name.as_deref(), Some("root"));
    }
}
