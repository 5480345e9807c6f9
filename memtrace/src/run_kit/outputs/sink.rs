//! Files of outputs, without a name until they are complete.

use std::ffi::{CString, OsString};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use memtrace_host::procfs;
use memtrace_model::printable;

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

impl Temporary {
    /// Creates a file with a temporary name. Fails if the name exists, even as a symbolic link (`O_EXCL`, open(2)).
    fn create(path: PathBuf) -> io::Result<(Self, File)> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path)?;
        Ok((Self(path), file))
    }

    /// Gives a file without a name a temporary name. Fails if the name exists (linkat(2)).
    fn link(path: PathBuf, file: &File) -> io::Result<Self> {
        link(file, &path)?;
        Ok(Self(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a rename, no file has this name, and the call fails.
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns the path of a file to write, without symbolic links. The file itself need not exist.
///
/// # Errors
///
/// [`io::ErrorKind::PermissionDenied`] if the file, or a link in the path, belongs to another user and is in a directory with
/// the sticky bit; errors of stat(2) and readlink(2).
pub(crate) fn checked_path(path: &Path) -> io::Result<PathBuf> {
    let path = follow_links(path)?;
    if let Ok(existing) = fs::metadata(&path) {
        check_owner(&path, &existing)?;
    }
    Ok(path)
}

impl Sink {
    /// Opens the output at `path`. A regular file gets this name only in [`Self::publish`].
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // The file is replaced, not a link to it.
        let path = follow_links(path)?;
        let existing = fs::metadata(&path).ok();
        if let Some(metadata) = &existing {
            let kind = metadata.file_type();
            if kind.is_dir() {
                return Err(io::Error::from(io::ErrorKind::IsADirectory));
            }
            check_owner(&path, metadata)?;
            if kind.is_char_device() || kind.is_fifo() || kind.is_block_device() || kind.is_socket() {
                let file = OpenOptions::new().write(true).open(&path)?;
                return Ok(Self::Device { path, file });
            }
            // Fail if the file is read-only. A rename would replace it, because a rename needs write access to the directory
            // only. `O_NONBLOCK`: another user can have replaced the file by a pipe, and the open would wait for a reader.
            OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
        }
        let directory = match path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        let sink = match OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).mode(0o644).open(directory) {
            Ok(file) => Self::Unnamed { path, file },
            // File system or kernel without O_TMPFILE (open(2)).
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) => {
                let (temporary, file) = Temporary::create(temporary_path(&path))?;
                Self::Named { path, file, temporary }
            }
            Err(error) => return Err(error),
        };
        if let (Some(existing), Self::Unnamed { file, .. } | Self::Named { file, .. }) = (&existing, &sink) {
            keep_owner_and_mode(file, existing)?;
        }
        Ok(sink)
    }

    /// Returns the path of the output; `-` for standard output.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Stdout => Path::new("-"),
            Self::Device { path, .. } | Self::Unnamed { path, .. } | Self::Named { path, .. } => path,
        }
    }

    /// Returns a duplicate descriptor of the file.
    ///
    /// # Errors
    ///
    /// The output is standard output, or too many files are open.
    pub(super) fn file(&self) -> io::Result<File> {
        match self {
            Self::Stdout => Err(io::ErrorKind::Unsupported.into()),
            Self::Device { file, .. } | Self::Unnamed { file, .. } | Self::Named { file, .. } => file.try_clone(),
        }
    }

    /// Gives the file its name. Devices and standard output need none.
    pub(super) fn publish(self) -> io::Result<()> {
        match self {
            Self::Stdout | Self::Device { .. } => Ok(()),
            Self::Unnamed { path, file } => {
                let temporary = Temporary::link(temporary_path(&path), &file)?;
                fs::rename(&temporary.0, &path)
            }
            Self::Named { path, temporary, .. } => fs::rename(&temporary.0, &path),
        }
    }
}

