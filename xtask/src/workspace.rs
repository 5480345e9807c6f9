//! Where things lie in the checkout.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The checkout that the commands work on.
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The checkout that this program was built from, or the one that cargo runs it in.
    pub(crate) fn find() -> Result<Self> {
        let package =
            env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = package.parent().context("xtask lies in no workspace")?;
        Ok(Self { root: root.to_path_buf() })
    }

    /// The top folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A file or folder by its path from the top.
    pub(crate) fn join(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Where the BPF object lies, and what it is built from.
    pub(crate) fn bpf(&self) -> bpf_artifact::Workspace {
        bpf_artifact::Workspace::at(&self.root)
    }
}
