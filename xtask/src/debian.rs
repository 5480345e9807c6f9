//! Installing packages where there is apt.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::apt;
use crate::command;
use crate::privilege::Root;
use crate::ui;
use crate::workspace::Workspace;

/// The release whose own emulator is too old beside its neighbours: to install it would remove qemu-utils where those of
/// the backports are there.
const BACKPORTED: &str = "bookworm";

/// Installs `packages` by apt, or says which are to be installed by hand. `why` completes "installed for ...".
pub(crate) fn install(packages: &[&str], why: &str) -> Result<()> {
    install_from(packages, why, &[])
}

/// Installs the package of an emulator that guests run in; on Debian 12 the one of its backports, by the machine's own
/// mirror. The machine's list of sources stays as it is.
pub(crate) fn install_emulator(workspace: &Workspace, package: &str) -> Result<()> {
    const WHY: &str = "the tests on other kernels";
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
        bail!("needed for {why}, to be installed by hand (names of Debian's packages): {list}");
    }
    let root = Root::obtain().with_context(|| format!("needed for {why}: apt-get install {list}"))?;
    ui::step(&format!("Installing packages for {why}: {list}"));
    let apt = || {
        let mut apt = root.command("apt-get");
        // A new machine's own upgrades may hold the lock for a while.
        apt.env("DEBIAN_FRONTEND", "noninteractive").args(["-o", "DPkg::Lock::Timeout=300"]);
        for option in options {
            apt.args(["-o", option]);
        }
        apt
    };
    if let Err(error) = command::run(apt().args(["-q", "update"])) {
        // One broken source among many is no reason to stop: whether the packages can be had shows next.
        ui::warning(&format!("{error:#}"));
    }
    // Nothing that the user has may be removed to make room.
    command::run(apt().args(["-q", "install", "-y", "--no-install-recommends", "--no-remove"]).args(packages))
        .with_context(|| format!("needed for {why}: {list}"))
}

/// A folder of sources: the machine's mirrors with its own release, and with `suite`.
fn sources_with(folder: &Path, suite: &str) -> Result<PathBuf> {
    let sources = folder.join("sources");
    for part in [&sources, &folder.join("lists/partial")] {
        fs::create_dir_all(part).with_context(|| format!("cannot make {}", part.display()))?;
    }
    let mut lines = String::new();
    for mirror in apt::mirrors()? {
        for suite in [BACKPORTED, suite] {
            lines.push_str(&mirror.source(suite));
        }
    }
    fs::write(sources.join("all.list"), lines).context("cannot write sources for apt")?;
    Ok(sources)
}
