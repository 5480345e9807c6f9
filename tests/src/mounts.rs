//! Mounts of this process (proc_pid_mounts(5)).

use std::fs;
use std::path::PathBuf;

pub struct Mount {
    pub path: PathBuf,
    pub fs_type: String,
    options: String,
}

impl Mount {
    #[must_use]
    pub fn has_option(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }
}

/// Returns all mounts. A mount comes after the mount that it hides.
#[must_use]
pub fn list() -> Vec<Mount> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("the mounts can be read");
    let parse = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, path, fs_type, options, ..] = words[..] else { panic!("not a mount: {line}") };
        Mount { path: PathBuf::from(path), fs_type: fs_type.to_owned(), options: options.to_owned() }
    };
    mounts.lines().map(parse).collect()
}