/// Returns the path without symbolic links. The last part need not exist.
///
/// Refuses a link that another user has put into a directory with the sticky bit, such as `/tmp`: memtrace can write all files,
/// so the link could lead it to any file. With `fs.protected_symlinks`, the kernel refuses to follow such a link
/// (`may_follow_link`, fs/namei.c). But this function reads the links, which the kernel permits.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    /// Maximum number of links in a path (`MAXSYMLINKS`, include/linux/namei.h).
    const MAX_LINKS: usize = 40;
    let mut resolved = if path.is_absolute() { PathBuf::from("/") } else { std::env::current_dir()? };
    let mut rest: Vec<OsString> = parts(path);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        match part.as_bytes() {
            b"/" => resolved = PathBuf::from("/"),
            b"." => {}
            b".." => _ = resolved.pop(),
            _ => {
                let next = resolved.join(&part);
                match fs::symlink_metadata(&next) {
                    // The text of such a link is no path, as in `pipe:[123]`, so it is not followed.
                    Ok(link) if link.is_symlink() && is_descriptor(&next) => resolved = next,
                    Ok(link) if link.is_symlink() => {
                        check_link(&next, &link, &fs::metadata(&resolved)?)?;
                        links += 1;
                        if links > MAX_LINKS {
                            return Err(io::Error::from_raw_os_error(libc::ELOOP));
                        }
                        rest.extend(parts(&fs::read_link(&next)?));
                    }
                    Ok(_) => resolved = next,
                    Err(error) if error.kind() == io::ErrorKind::NotFound && rest.is_empty() => resolved = next,
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(resolved)
}

/// Returns the parts of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// Returns true if `link` is the procfs link of a descriptor of a pipe, a socket or a deleted file. The kernel follows such a
/// link without its text (proc_pid_fd(5)).
fn is_descriptor(link: &Path) -> bool {
    let target = fs::read_link(link).map(|target| link.parent().unwrap_or(link).join(target));
    target.is_ok_and(|target| link.exists() && !target.exists())
}

/// Refuses a link of another user in a directory with the sticky bit.
fn check_link(path: &Path, link: &Metadata, directory: &Metadata) -> io::Result<()> {
    if is_of_another_user(link, directory) { Err(refused(path, "link")) } else { Ok(()) }
}

/// Refuses a file of another user in a directory with the sticky bit, because this user could change the report. The kernel
/// does the same for `O_CREAT` (`fs.protected_regular`).
fn check_owner(path: &Path, file: &Metadata) -> io::Result<()> {
    let directory = fs::metadata(path.parent().unwrap_or(path))?;
    if is_of_another_user(file, &directory) { Err(refused(path, "file")) } else { Ok(()) }
}

/// Returns true if an entry of a directory with the sticky bit belongs neither to memtrace nor to the directory's owner.
fn is_of_another_user(entry: &Metadata, directory: &Metadata) -> bool {
    // SAFETY: the call only reads the credentials of the process.
    let own = unsafe { libc::geteuid() };
    directory.mode() & libc::S_ISVTX != 0 && ![own, directory.uid()].contains(&entry.uid())
}

fn refused(path: &Path, kind: &str) -> io::Error {
    let message = format!("{} is a {kind} of another user in a directory with the sticky bit", printable(path));
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

/// Gives a file the owner and the mode of the file that it replaces. If the owner cannot be kept, the group and others get no
/// right to write.
fn keep_owner_and_mode(file: &File, existing: &Metadata) -> io::Result<()> {
    const USUAL: u32 = 0o644;
    let mode = existing.mode() & 0o777;
    let mode = match fchown(file, Some(existing.uid()), Some(existing.gid())) {
        Ok(()) => mode,
        Err(error) => {
            log::debug!("the owner of the output changes: {error}");
            mode & USUAL
        }
    };
    file.set_permissions(Permissions::from_mode(mode))
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    // Another user of the directory must not be able to guess the name.
    name.push(format!(".{:016x}.partial", random_number()));
    path.with_file_name(name)
}

/// Returns a number that other processes cannot guess.
pub(super) fn random_number() -> u64 {
    RandomState::new().hash_one(std::process::id())
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::os::unix::fs::{lchown, symlink};

    use harness::Scratch;
    use harness::fixtures::assert_root;

    use super::*;

    #[test]
    fn links_are_followed_to_the_file() {
        let scratch = Scratch::new();
        let _ = scratch.subdirectory("directory");
        fs::write(scratch.path("directory/file"), "").unwrap();
        symlink("directory", scratch.path("link")).unwrap();
        symlink("../link/./file", scratch.path("directory/other")).unwrap();
        let file = scratch.path("directory/file");
        for path in ["directory/file", "link/file", "link/other", "directory/../link/file"] {
            assert_eq!(follow_links(&scratch.path(path)).unwrap(), file, "{path}");
        }
        assert_eq!(follow_links(&scratch.path("link/new")).unwrap(), scratch.path("directory/new"));
        assert_eq!(follow_links(&scratch.path("no/new")).unwrap_err().kind(), io::ErrorKind::NotFound);
        symlink("loop", scratch.path("loop")).unwrap();
        assert_eq!(follow_links(&scratch.path("loop")).unwrap_err().raw_os_error(), Some(libc::ELOOP));
    }

    #[test]
    fn privileged_link_of_another_user_in_a_sticky_directory_is_refused() {
        assert_root();
        let scratch = Scratch::new();
        let directory = scratch.subdirectory("sticky");
        let link = directory.join("memtrace.svg");
        fs::write(scratch.path("secret"), "").unwrap();
        symlink(scratch.path("secret"), &link).unwrap();
        let opened = |mode, owner| {
            fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
            lchown(&link, Some(owner), None).unwrap();
            Sink::open(&link).map(drop).map_err(|error| error.kind())
        };
        assert_eq!(opened(0o1777, 0), Ok(()));
        assert_eq!(opened(0o0755, 65534), Ok(()));
        assert_eq!(opened(0o1777, 65534), Err(io::ErrorKind::PermissionDenied));
        fs::remove_file(&link).unwrap();
        fs::write(&link, "").unwrap();
        assert_eq!(opened(0o1777, 0), Ok(()));
        assert_eq!(opened(0o1777, 65534), Err(io::ErrorKind::PermissionDenied));
        assert_eq!(opened(0o0755, 65534), Ok(()));
    }

    #[test]
    fn privileged_pipe_of_another_user_in_a_sticky_directory_is_not_opened() {
        assert_root();
        let scratch = Scratch::new();
        let pipe = scratch.pipe("pipe");
        lchown(&pipe, Some(65534), None).unwrap();
        fs::set_permissions(scratch.path(""), Permissions::from_mode(0o1777)).unwrap();
        // An open would wait for a reader.
        assert_eq!(Sink::open(&pipe).map(drop).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(checked_path(&pipe).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(checked_path(&scratch.path("new")).unwrap(), scratch.path("new"));
    }

    #[test]
    fn pipes_of_descriptors_are_written_in_place() {
        let (mut reader, writer) = io::pipe().unwrap();
        let path = procfs::descriptor_path(&writer);
        let Sink::Device { mut file, .. } = Sink::open(&path).unwrap() else { panic!("a pipe is a device") };
        io::Write::write_all(&mut file, b"report").unwrap();
        drop((file, writer));
        let mut text = String::new();
        io::Read::read_to_string(&mut reader, &mut text).unwrap();
        assert_eq!(text, "report");
    }

    #[test]
    fn file_of_a_descriptor_is_replaced() {
        let scratch = Scratch::new();
        let file = File::create(scratch.path("report")).unwrap();
        assert_eq!(Sink::open(&procfs::descriptor_path(&file)).unwrap().path(), scratch.path("report"));
    }

    /// Returns the names in a directory, with the content of each regular file.
    fn contents(directory: &Path) -> Vec<(OsString, Option<Vec<u8>>)> {
        let content = |path: &Path| fs::symlink_metadata(path).unwrap().is_file().then(|| fs::read(path).unwrap());
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let mut all: Vec<_> = entries.map(|path| (path.file_name().unwrap().to_owned(), content(&path))).collect();
        all.sort();
        all
    }

    #[test]
    fn temporary_name_that_is_taken_is_never_followed() {
        let scratch = Scratch::in_memory();
        fs::write(scratch.path("secret"), "content").unwrap();
        let taken = ["file", "link", "hard-link", "dangling", "directory", "pipe"].map(|name| scratch.path(name));
        let [file, to_secret, hard_link, dangling, directory, _] = &taken;
        fs::write(file, "taken").unwrap();
        symlink(scratch.path("secret"), to_secret).unwrap();
        fs::hard_link(scratch.path("secret"), hard_link).unwrap();
        symlink(scratch.path("new"), dangling).unwrap();
        fs::create_dir(directory).unwrap();
        scratch.pipe("pipe");
        let unnamed = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).mode(0o644).open(scratch.path(""));
        let unnamed = unnamed.unwrap();
        let before = contents(&scratch);
        for path in &taken {
            let created = Temporary::create(path.clone()).map(drop).map_err(|error| error.kind());
            assert_eq!(created, Err(io::ErrorKind::AlreadyExists), "{path:?}");
            let linked = Temporary::link(path.clone(), &unnamed).map(drop).map_err(|error| error.kind());
            assert_eq!(linked, Err(io::ErrorKind::AlreadyExists), "{path:?}");
            assert_eq!(contents(&scratch), before, "{path:?}");
        }
    }

    #[test]
    fn temporary_names_are_not_repeated() {
        let path = Path::new("/directory/report.svg");
        let names: HashSet<_> = (0..1000).map(|_| temporary_path(path)).collect();
        assert_eq!(names.len(), 1000);
        let is_beside = |name: &PathBuf| {
            let text = name.file_name().unwrap().to_string_lossy();
            name.parent() == path.parent() && text.starts_with(".report.svg.") && text.ends_with(".partial")
        };
        assert!(names.iter().all(is_beside));
    }

    #[test]
    fn existing_file_keeps_its_mode() {
        let scratch = Scratch::new();
        let path = scratch.path("report");
        for mode in [0o600, 0o664] {
            fs::write(&path, "earlier").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            Sink::open(&path).unwrap().publish().unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
            assert_eq!(fs::read(&path).unwrap(), b"");
        }
    }
}
