//! Where the cache is, and whether anybody else could change what is in it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Others may write (`S_IWGRP | S_IWOTH`, inode(7)).
const WRITABLE: u32 = 0o022;
/// Entries can be replaced by their owners alone (`S_ISVTX`, inode(7)).
const STICKY: u32 = 0o1000;

/// Why there is no cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The folder cannot be made or looked at.
    #[error("cannot use the cache folder: {0}")]
    Io(#[from] io::Error),
    /// Somebody else could change it.
    #[error("others could change the cache: {} is not safe", .0.display())]
    Unsafe(PathBuf),
}

/// Where the cache belongs by the environment that `variable` tells of: below `$XDG_CACHE_HOME`, or below `~/.cache`
/// (XDG Base Directory Specification 0.8). `None` where the environment does not say, or does not say it in full.
pub fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".cache"));
    Some(absolute("XDG_CACHE_HOME").or_else(home)?.join("memtrace"))
}

/// Makes `folder` for `user` alone, and returns it without links on the way.
///
/// No folder on the way may be changed by anybody but `user` and root. Then nobody else can put a link or a file there,
/// now or between two looks.
pub(super) fn prepare(folder: &Path, user: u32) -> Result<PathBuf, CacheError> {
    // What is there already has to be safe before anything is made in it.
    let present = folder.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(folder);
    check(&present.canonicalize()?, user)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let folder = folder.canonicalize()?;
    check(&folder, user)?;
    let metadata = fs::metadata(&folder)?;
    if metadata.uid() == user && metadata.mode() & 0o077 == 0 { Ok(folder) } else { Err(CacheError::Unsafe(folder)) }
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
