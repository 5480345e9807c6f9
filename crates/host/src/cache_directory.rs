//! Location and permissions of cache directories.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use memtrace_model::printable;

/// Mode bits of a directory that the group or others may write (`S_IWGRP | S_IWOTH`, inode(7)).
const WRITABLE: u32 = 0o022;
/// Mode bit of a directory that lets only owners replace entries (`S_ISVTX`, inode(7)).
const STICKY: u32 = 0o1000;

/// Reason why the cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The directory cannot be created or read.
    #[error("cannot use the cache directory: {0}")]
    Io(#[from] io::Error),
    /// Another user could change this directory, or can access a directory that must be private.
    #[error("other users could change the cache: {} is not safe", printable(.0))]
    Unsafe(PathBuf),
}

/// Returns the directory for caches: `$XDG_CACHE_HOME`, or `~/.cache` (XDG Base Directory Specification 0.8).
/// `variable` reads an environment variable. Returns `None` if neither variable is set to an absolute path.
pub(crate) fn base_directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".cache"));
    absolute("XDG_CACHE_HOME").or_else(home)
}

/// As [`prepare_shared`], but only `user` has access to `folder`.
pub(crate) fn prepare(folder: &Path, user: u32) -> Result<PathBuf, CacheError> {
    let folder = prepare_shared(folder, user)?;
    let metadata = fs::metadata(&folder)?;
    if metadata.uid() == user && metadata.mode() & 0o077 == 0 { Ok(folder) } else { Err(CacheError::Unsafe(folder)) }
}

/// Creates `folder` if it does not exist, and returns its canonical path. Other users may be able to read a directory
/// that already exists.
///
/// Only `user` and root may be able to change the directories of the path. So nobody else can place a link or a file
/// there after the check.
pub(crate) fn prepare_shared(folder: &Path, user: u32) -> Result<PathBuf, CacheError> {
    // An existing directory must be safe before anything is created in it.
    let present = folder.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(folder);
    check(&present.canonicalize()?, user)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let folder = folder.canonicalize()?;
    check(&folder, user)?;
    Ok(folder)
}

fn check(folder: &Path, user: u32) -> Result<(), CacheError> {
    for ancestor in folder.ancestors() {
        let metadata = fs::symlink_metadata(ancestor)?;
        let mode = metadata.mode();
        let safe = mode & WRITABLE == 0 || mode & STICKY != 0;
        if !metadata.is_dir() || ![0, user].contains(&metadata.uid()) || !safe {
            return Err(CacheError::Unsafe(ancestor.to_path_buf()));
        }
    }
    Ok(())
}
