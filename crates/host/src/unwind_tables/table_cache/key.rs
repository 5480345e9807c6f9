//! The random key of a cache, which is kept in its directory.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::procfs::kernel_files;

/// Name of the file with the key.
pub(super) const NAME: &str = "key";

/// Reads the key of the cache in `folder`, or creates one.
pub(super) fn read_or_create(folder: &Path) -> io::Result<[u8; 16]> {
    let path = folder.join(NAME);
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // The key was cut, perhaps because the disk was full. With a new key, all entries are rebuilt.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => _ = fs::remove_file(&path),
        result => return result,
    }
    let temporary = folder.join(format!(".{NAME}-{}", std::process::id()));
    // A killed process with the same pid may have left its file.
    let _ = fs::remove_file(&temporary);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let created = random().and_then(|key| file.write_all(&key)).and_then(|()| match fs::hard_link(&temporary, &path) {
        // Another memtrace was faster, so its key counts.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::remove_file(&temporary),
        // The file system has no links. Two memtraces can then have different keys, and rebuild each other's tables.
        Err(_) => fs::rename(&temporary, &path),
        Ok(()) => fs::remove_file(&temporary),
    });
    if created.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    created.and_then(|()| read(&path))
}

fn read(path: &Path) -> io::Result<[u8; 16]> {
    let mut key = [0; 16];
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    file.read_exact(&mut key)?;
    Ok(key)
}

fn random() -> io::Result<[u8; 16]> {
    let mut key = [0; 16];
    kernel_files::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key)
}
