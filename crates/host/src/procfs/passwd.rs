//! User names from passwd(5). Directory services are not queried: their daemons may be among the traced processes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use memtrace_model::{Pid, User};

use super::process::proc_path;
use crate::target_files::{open_below, open_target_file};

/// The file with the names.
const FILE: &str = "/etc/passwd";

/// Names of the host's users by uid.
#[derive(Debug, Default)]
pub(super) struct Users(HashMap<u32, String>);

impl Users {
    /// Reads `/etc/passwd`. If it cannot be read, no user has a name.
    pub(super) fn read() -> Self {
        Self(read(open_target_file(Path::new(FILE))))
    }

    /// Returns a user with its name on the host.
    pub(super) fn of_host(&self, uid: u32) -> User {
        User { uid, name: self.0.get(&uid).cloned() }
    }

    /// Returns a user with its name on the host, or else with its name in the root directory of the process `pid`, such
    /// as the root of a container.
    pub(super) fn user(&self, pid: Pid, uid: u32) -> User {
        let own = || read(open_below(&proc_path(pid, "root"), Path::new(FILE))).remove(&uid);
        User { uid, name: self.0.get(&uid).cloned().or_else(own) }
    }
}

fn read(file: io::Result<File>) -> HashMap<u32, String> {
    // The file of a container can have any content, so a large file is ignored.
    const MAX_SIZE: u64 = 1 << 20;
    let mut text = Vec::new();
    match file.and_then(|file| file.take(MAX_SIZE + 1).read_to_end(&mut text)) {
        Ok(length) if length as u64 <= MAX_SIZE => parse(&String::from_utf8_lossy(&text)),
        _ => HashMap::new(),
    }
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
    use std::fs;
    use std::os::unix::fs::symlink;

    use harness::Scratch;

    use super::*;

    #[test]
    fn links_of_a_container_do_not_lead_out_of_its_root() {
        let scratch = Scratch::new();
        let root = scratch.subdirectory("root");
        fs::create_dir(root.join("etc")).unwrap();
        fs::write(scratch.path("names"), "host:x:7:\n").unwrap();
        let names = || read(open_below(&root, Path::new(FILE)));
        symlink(scratch.path("names"), root.join("etc/passwd")).unwrap();
        assert_eq!(names(), HashMap::new());
        fs::write(root.join("names"), "own:x:7:\n").unwrap();
        fs::remove_file(root.join("etc/passwd")).unwrap();
        symlink("/names", root.join("etc/passwd")).unwrap();
        assert_eq!(names(), HashMap::from([(7, String::from("own"))]));
        fs::write(root.join("names"), "a:x:1:\n".repeat(1 << 18)).unwrap();
        assert_eq!(names(), HashMap::new(), "too large");
        fs::remove_file(root.join("etc/passwd")).unwrap();
        scratch.pipe("root/etc/passwd");
        assert_eq!(names(), HashMap::new(), "a pipe");
    }

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
