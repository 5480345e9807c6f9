//! Installation of packages with apt.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::apt;
use crate::command;
use crate::privilege::Root;
use crate::ui;
use crate::workspace::Workspace;

/// Code name of the Debian release that gets the emulator from backports. Installing the release's own emulator would remove a
/// qemu-utils that was installed from backports.
const BACKPORTED: &str = "bookworm";

/// Installs `packages` with apt, or fails with the list of packages to install by hand. `why` completes the message
/// "needed for ...".
pub(crate) fn install(packages: &[&str], why: &str) -> Result<()> {
    install_from(packages, why, &[])
}

/// Installs the package of a guest emulator. On Debian 12, it comes from the backports on the machine's own mirror. The
/// machine's apt sources are not changed.
pub(crate) fn install_emulator(workspace: &Workspace, package: &str) -> Result<()> {
    const WHY: &str = "the guest tests";
    let packages = &[package];
    if apt::codename()? != BACKPORTED {
        return install(packages, WHY);
    }
    let suite = format!("{BACKPORTED}-backports");
    let folder = workspace.join("target/kernels/apt/emulator");
    let sources = sources_with(&folder, &suite)?;
    let list = |name: &str, path: PathBuf| format!("Dir::{name}={}", path.display());
    let options = [
        list("Etc::sourceparts", sources),
        list("State::lists", folder.join("lists")),
        String::from("Dir::Etc::sourcelist=/dev/null"),
        format!("APT::Default-Release={suite}"),
    ];
    install_from(packages, WHY, &options)
}

fn install_from(packages: &[&str], why: &str, options: &[String]) -> Result<()> {
    let list = packages.join(" ");
    if command::in_path("apt-get").is_empty() {
        bail!("needed for {why}; there is no apt, so install by hand (Debian package names): {list}");
    }
    let root = Root::obtain().with_context(|| format!("needed for {why}: apt-get install {list}"))?;
    ui::step(&format!("Installing packages for {why}: {list}"));
    let apt = || {
        let mut apt = root.command("apt-get");
        // Unattended upgrades of a new machine may hold the lock for a while.
        apt.env("DEBIAN_FRONTEND", "noninteractive").args(["-o", "DPkg::Lock::Timeout=300"]);
        for option in options {
            apt.args(["-o", option]);
        }
        apt
    };
    if let Err(error) = command::run(apt().args(["-q", "update"])) {
        // A single broken source is not an error. The installation below fails if a package is not available.
        ui::warning(&format!("{error:#}"));
    }
    // Never remove an installed package.
    command::run(apt().args(["-q", "install", "-y", "--no-install-recommends", "--no-remove"]).args(packages))
        .with_context(|| format!("needed for {why}: {list}"))
}

/// Writes a folder of apt sources: the machine's mirrors, each with the release and with `suite`.
fn sources_with(folder: &Path, suite: &str) -> Result<PathBuf> {
    let sources = folder.join("sources");
    for part in [&sources, &folder.join("lists/partial")] {
        fs::create_dir_all(part).with_context(|| format!("cannot create {}", part.display()))?;
    }
    let mut lines = String::new();
    for mirror in apt::mirrors()? {
        for suite in [BACKPORTED, suite] {
            lines.push_str(&mirror.source(suite));
        }
    }
    fs::write(sources.join("all.list"), lines).context("cannot write apt sources")?;
    Ok(sources)
}
