//! C libraries of several Debian releases, downloaded with apt and unpacked for the tests. Nothing is installed.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::apt::{self, Apt, Mirror};
use crate::ui;
use crate::workspace::{Workspace, create_empty};

struct Library {
    /// Name of the folder with the unpacked library.
    name: &'static str,
    /// Name of the Debian release.
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

/// Name of the file with the version of the package. The file is written last, so it marks a complete folder.
const COMPLETE: &str = "VERSION";

/// Temporary folder of apt.
const APT: &str = "apt";

/// Downloads and unpacks missing libraries.
pub(crate) fn ensure(workspace: &Workspace) -> Result<()> {
    let all = workspace.join("target/libc");
    let missing: Vec<_> = LIBRARIES.iter().filter(|library| !all.join(library.name).join(COMPLETE).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    ui::step("Downloading C libraries of other releases for the tests");
    let mirrors = apt::mirrors()?;
    for library in missing {
        fetch(&all, library, &mirrors).with_context(|| {
            format!("cannot download {} of {}, which the tests need", library.package, library.suite)
        })?;
    }
    fs::remove_dir_all(all.join(APT)).context("cannot remove apt's temporary folder")
}

/// Downloads and unpacks the library from the first mirror that has it.
fn fetch(all: &Path, library: &Library, mirrors: &[Mirror]) -> Result<()> {
    let folder = all.join(library.name);
    let mut problem = None;
    for mirror in mirrors {
        let apt = Apt::prepare(&all.join(APT).join(library.suite), &mirror.source(library.suite))?;
        match apt.update().and_then(|()| create_empty(&folder)).and_then(|()| apt.unpack(library.package, &folder)) {
            Ok(version) => {
                return fs::write(folder.join(COMPLETE), version + "\n").context("cannot write the version file");
            }
            Err(error) => problem = Some(error),
        }
    }
    Err(problem.unwrap_or_else(|| anyhow::anyhow!("apt has no source of the machine's Debian release")))
}
