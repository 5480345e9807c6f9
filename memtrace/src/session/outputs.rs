//! Output files: opened before the first probe is placed, filled when the profile is complete.
//!
//! A file is written without a name first and takes its place in one step at the end, so that a reader never sees half a
//! report, an earlier report survives a failed run, and a killed run leaves nothing behind.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use super::config::{Destination, Output};
use super::error::Error;
use crate::model::Profile;
use crate::report;

/// Writes what an output is to hold, in its format; whether that is standard output is told beside it.
pub(super) type Content<'content> = dyn Fn(report::Format, bool, &mut dyn Write) -> io::Result<()> + 'content;

/// Outputs that can be written.
pub(super) struct Outputs(Vec<Open>);

struct Open {
    format: report::Format,
    sink: Sink,
}

enum Sink {
    Stdout,
    /// A pipe, terminal or device: written to as it is.
    Device {
        path: PathBuf,
        file: File,
    },
    /// A file without a name yet, in the folder of `path`.
    Unnamed {
        path: PathBuf,
        file: File,
    },
    /// As above, under a name of its own, where the file system has no files without a name.
    Named {
        path: PathBuf,
        file: File,
        temporary: Temporary,
    },
}

/// A file that is removed unless it takes its place.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // It may have taken its place, in which case there is nothing under this name.
        let _ = fs::remove_file(&self.0);
    }
}

impl Outputs {
    /// Opens every output, or none.
    pub(super) fn open(outputs: &[Output]) -> Result<Self, Error> {
        outputs.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Writes the profile to every output, and returns the paths of the files written. What fails does not keep the
    /// others from being written; the first failure is returned.
    pub(super) fn write(self, profile: &Profile, options: &report::Options) -> (Vec<PathBuf>, Option<Error>) {
        self.fill(&|format, _, out| report::write(format, profile, options, out))
    }

    /// As [`Self::write`], whatever is written: `content` is given the format, and whether it goes to standard output.
    pub(super) fn fill(self, content: &Content<'_>) -> (Vec<PathBuf>, Option<Error>) {
        let mut written = Vec::new();
        let mut failure = None;
        for output in self.0 {
            let path = output.sink.path().to_owned();
            match output.write(content) {
                Ok(()) if path.as_os_str() == "-" => {}
                Ok(()) => written.push(path),
                Err(source) => failure = failure.or(Some(Error::Failed(cannot_write(&path, &source)))),
            }
        }
        (written, failure)
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("the report could not be written to {}: {error}", path.display())
}

fn open(output: &Output) -> Result<Open, Error> {
    let sink = match &output.destination {
        Destination::Stdout => Sink::Stdout,
        Destination::File(path) => open_file(path).map_err(|source| Error::Output { path: path.clone(), source })?,
    };
    Ok(Open { format: output.format, sink })
}

fn open_file(path: &Path) -> io::Result<Sink> {
    // Through links, so that the file behind a link is replaced and not the link.
    let path = match fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(error),
    };
    if let Ok(metadata) = fs::metadata(&path) {
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        if kind.is_char_device() || kind.is_fifo() || kind.is_block_device() || kind.is_socket() {
            let file = OpenOptions::new().write(true).open(&path)?;
            return Ok(Sink::Device { path, file });
        }
        // Replacing needs only the folder; a file that may not be written to is not replaced all the same.
        OpenOptions::new().write(true).open(&path)?;
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).mode(0o644).open(folder) {
        Ok(file) => Ok(Sink::Unnamed { path, file }),
        // What file systems and kernels without O_TMPFILE answer (open(2)).
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) => {
            let temporary = temporary_beside(&path);
            let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&temporary)?;
            Ok(Sink::Named { path, file, temporary: Temporary(temporary) })
        }
        Err(error) => Err(error),
    }
}

fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.partial", std::process::id()));
    path.with_file_name(name)
}

impl Sink {
    fn path(&self) -> &Path {
        match self {
            Self::Stdout => Path::new("-"),
            Self::Device { path, .. } | Self::Unnamed { path, .. } | Self::Named { path, .. } => path,
        }
    }
}

impl Open {
    fn write(self, content: &Content<'_>) -> io::Result<()> {
        let to_file = |out: &mut dyn Write| content(self.format, false, out);
        match self.sink {
            Sink::Stdout => {
                let mut out = BufWriter::new(io::stdout().lock());
                let written = content(self.format, true, &mut out).and_then(|()| out.flush());
                // Whoever read it has seen enough, as with `| head`.
                written.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
            }
            Sink::Device { file, .. } => fill(to_file, file).map(drop),
            Sink::Unnamed { path, file } => {
                let file = fill(to_file, file)?;
                let temporary = Temporary(temporary_beside(&path));
                link(&file, &temporary.0)?;
                fs::rename(&temporary.0, &path)
            }
            Sink::Named { path, file, temporary } => {
                fill(to_file, file)?;
                fs::rename(&temporary.0, &path)
            }
        }
    }
}

fn fill(content: impl Fn(&mut dyn Write) -> io::Result<()>, file: File) -> io::Result<File> {
    let mut out = BufWriter::new(file);
    content(&mut out)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    give_to_user(&file);
    Ok(file)
}

/// Under sudo, the report belongs to who asked for it.
fn give_to_user(file: &File) {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    if let (Some(user), Some(group)) = (number("SUDO_UID"), number("SUDO_GID")) {
        // Where that is not possible the report is root's, which is no reason to fail.
        let _ = fchown(file, Some(user), Some(group));
    }
}

/// Gives a file without a name the name `path`, as open(2) describes it for O_TMPFILE.
fn link(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both strings end with a zero and live through the call.
    let result =
        unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{GroupBy, Metric};
    use crate::report::Format;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("memtrace-outputs-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        folder
    }

    fn to_file(path: &Path) -> Vec<Output> {
        vec![Output { destination: Destination::File(path.to_owned()), format: Format::Folded }]
    }

    fn options() -> report::Options {
        report::Options { metric: Metric::LiveBytes, by: GroupBy::Process, top: 10, subject: String::from("nothing") }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_only_when_it_is_complete() {
        let folder = folder("appears");
        let path = folder.join("report.folded");
        let outputs = Outputs::open(&to_file(&path)).unwrap();
        assert_eq!(names(&folder), [""; 0]);
        let (written, failure) = outputs.write(&Profile::default(), &options());
        assert!(failure.is_none());
        assert_eq!(written, [path]);
        assert_eq!(names(&folder), ["report.folded"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_earlier_report_survives_a_run_that_failed() {
        let folder = folder("survives");
        let path = folder.join("report.folded");
        fs::write(&path, "earlier").unwrap();
        drop(Outputs::open(&to_file(&path)).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "earlier");
        assert_eq!(names(&folder), ["report.folded"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_cannot_be_written_is_found_at_once() {
        let folder = folder("found");
        let missing = folder.join("missing/report.folded");
        assert!(matches!(Outputs::open(&to_file(&missing)), Err(Error::Output { path, .. }) if path == missing));
        assert!(matches!(Outputs::open(&to_file(&folder)), Err(Error::Output { .. })));
        fs::remove_dir_all(&folder).unwrap();
    }
}
