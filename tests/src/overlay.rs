//! A file system that lies over others, as a container's does.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process;
use crate::scratch::Scratch;

/// A mounted overlay, unmounted when it is dropped. Its layers are of different file systems, so that it gives its files
/// inodes and a device of its own.
pub struct Overlay(Scratch);

impl Overlay {
    /// Mounts one that shows an empty folder.
    ///
    /// # Panics
    ///
    /// If it can't be mounted.
    #[must_use]
    pub fn mount() -> Self {
        let overlay = Self(Scratch::new());
        let at = |name: &str| overlay.0.join(name);
        process::run(Command::new("mkdir").args([at("lower"), at("layer"), at("root")]));
        process::run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(at("layer")));
        process::run(Command::new("mkdir").args([at("layer/upper"), at("layer/work")]));
        let layers = ["lowerdir", "upperdir", "workdir"].iter().zip(["lower", "layer/upper", "layer/work"]);
        let layers: Vec<_> = layers.map(|(option, layer)| format!("{option}={}", at(layer).display())).collect();
        process::run(Command::new("mount").args(["-t", "overlay", "none", "-o", &layers.join(",")]).arg(at("root")));
        overlay
    }

    /// Copies a program into the lower layer; returns where the overlay shows it.
    ///
    /// # Panics
    ///
    /// If it can't be copied, or is not shown.
    #[must_use]
    pub fn program(&self, from: &Path, name: &str) -> PathBuf {
        let below = self.0.program(from, &format!("lower/{name}"));
        let above = self.0.join("root").join(name);
        assert!(above.exists(), "{} is not shown", below.display());
        above
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        for folder in ["root", "layer"] {
            // What could not be mounted cannot be unmounted, and a test that failed is not to fail twice.
            let _ = Command::new("umount").arg("--lazy").arg(self.0.join(folder)).output();
        }
    }
}
