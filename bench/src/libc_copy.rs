//! Private copies of the C library, so that probes in them affect no other process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

const LIBRARY: &str = "libc.so.6";
const LOADER: &str = "ld-linux-";

/// Copy of the C library and its dynamic linker.
pub(crate) struct LibcCopy {
    folder: PathBuf,
    loader: PathBuf,
}

impl LibcCopy {
    /// Copies the C library and the dynamic linker of this process to `folder`.
    pub(crate) fn make(folder: PathBuf) -> Result<Self> {
        let maps = fs::read_to_string("/proc/self/maps").context("cannot read /proc/self/maps")?;
        let mapped = |name: &str| {
            mapped_file(&maps, name).with_context(|| format!("{name} is not mapped; the benchmarks need glibc"))
        };
        Self::copy(folder, mapped(LIBRARY)?, mapped(LOADER)?)
    }

    /// Copies the C library and the dynamic linker in the folder `source` to `folder`.
    pub(crate) fn make_from(source: &Path, folder: PathBuf) -> Result<Self> {
        let entries = fs::read_dir(source).with_context(|| format!("cannot read {}", source.display()))?;
        let loader = entries.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with(LOADER));
        let loader = loader.with_context(|| format!("no {LOADER} in {}", source.display()))?;
        Self::copy(folder, &source.join(LIBRARY), &loader.path())
    }

    fn copy(folder: PathBuf, library: &Path, loader: &Path) -> Result<Self> {
        let copy = |original: &Path| {
            let copy = folder.join(original.file_name().unwrap_or_default());
            fs::copy(original, &copy).with_context(|| format!("cannot copy {}", original.display()))?;
            Ok::<_, anyhow::Error>(copy)
        };
        copy(library)?;
        let loader = copy(loader)?;
        Ok(Self { folder, loader })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.folder.join(LIBRARY)
    }

    /// Returns the words to put before a command line so that the command runs with this library (ld.so(8)).
    pub(crate) fn launcher(&self) -> [PathBuf; 3] {
        [self.loader.clone(), PathBuf::from("--library-path"), self.folder.clone()]
    }

    /// Returns a command that runs `program` with this library.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let [loader, words @ ..] = self.launcher();
        let mut command = Command::new(loader);
        command.args(words).arg(program);
        command
    }
}

/// Returns the first mapped file with this name. If `name` ends with a dash, it is a prefix.
fn mapped_file<'text>(maps: &'text str, name: &str) -> Option<&'text Path> {
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
    fn mapped_file_is_found_by_name_or_prefix() {
        let maps = "55d0-55d1 r--p 00000000 fe:00 1    /usr/bin/libc.so.6-looker\n\
                    7fdb-7fdc r--p 00000000 fe:00 2    /usr/lib/x86_64-linux-gnu/libc.so.6\n\
                    7fdc-7fdd rw-p 00000000 00:00 0 \n\
                    7fdd-7fde r--p 00000000 fe:00 3    /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2\n";
        assert_eq!(mapped_file(maps, "ld-linux-"), Some(Path::new("/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")));
        assert_eq!(mapped_file(maps, "libc.so.6"), Some(Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6")));
        assert_eq!(mapped_file(maps, "libm.so.6"), None);
    }
}
