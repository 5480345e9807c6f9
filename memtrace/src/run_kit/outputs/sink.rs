//! Files of outputs, without a name until they are complete.

use std::ffi::{CString, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use memtrace_host::procfs;

/// An open output.
pub(super) enum Sink {
    Stdout,
    /// A pipe, terminal or device, which is written in place.
    Device {
        path: PathBuf,
        file: File,
    },
    /// A file without a name, in the directory of `path`.
    Unnamed {
        path: PathBuf,
        file: File,
    },
    /// A file with a temporary name, if the file system has no `O_TMPFILE`.
    Named {
        path: PathBuf,
        file: File,
        temporary: Temporary,
    },
}

/// A temporary file. Dropping it removes the file, unless it was renamed.
pub(super) struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename, no file has this name.
        let _ = fs::remove_file(&self.0);
    }
}

impl Sink {
    /// Opens the output at `path`. A regular file gets this name only in [`Self::publish`].
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // Resolve links: the file is replaced, not the link.
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
                return Ok(Self::Device { path, file });
            }
            // Fail if the file is read-only. A rename would replace it, because it needs write access to the directory
            // only.
            OpenOptions::new().write(true).open(&path)?;
        }
        let directory = match path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        match OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).mode(0o644).open(directory) {
            Ok(file) => Ok(Self::Unnamed { path, file }),
            // File system or kernel without O_TMPFILE (open(2)).
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) => {
                let temporary = temporary_path(&path);
                let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&temporary)?;
                Ok(Self::Named { path, file, temporary: Temporary(temporary) })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the path of the output; `-` for standard output.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Stdout => Path::new("-"),
            Self::Device { path, .. } | Self::Unnamed { path, .. } | Self::Named { path, .. } => path,
        }
    }

    /// Gives the file its name. Devices and standard output need none.
    pub(super) fn publish(self) -> io::Result<()> {
        match self {
            Self::Stdout | Self::Device { .. } => Ok(()),
            Self::Unnamed { path, file } => {
                let temporary = Temporary(temporary_path(&path));
                link(&file, &temporary.0)?;
                fs::rename(&temporary.0, &path)
            }
            Self::Named { path, temporary, .. } => fs::rename(&temporary.0, &path),
        }
    }
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.partial", std::process::id()));
    path.with_file_name(name)
}

/// Links a file without a name to `path`; see O_TMPFILE in open(2).
fn link(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(procfs::descriptor_path(file).into_os_string().into_vec())?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both strings are NUL-terminated and live through the call.
    let result =
        unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
