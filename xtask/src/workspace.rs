//! Paths of the checkout.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// Checkout that the commands work on.
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// Returns the checkout of the package that cargo runs (`CARGO_MANIFEST_DIR`), or else the checkout that xtask was
    /// built from.
    pub(crate) fn find() -> Result<Self> {
        let package =
            env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = package.parent().context("xtask is in no workspace")?;
        Ok(Self { root: root.to_path_buf() })
    }

    /// Returns the top folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the absolute path of a file or folder. `path` is relative to the top folder.
    pub(crate) fn join(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Returns the paths of the BPF objects and their sources.
    pub(crate) fn bpf(&self) -> bpf_artifact::Artifacts {
        bpf_artifact::Artifacts::at(&self.root)
    }
}

/// Creates an empty folder. Removes the content of an existing one.
pub(crate) fn create_empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}
