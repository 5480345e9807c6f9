//! A C library of a target's own: a copy of the system's, in a file that nobody else maps.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

const LIBRARY: &str = "libc.so.6";
const LOADER: &str = "ld-linux-";

/// Copies of the C library and of the dynamic linker that fits it, in a folder of their own.
pub(crate) struct LibcCopy {
    folder: PathBuf,
    loader: PathBuf,
}

impl LibcCopy {
    /// Copies both into `folder`.
    pub(crate) fn make(folder: PathBuf) -> Result<Self> {
        // This program runs on the very same ones.
        let maps = fs::read_to_string("/proc/self/maps").context("cannot see this program's own libraries")?;
        let copy = |name: &str| {
            let original = mapped(&maps, name).with_context(|| format!("this system has no {name}, as glibc has"))?;
            let copy = folder.join(original.file_name().unwrap_or_default());
            fs::copy(original, &copy).with_context(|| format!("cannot copy {}", original.display()))?;
            Ok::<_, anyhow::Error>(copy)
        };
        copy(LIBRARY)?;
        let loader = copy(LOADER)?;
        Ok(Self { folder, loader })
    }

    /// The folder that they lie in.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The C library.
    pub(crate) fn library(&self) -> PathBuf {
        self.folder.join(LIBRARY)
    }

    /// The words before a program's own that run it with this library (ld.so(8)).
    pub(crate) fn words(&self) -> [PathBuf; 3] {
        [self.loader.clone(), PathBuf::from("--library-path"), self.folder.clone()]
    }

    /// A command that runs `program` with this library.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let [loader, words @ ..] = self.words();
        let mut command = Command::new(loader);
        command.args(words).arg(program);
        command
    }
}

/// The first mapped file of that name, or whose name begins so where `name` ends with a dash.
fn mapped<'text>(maps: &'text str, name: &str) -> Option<&'text Path> {
    let mut paths = maps.lines().filter_map(|line| Some(Path::new(&line[line.find('/')?..])));
    paths.find(|path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file == name || name.ends_with('-') && file.starts_with(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_found_among_what_is_mapped() {
        let maps = "55d0-55d1 r--p 00000000 fe:00 1    /usr/bin/libc.so.6-looker\n\
                    7fdb-7fdc r--p 00000000 fe:00 2    /usr/lib/x86_64-linux-gnu/libc.so.6\n\
                    7fdc-7fdd rw-p 00000000 00:00 0 \n\
                    7fdd-7fde r--p 00000000 fe:00 3    /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2\n";
        assert_eq!(mapped(maps, "ld-linux-"), Some(Path::new("/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")));
        assert_eq!(mapped(maps, "libc.so.6"), Some(Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6")));
        assert_eq!(mapped(maps, "libm.so.6"), None);
    }
}
