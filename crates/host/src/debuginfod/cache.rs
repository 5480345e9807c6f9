//! Cache of debug files on disk: `BUILD-ID/debuginfo`, the layout of elfutils, which gdb uses too.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use memtrace_model::{BuildId, Bytes};
use memtrace_object::elf::{Elf, Sections, notes};

use super::download::Failure;
use crate::cache_directory::{self, CacheError};
use crate::target_files::open_target_file;

pub(super) struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// Opens or creates the cache in `directory`, which only `user` and root may be able to change.
    pub(super) fn open(directory: &Path, user: u32) -> Result<Self, CacheError> {
        Ok(Self { directory: cache_directory::prepare_shared(directory, user)? })
    }

    /// Returns the path of the stored debug file with this build ID.
    pub(super) fn find(&self, build_id: &BuildId) -> Option<PathBuf> {
        // elfutils stores an empty file if no server had the debug file. Ignore it: a server may have the file now.
        let path = self.directory_of(build_id).join("debuginfo");
        let file = open_target_file(&path).ok()?;
        (read_build_id(&file).as_ref() == Some(build_id)).then_some(path)
    }

    /// Stores the file that `fill` writes, if the file has this build ID. Returns its path, and the result of `fill`.
    pub(super) fn add(
        &self,
        build_id: &BuildId,
        fill: impl FnOnce(&mut File) -> Result<Bytes, Failure>,
    ) -> Result<(PathBuf, Bytes), Failure> {
        let directory = self.directory_of(build_id);
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(Failure::NotStored(error)),
            _ => {}
        }
        let temporary = Temporary(directory.join(format!("debuginfo.{}", std::process::id())));
        // A killed process with the same pid may have left a temporary file.
        let _ = fs::remove_file(&temporary.0);
        let open = OpenOptions::new().read(true).write(true).create_new(true).mode(0o400).open(&temporary.0);
        let mut file = open.map_err(Failure::NotStored)?;
        let size = fill(&mut file)?;
        if read_build_id(&file).as_ref() != Some(build_id) {
            return Err(Failure::WrongBuildId);
        }
        let path = directory.join("debuginfo");
        fs::rename(&temporary.0, &path).map_err(Failure::NotStored)?;
        Ok((path, size))
    }

    fn directory_of(&self, build_id: &BuildId) -> PathBuf {
        self.directory.join(build_id.to_string())
    }
}

/// Incomplete download. Dropping it removes the file, and the directory if it is empty.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename, both calls fail, because the temporary file does not exist, and the directory is not empty.
        let _ = fs::remove_file(&self.0);
        let _ = self.0.parent().map(fs::remove_dir);
    }
}

fn read_build_id(file: &File) -> Option<BuildId> {
    let elf = Elf::parse_headers(file).ok()?;
    notes::build_id_of_sections(&Sections::read(&elf)?)
}
