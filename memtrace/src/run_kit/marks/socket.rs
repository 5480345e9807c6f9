//! Sockets of running traces, and their directory.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use memtrace_host::procfs;
use memtrace_model::{Pid, printable};

/// File name extension of the sockets.
pub(super) const EXTENSION: &str = "sock";

/// Returns the effective user ID of this process.
pub(super) fn own_uid() -> u32 {
    // SAFETY: the call has no conditions and cannot fail (geteuid(2)).
    unsafe { libc::geteuid() }
}

/// Returns the directory of the sockets of this user.
pub(super) fn directory() -> PathBuf {
    let uid = own_uid();
    let parent = match std::env::var_os("XDG_RUNTIME_DIR") {
        // sudo can keep `XDG_RUNTIME_DIR` of the calling user, so root does not use it.
        _ if uid == 0 => PathBuf::from("/run"),
        Some(path) if Path::new(&path).is_absolute() => path.into(),
        _ => PathBuf::from(format!("/run/user/{uid}")),
    };
    parent.join("memtrace")
}

/// Listens on a socket of this process in the directory of this user.
pub(super) fn listen_in_directory() -> io::Result<(UnixListener, PathBuf)> {
    let directory = directory();
    create_private(&directory)?;
    remove_stale(&directory);
    let path = directory.join(format!("{}.{EXTENSION}", std::process::id()));
    Ok((listen(&path)?, path))
}

/// Listens on `path`. Only this user can connect. Replaces the socket of a killed process.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
            fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        result => result?,
    };
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns true if `path` is a socket without a listener.
fn is_stale(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    is_socket && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Removes the sockets of traces that were killed. A socket that cannot be removed does no harm.
fn remove_stale(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sockets = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == EXTENSION));
    // The trace can be in another pid namespace. So a missing process does not prove that the socket is stale.
    let has_no_process = |path: &PathBuf| {
        let pid = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        pid.is_some_and(|pid| !procfs::proc_path(Pid(pid), "").exists())
    };
    for path in sockets.filter(has_no_process).filter(|path| is_stale(path)) {
        if let Err(error) = fs::remove_file(&path) {
            log::debug!("cannot remove {}: {error}", printable(&path));
        }
    }
}

/// Creates a directory that no other user can change or search. Fails if another user can use an existing directory.
fn create_private(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = fs::symlink_metadata(directory)?;
    if metadata.is_dir() && metadata.uid() == own_uid() && metadata.mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(io::Error::other("the directory belongs to another user, or others can use it"))
    }
}

#[cfg(test)]
mod tests {
    use harness::Scratch;

    use super::*;

    #[test]
    fn socket_of_a_killed_process_is_replaced() {
        let scratch = Scratch::in_memory();
        let path = scratch.path("1.sock");
        let listener = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse, "it is in use");
        drop(listener);
        drop(listen(&path).unwrap());
        let file = scratch.path("file");
        fs::write(&file, "content").unwrap();
        assert_eq!(listen(&file).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read_to_string(&file).unwrap(), "content");
    }

    #[test]
    fn sockets_of_killed_traces_are_removed() {
        let scratch = Scratch::in_memory();
        let dead = u32::MAX;
        let [own, killed, other] = [format!("{}.sock", std::process::id()), format!("{dead}.sock"), "x.sock".into()];
        for name in [&own, &killed, &other] {
            drop(UnixListener::bind(scratch.path(name)).unwrap());
        }
        let in_another_namespace = scratch.path(&format!("{}.sock", dead - 1));
        let listener = UnixListener::bind(&in_another_namespace).unwrap();
        fs::write(scratch.path(&format!("{dead}.txt")), "").unwrap();
        remove_stale(&scratch);
        let exist = |name: &str| scratch.path(name).exists();
        assert_eq!([&own, &killed, &other].map(|name| exist(name)), [true, false, true]);
        assert!(in_another_namespace.exists() && exist(&format!("{dead}.txt")));
        drop(listener);
    }

    #[test]
    fn directory_of_all_users_is_refused() {
        let scratch = Scratch::in_memory();
        let directory = scratch.path("memtrace");
        create_private(&directory).unwrap();
        create_private(&directory).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        assert!(create_private(&directory).is_err());
    }
}
