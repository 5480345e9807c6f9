//! Viewers of report formats that are no Debian packages, for the tests. They are installed into a folder of the workspace.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::workspace::{Workspace, create_empty};
use crate::{command, ui};

/// Packages of npm: the command line of the Firefox Profiler, with the version of Node.js that it needs; speedscope, which contains
/// the schema of its format; a validator of schemas.
const NPM: &[&str] = &["@firefox-devtools/profiler-cli@0.10.0", "node@24.21.0", "speedscope@1.25.0", "ajv@8.20.0"];

/// Packages of PyPI: the messages of Perfetto. Its trace processor is no package.
const PYPI: &[&str] = &["perfetto==0.59.1", "protobuf==7.36.2"];

/// File with the names of the packages, written last.
const COMPLETE: &str = "PACKAGES";

/// Installs missing viewers.
pub(crate) fn ensure(workspace: &Workspace) -> Result<()> {
    let folder = workspace.join("target/viewers");
    let packages: String = NPM.iter().chain(PYPI).map(|package| format!("{package}\n")).collect();
    if fs::read_to_string(folder.join(COMPLETE)).is_ok_and(|installed| installed == packages) {
        return Ok(());
    }
    ui::step("Installing viewers of report formats for the tests");
    create_empty(&folder)?;
    install(&folder).context("cannot install the viewers of report formats, which the tests need")?;
    fs::write(folder.join(COMPLETE), packages).context("cannot write the list of packages")
}

fn install(folder: &Path) -> Result<()> {
    let options = ["install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"];
    command::run(Command::new("npm").args(options).arg(folder).args(NPM))?;
    let options = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"];
    command::run(Command::new("python3").args(options).arg(folder.join("python")).args(PYPI))
}
