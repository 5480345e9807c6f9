//! What is mounted, as proc(5) lists it.

use std::fs;
use std::path::PathBuf;

/// A mount.
pub struct Mount {
    /// Where it lies.
    pub point: PathBuf,
    /// The kind of its file system.
    pub kind: String,
    options: String,
}

impl Mount {
    /// Whether it was mounted with the option.
    #[must_use]
    pub fn has_option(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }
}

/// Every mount that this process sees; one that lies over another comes after it.
///
/// # Panics
///
/// If they cannot be read.
#[must_use]
pub fn all() -> Vec<Mount> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts are listed");
    let mount = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, point, kind, options, ..] = words[..] else { panic!("not a mount: {line}") };
        Mount { point: PathBuf::from(point), kind: kind.to_owned(), options: options.to_owned() }
    };
    mounts.lines().map(mount).collect()
}
