//! Overlay file systems, as containers use them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process;
use crate::scratch::Scratch;

/// A mounted overlay. Dropping it unmounts the overlay. The layers are on different file systems, so the files in the
/// overlay have the overlay's device and inodes instead of a layer's.
pub struct Overlay(Scratch);

impl Overlay {
    /// Mounts an empty overlay.
    #[must_use]
    pub fn mount() -> Self {
        let overlay = Self(Scratch::new());
        let path = |name: &str| overlay.0.join(name);
        process::run(Command::new("mkdir").args([path("lower"), path("layer"), path("root")]));
        process::run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(path("layer")));
        process::run(Command::new("mkdir").args([path("layer/upper"), path("layer/work")]));
        let layers = ["lowerdir", "upperdir", "workdir"].iter().zip(["lower", "layer/upper", "layer/work"]);
        let layers: Vec<_> = layers.map(|(option, layer)| format!("{option}={}", path(layer).display())).collect();
        process::run(Command::new("mount").args(["-t", "overlay", "none", "-o", &layers.join(",")]).arg(path("root")));
        overlay
    }

    /// Copies an executable into the lower layer and returns its path in the overlay.
    #[must_use]
    pub fn program(&self, from: &Path, name: &str) -> PathBuf {
        let lower = self.0.copy(from, &format!("lower/{name}"));
        let merged = self.0.join("root").join(name);
        assert!(merged.exists(), "{} is not in the overlay", lower.display());
        merged
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        for mount_point in ["root", "layer"] {
            // If the mount has failed, this fails too. The test must not panic again.
            let _ = Command::new("umount").arg("--lazy").arg(self.0.join(mount_point)).output();
        }
    }
}
