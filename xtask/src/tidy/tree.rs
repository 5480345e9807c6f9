//! The files that the rules are about.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command;

/// Where nothing lies that people write.
const SKIPPED: [&str; 3] = ["target", "memtrace-ebpf/target", ".git"];

/// Every text file of the checkout but those that git is told to ignore.
pub(super) struct Tree {
    pub(super) sources: Vec<Source>,
}

/// One text file.
pub(super) struct Source {
    /// From the top of the checkout, with slashes.
    pub(super) path: String,
    pub(super) text: String,
}

impl Tree {
    /// Reads the checkout at `root`, passing over what is not text.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut paths = match listed_by_git(root) {
            Some(paths) => paths,
            None => {
                let mut paths = Vec::new();
                walk(root, "", &mut paths)?;
                paths
            }
        };
        paths.sort();
        let mut sources = Vec::new();
        for path in paths {
            let file = root.join(&path);
            // Git lists what has just been deleted, and links, which are read where they lead to.
            if !file.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
                continue;
            }
            let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            // Objects, archives and the like are no sources.
            if let Ok(text) = String::from_utf8(bytes) {
                sources.push(Source { path, text });
            }
        }
        Ok(Self { sources })
    }

    /// The Rust files below `folder`.
    pub(super) fn rust_below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a Source> {
        self.sources.iter().filter(move |source| source.is_rust() && source.path.starts_with(folder))
    }

    /// The file at `path`.
    pub(super) fn at(&self, path: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.path == path)
    }
}

impl Source {
    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The name without its folders.
    pub(super) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// `None` where this is no checkout of git, but the contents of an archive.
fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    root.join(".git").exists().then_some(())?;
    // Root may look at a checkout that belongs to somebody else, which git refuses unless told.
    let files =
        command::answer(
            Command::new("git")
                .current_dir(root)
                .args(["-c", "safe.directory=*", "-c", "core.quotePath=false"])
                .args(["ls-files", "--cached", "--others", "--exclude-standard"]),
        )?;
    Some(files.lines().map(String::from).collect())
}

fn walk(folder: &Path, prefix: &str, paths: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if SKIPPED.contains(&path.as_str()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &format!("{path}/"), paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
impl Tree {
    /// A made-up checkout.
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let source = |&(path, text): &(&str, &str)| Source { path: path.to_owned(), text: text.to_owned() };
        Self { sources: files.iter().map(source).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn a_checkout_is_read_with_git_and_without() {
        let workspace = Workspace::find().unwrap();
        let mut walked = Vec::new();
        walk(workspace.root(), "", &mut walked).unwrap();
        for path in ["xtask/src/tidy/tree.rs", "Cargo.toml", ".gitignore"] {
            assert!(walked.iter().any(|walked| walked == path), "{path} was not found by walking");
            assert!(Tree::read(workspace.root()).unwrap().at(path).is_some(), "{path} was not found");
        }
        assert!(!walked.iter().any(|path| path.starts_with("target/")));
    }
}
