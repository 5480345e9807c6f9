//! Viewers of report formats, for the tests. Debian does not package them, so they are installed into a folder of the
//! workspace.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::tier::Tier;
use crate::workspace::{Workspace, create_empty};
use crate::{command, ui};

/// Packages of npm: the command-line tool of the Firefox Profiler, and the version of Node.js that this tool needs;
/// speedscope, which contains the schema of its format; and a validator of JSON schemas.
const NPM: &[&str] = &["@firefox-devtools/profiler-cli@0.10.0", "node@24.21.0", "speedscope@1.25.0", "ajv@8.20.0"];

/// Packages of PyPI: the messages of Perfetto. The trace processor of Perfetto is not in a package.
const PYPI: &[&str] = &["perfetto==0.59.1", "protobuf==7.36.2"];

/// Folder of the viewers.
const FOLDER: &str = "target/viewers";

/// Folder below [`FOLDER`] with packages of PyPI.
const PYTHON: &str = "python";

/// File with the names of the installed packages of npm. It is written after the installation.
const COMPLETE_NPM: &str = "PACKAGES.npm";
/// File with the names of the installed packages of PyPI. It is written after the installation.
const COMPLETE_PYPI: &str = "PACKAGES.pypi";

/// Installs missing viewers. Only the long tier uses the viewers from npm.
pub(crate) fn ensure(workspace: &Workspace, tier: Tier) -> Result<()> {
    let folder = workspace.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    install(&folder, COMPLETE_PYPI, PYPI, install_pypi)?;
    match tier {
        Tier::Short => Ok(()),
        Tier::Long => install(&folder, COMPLETE_NPM, NPM, install_npm),
    }
}

/// Installs the packages, unless the file `complete` lists them.
fn install(folder: &Path, complete: &str, packages: &[&str], work: fn(&Path) -> Result<()>) -> Result<()> {
    let names: String = packages.iter().map(|package| format!("{package}\n")).collect();
    let complete = folder.join(complete);
    if fs::read_to_string(&complete).is_ok_and(|installed| installed == names) {
        return Ok(());
    }
    ui::step("Installing viewers of report formats for the tests");
    work(folder).context("cannot install the viewers of report formats, which the tests need")?;
    fs::write(complete, names).context("cannot write the list of packages")
}

fn install_npm(folder: &Path) -> Result<()> {
    create_empty(&folder.join("node_modules"))?;
    let options = ["install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"];
    command::run(Command::new("npm").args(options).arg(folder).args(NPM))
}

fn install_pypi(folder: &Path) -> Result<()> {
    let python = folder.join(PYTHON);
    create_empty(&python)?;
    let options = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"];
    command::run(Command::new("python3").args(options).arg(python).args(PYPI))
}
