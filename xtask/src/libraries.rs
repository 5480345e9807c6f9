//! C libraries of several releases of Debian, unpacked side by side for the tests.
//!
//! They are fetched by the machine's own apt. Nothing is installed.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::apt::{self, Apt, Mirror};
use crate::ui;
use crate::workspace::Workspace;

/// One library.
struct Library {
    /// The folder that it is unpacked in.
    name: &'static str,
    /// The release of Debian that it is of.
    suite: &'static str,
    package: &'static str,
}

const LIBRARIES: &[Library] = &[
    Library { name: "bullseye", suite: "bullseye", package: "libc6" },
    Library { name: "bookworm", suite: "bookworm", package: "libc6" },
    Library { name: "trixie", suite: "trixie", package: "libc6" },
    Library { name: "sid", suite: "sid", package: "libc6" },
    Library { name: "musl", suite: "bookworm", package: "musl" },
];

/// Written last: names the package in its version.
const COMPLETE: &str = "VERSION";

/// Where apt keeps what it needs in between.
const APT: &str = "apt";

/// Fetches and unpacks those that are not there yet.
pub(crate) fn ensure(workspace: &Workspace) -> Result<()> {
    let all = workspace.join("target/libc");
    let missing: Vec<_> = LIBRARIES.iter().filter(|library| !all.join(library.name).join(COMPLETE).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    ui::step("Fetching C libraries of other releases, for the tests");
    let mirrors = apt::mirrors()?;
    for library in missing {
        fetch(&all, library, &mirrors)
            .with_context(|| format!("cannot have {} of {}, which the tests need", library.package, library.suite))?;
    }
    fs::remove_dir_all(all.join(APT)).context("cannot clean up behind apt")
}

/// Tries each mirror, and keeps what the first one has.
fn fetch(all: &Path, library: &Library, mirrors: &[Mirror]) -> Result<()> {
    let folder = all.join(library.name);
    let mut problem = None;
    for mirror in mirrors {
        let apt = Apt::prepare(&all.join(APT).join(library.suite), &mirror.source(library.suite))?;
        match apt.update().and_then(|()| renew(&folder)).and_then(|()| apt.unpack(library.package, &folder)) {
            Ok(version) => {
                return fs::write(folder.join(COMPLETE), version + "\n").context("cannot be marked as complete");
            }
            Err(error) => problem = Some(error),
        }
    }
    Err(problem.unwrap_or_else(|| anyhow::anyhow!("apt has no source of Debian's own release")))
}

/// An empty folder.
fn renew(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}
