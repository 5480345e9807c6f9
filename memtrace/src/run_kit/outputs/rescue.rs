//! Rescue files: reports that could not be written to their outputs.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::{env, process};

use memtrace_model::printable;

use super::content::fill;
use super::sink::random_number;

/// Maximum number of file names to try in a directory. Another user can have taken the first name in `/tmp`, but cannot guess
/// the others, which are random.
const MOST_NAMES: u32 = 16;

/// Returns the directories for rescue files, in order of preference: `$XDG_STATE_HOME` (XDG Base Directory
/// Specification 0.8), then the directories for temporary files.
pub(super) fn directories() -> Vec<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    state.into_iter().chain([PathBuf::from("/var/tmp"), env::temp_dir()]).collect()
}

/// Writes a report to a new file, in the first of `directories` where this succeeds. Returns the path of the file. The name
/// consists of `output` and `extension`.
pub(super) fn write(
    directories: &[PathBuf],
    output: &Path,
    extension: &str,
    content: impl Fn(&mut dyn Write) -> io::Result<()>,
) -> Option<PathBuf> {
    directories.iter().find_map(|directory| {
        let (path, file) = create(directory, output, extension)?;
        match fill(&content, &file) {
            Ok(()) => Some(path),
            Err(error) => {
                log::warn!("cannot write {} either: {error}", printable(&path));
                // An incomplete file is useless.
                let _ = fs::remove_file(&path);
                None
            }
        }
    })
}

/// Creates a file that only its owner can read. Does not follow a link that another user has placed.
fn create(directory: &Path, output: &Path, extension: &str) -> Option<(PathBuf, File)> {
    (1..=MOST_NAMES).find_map(|number| {
        let path = directory.join(name(output, extension, number));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).custom_flags(libc::O_NOFOLLOW).mode(0o600);
        options.open(&path).ok().map(|file| (path, file))
    })
}

/// Returns the name of a rescue file, such as `memtrace-4711-live.svg`. From the second `number` on, the name contains a random
/// number.
fn name(output: &Path, extension: &str, number: u32) -> OsString {
    let mut name = OsString::from(format!("memtrace-{}-", process::id()));
    // Standard output is `-`, which is no name for a file.
    let stem = output.file_stem().filter(|stem| *stem != "-");
    name.push(stem.unwrap_or("report".as_ref()));
    if number > 1 {
        name.push(format!("-{:016x}", random_number()));
    }
    name.push(format!(".{extension}"));
    name
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use harness::Scratch;

    use super::*;

    fn report(out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"report")
    }

    #[test]
    fn rescue_file_is_new_private_and_follows_no_link() {
        let scratch = Scratch::new();
        let other = scratch.join("other");
        let first = scratch.join(name(Path::new("a/live.svg"), "svg", 1));
        symlink(&other, &first).unwrap();
        let path = write(&[scratch.to_path_buf()], Path::new("a/live.svg"), "svg", report).unwrap();
        let found = path.file_name().unwrap().to_string_lossy();
        assert!(found.starts_with(&format!("memtrace-{}-live-", process::id())) && found.ends_with(".svg"), "{found}");
        assert!(!other.exists());
        let metadata = fs::symlink_metadata(&path).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.len()), (0o600, 6));
        assert!(metadata.is_file());
    }

    #[test]
    fn directory_that_fails_leaves_no_file() {
        let scratch = Scratch::new();
        let directories = [scratch.join("missing"), scratch.to_path_buf()];
        let failing = |_: &mut dyn Write| Err(io::ErrorKind::StorageFull.into());
        assert_eq!(write(&directories, Path::new("-"), "json", failing), None);
        assert_eq!(fs::read_dir(&*scratch).unwrap().count(), 0);
        let path = write(&directories, Path::new("-"), "json", report).unwrap();
        assert_eq!(path, scratch.join(format!("memtrace-{}-report.json", process::id())));
    }
}
