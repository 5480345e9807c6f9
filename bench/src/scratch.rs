//! A folder that is gone when it is no longer needed.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::{env, process};

use anyhow::{Context as _, Result};

/// A folder of its own, removed when it is dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes the folder.
    pub(crate) fn new() -> Result<Self> {
        let path = env::temp_dir().join(format!("memtrace-bench-{}", process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    /// Makes a folder in it.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What remains lies in the temporary folder, where it is not for ever.
        let _ = fs::remove_dir_all(&self.0);
    }
}
