//! Files that the rules apply to.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command;

/// Folders without sources.
const SKIPPED: [&str; 3] = ["target", "memtrace-ebpf/target", ".git"];

/// Text files of the checkout, except files that git ignores.
pub(super) struct Tree {
    pub(super) sources: Vec<Source>,
}

/// Text file.
pub(super) struct Source {
    /// Path relative to the top folder of the checkout, with slashes.
    pub(super) path: String,
    pub(super) text: String,
}

impl Tree {
    /// Reads the checkout at `root`. Skips files that are not UTF-8.
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
            // Git also lists deleted files and symbolic links. Links are skipped, because git lists their targets too.
            if !file.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
                continue;
            }
            let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            // Files that are not UTF-8, such as objects and archives, are not sources.
            if let Ok(text) = String::from_utf8(bytes) {
                sources.push(Source { path, text });
            }
        }
        Ok(Self { sources })
    }

    /// Returns the Rust files below `folder`.
    pub(super) fn rust_below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a Source> {
        self.sources.iter().filter(move |source| source.is_rust() && source.path.starts_with(folder))
    }
}

impl Source {
    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns the name of the file without its folder.
    pub(super) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// Returns the paths that git does not ignore; `None` without a git repository, as in an unpacked archive.
fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    root.join(".git").exists().then_some(())?;
    // Root may run xtask in the checkout of another user. By default, git refuses this.
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
    /// Creates a tree of these paths and texts.
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
    fn checkout_is_read_with_and_without_git() {
        let workspace = Workspace::find().unwrap();
        let mut walked = Vec::new();
        walk(workspace.root(), "", &mut walked).unwrap();
        for path in ["xtask/src/tidy/tree.rs", "Cargo.toml", ".gitignore"] {
            assert!(walked.iter().any(|walked| walked == path), "{path} was not found without git");
            let tree = Tree::read(workspace.root()).unwrap();
            assert!(tree.sources.iter().any(|source| source.path == path), "{path} was not found with git");
        }
        assert!(!walked.iter().any(|path| path.starts_with("target/")));
    }
}
