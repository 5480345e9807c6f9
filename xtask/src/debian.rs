//! Installing packages where there is apt.

use anyhow::{Context as _, Result, bail};

use crate::command;
use crate::privilege::Root;
use crate::say;

/// Installs `packages` by apt, or says which are to be installed by hand. `why` completes "installed for ...".
pub(crate) fn install(packages: &[&str], why: &str) -> Result<()> {
    let list = packages.join(" ");
    if command::in_path("apt-get").is_empty() {
        bail!("needed for {why}, to be installed by hand (names of Debian's packages): {list}");
    }
    let root = Root::obtain().with_context(|| format!("needed for {why}: apt-get install {list}"))?;
    say::step(&format!("Installing packages for {why}: {list}"));
    let apt = || {
        let mut apt = root.command("apt-get");
        // A new machine's own upgrades may hold the lock for a while.
        apt.env("DEBIAN_FRONTEND", "noninteractive").args(["-o", "DPkg::Lock::Timeout=300"]);
        apt
    };
    if let Err(error) = command::run(apt().args(["-q", "update"])) {
        // One broken source among many is no reason to stop: whether the packages can be had shows next.
        say::warning(&format!("{error:#}"));
    }
    // Nothing that the user has may be removed to make room.
    command::run(apt().args(["-q", "install", "-y", "--no-install-recommends", "--no-remove"]).args(packages))
        .with_context(|| format!("needed for {why}: {list}"))
}
