//! Downloads and unpacks packages of other Debian releases for the tests, without installing them.
//!
//! Uses the machine's apt with its proxies, credentials and mirrors, but with another release and with separate state
//! folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::command;

/// File with the keys of Debian's releases (package debian-archive-keyring), for sources without `signed-by`.
const DEBIAN_KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Kinds of index files that list no packages. They are not downloaded, even if apt is configured to download them.
const NEEDLESS: &[&str] = &["DEP-11", "DEP-11-icons", "DEP-11-icons-small", "Contents-deb", "CNF"];

/// Source of Debian packages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    uri: String,
    /// File with the keys of the source, if the source names one.
    signed_by: Option<String>,
}

impl Mirror {
    /// Returns the line of sources.list(5) for a suite of this source.
    pub(crate) fn source(&self, suite: &str) -> String {
        let named = self.signed_by.as_deref();
        let keys = named.or_else(|| Path::new(DEBIAN_KEYS).exists().then_some(DEBIAN_KEYS));
        let keys = keys.map(|keys| format!("[signed-by={keys}] ")).unwrap_or_default();
        format!("deb {keys}{} {suite} main\n", self.uri)
    }
}

/// Returns the code name of the machine's Debian release.
pub(crate) fn codename() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release").context("cannot read the machine's release")?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or_default();
    Ok(codename.trim_matches('"').to_owned())
}

/// Returns the sources of the machine's release that apt uses.
pub(crate) fn mirrors() -> Result<Vec<Mirror>> {
    Ok(sources(&targets()?, &codename()?))
}

/// Returns the sources of the machine's release and of its updates, as lines of sources.list(5).
pub(crate) fn own_sources() -> Result<String> {
    let (targets, codename) = (targets()?, codename()?);
    let updates = ["", "-updates", "-security"].map(|end| format!("{codename}{end}"));
    let of = |suite: &String| sources(&targets, suite).iter().map(|mirror| mirror.source(suite)).collect::<String>();
    Ok(updates.iter().map(of).collect())
}

fn targets() -> Result<String> {
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", "$(CREATED_BY) $(REPO_URI) $(RELEASE) $(COMPONENT) $(SIGNED_BY)"]);
    command::answer(&mut apt).context("cannot list the sources of apt-get")
}

fn sources(targets: &str, codename: &str) -> Vec<Mirror> {
    let mut mirrors = Vec::new();
    for line in targets.lines() {
        let mut fields = line.splitn(5, ' ');
        let (Some("Packages"), Some(uri), Some(release), Some("main")) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        // apt prints a variable without a value verbatim.
        let signed_by = fields.next().filter(|keys| !keys.is_empty() && !keys.starts_with("$(")).map(str::to_owned);
        let mirror = Mirror { uri: uri.to_owned(), signed_by };
        if release == codename && !mirrors.contains(&mirror) {
            mirrors.push(mirror);
        }
    }
    mirrors
}

/// apt with sources and state folders of its own, so that the state of the machine's apt does not change.
pub(crate) struct Apt {
    folder: PathBuf,
    architecture: Option<&'static str>,
}

impl Apt {
    /// Creates the folders. `sources` are lines of sources.list(5), see [`Mirror::source`].
    pub(crate) fn prepare(folder: &Path, sources: &str) -> Result<Self> {
        for part in ["state/lists/partial", "cache/archives/partial", "sources", "packages"] {
            fs::create_dir_all(folder.join(part)).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        fs::write(folder.join("sources/one.list"), sources).context("cannot write apt sources")?;
        Ok(Self { folder: folder.to_path_buf(), architecture: None })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let folder = self.folder.display();
        for option in [
            format!("Dir::State={folder}/state"),
            // Without an empty status, apt may prefer installed versions.
            String::from("Dir::State::status=/dev/null"),
            format!("Dir::Cache={folder}/cache"),
            String::from("Dir::Etc::sourcelist=/dev/null"),
            format!("Dir::Etc::sourceparts={folder}/sources"),
            String::from("Dir::Etc::preferences=/dev/null"),
            String::from("Dir::Etc::preferencesparts=/dev/null"),
            String::from("Acquire::Languages=none"),
            // apt's sandbox user may not write to the folders.
            String::from("APT::Sandbox::User="),
        ] {
            command.args(["-o", &option]);
        }
        for kind in NEEDLESS {
            command.args(["-o", &format!("Acquire::IndexTargets::deb::{kind}::DefaultEnabled=false")]);
        }
        if let Some(architecture) = self.architecture {
            command.args(["-o", &format!("APT::Architecture={architecture}")]);
            command.args(["-o", &format!("APT::Architectures={architecture}")]);
        }
        command.current_dir(self.folder.join("packages"));
        command
    }

    /// Selects packages for another architecture.
    pub(crate) fn for_architecture(self, architecture: &'static str) -> Self {
        Self { architecture: Some(architecture), ..self }
    }

    /// Downloads the package lists.
    pub(crate) fn update(&self) -> Result<()> {
        command::run(self.command("apt-get").args(["-q", "update"]))
    }

    /// Returns the names of all packages that begin with `prefix`.
    pub(crate) fn names(&self, prefix: &str) -> Vec<String> {
        let names = command::answer(self.command("apt-cache").args(["pkgnames", prefix])).unwrap_or_default();
        names.lines().map(str::to_owned).collect()
    }

    /// Returns the packages that `package` depends on.
    pub(crate) fn dependencies(&self, package: &str) -> Vec<String> {
        let text = command::answer(self.command("apt-cache").args(["depends", package])).unwrap_or_default();
        text.lines().filter_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned).collect()
    }

    /// Downloads a package, unpacks it to the existing `folder`, and returns the name of its file, which contains the
    /// version. `package` may select a version: `name=version`.
    pub(crate) fn unpack(&self, package: &str, folder: &Path) -> Result<String> {
        command::run(self.command("apt-get").args(["-q", "download", package]))?;
        let file = self.downloaded(package.split('=').next().unwrap_or(package))?;
        command::run(Command::new("dpkg-deb").arg("-x").arg(&file).arg(folder))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        Ok(name)
    }

    /// Returns the path of the downloaded package: `NAME_VERSION_ARCHITECTURE.deb`.
    fn downloaded(&self, package: &str) -> Result<PathBuf> {
        let prefix = format!("{package}_");
        for entry in fs::read_dir(self.folder.join("packages")).context("cannot list the downloaded packages")? {
            let path = entry.context("cannot list the downloaded packages")?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)) {
                return Ok(path);
            }
        }
        bail!("apt did not download {package}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_main_sources_of_the_release_without_updates() {
        let targets = "\
Packages http://mirror.example/debian/ bookworm main $(SIGNED_BY)
DEP-11 http://mirror.example/debian/ bookworm main $(SIGNED_BY)
Packages http://mirror.example/debian/ bookworm contrib $(SIGNED_BY)
Packages http://mirror.example/debian/ bookworm-updates main $(SIGNED_BY)
Packages http://mirror.example/debian/ bookworm main $(SIGNED_BY)
Packages https://other.example/debian/ bookworm main /usr/share/keyrings/other key.gpg
Packages https://vendor.example/linux/ bookworm stable /etc/apt/keyrings/vendor.gpg";
        let expected = [
            Mirror { uri: String::from("http://mirror.example/debian/"), signed_by: None },
            Mirror {
                uri: String::from("https://other.example/debian/"),
                signed_by: Some(String::from("/usr/share/keyrings/other key.gpg")),
            },
        ];
        assert_eq!(sources(targets, "bookworm"), expected);
        assert_eq!(sources("", "bookworm"), []);
    }
}
