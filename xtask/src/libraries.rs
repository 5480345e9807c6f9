//! C libraries of several releases of Debian, unpacked side by side for the tests.
//!
//! They are fetched by the machine's own apt, with its proxies, its credentials and its mirror: only the release is
//! another, and everything that apt writes goes into a folder of its own. Nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::workspace::Workspace;
use crate::{command, say};

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

/// The keys of Debian's own releases (package debian-archive-keyring), where a source does not name its keys.
const DEBIAN_KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Index files that apt may be configured to fetch, and that say nothing about packages.
const NEEDLESS: &[&str] = &["DEP-11", "DEP-11-icons", "DEP-11-icons-small", "Contents-deb", "CNF"];

/// Fetches and unpacks those that are not there yet.
pub(crate) fn ensure(workspace: &Workspace) -> Result<()> {
    let all = workspace.join("target/libc");
    let missing: Vec<_> = LIBRARIES.iter().filter(|library| !all.join(library.name).join(COMPLETE).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    say::step("Fetching C libraries of other releases, for the tests");
    let mirrors = mirrors()?;
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
        let apt = Apt::prepare(&all.join(APT).join(library.suite), mirror, library.suite)?;
        match apt.unpack(library.package, &folder) {
            Ok(version) => {
                return fs::write(folder.join(COMPLETE), version + "\n").context("cannot be marked as complete");
            }
            Err(error) => problem = Some(error),
        }
    }
    Err(problem.unwrap_or_else(|| anyhow::anyhow!("apt has no source of Debian's own release")))
}

/// Where the machine gets Debian's packages from.
#[derive(Debug, PartialEq, Eq)]
struct Mirror {
    uri: String,
    /// The keys that sign it, where its source names them.
    signed_by: Option<String>,
}

/// The sources of the machine's own release, by apt's own account of its configuration.
fn mirrors() -> Result<Vec<Mirror>> {
    let release = fs::read_to_string("/etc/os-release").context("cannot tell this machine's release")?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or_default();
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", "$(CREATED_BY) $(REPO_URI) $(RELEASE) $(COMPONENT) $(SIGNED_BY)"]);
    let targets = command::answer(&mut apt).context("apt-get, which fetches them, cannot be asked for its sources")?;
    Ok(sources(&targets, codename.trim_matches('"')))
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
        // apt leaves a variable that has no value as it is.
        let signed_by = fields.next().filter(|keys| !keys.is_empty() && !keys.starts_with("$(")).map(str::to_owned);
        let mirror = Mirror { uri: uri.to_owned(), signed_by };
        if release == codename && !mirrors.contains(&mirror) {
            mirrors.push(mirror);
        }
    }
    mirrors
}

/// apt with one source and folders of its own.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn prepare(folder: &Path, mirror: &Mirror, suite: &str) -> Result<Self> {
        for part in ["state/lists/partial", "cache/archives/partial", "sources", "packages"] {
            fs::create_dir_all(folder.join(part)).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let named = mirror.signed_by.as_deref();
        let keys = named.or_else(|| Path::new(DEBIAN_KEYS).exists().then_some(DEBIAN_KEYS));
        let keys = keys.map(|keys| format!("[signed-by={keys}] ")).unwrap_or_default();
        let line = format!("deb {keys}{} {suite} main\n", mirror.uri);
        fs::write(folder.join("sources/one.list"), line).context("cannot write a source for apt")?;
        Ok(Self { folder: folder.to_path_buf() })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let folder = self.folder.display();
        for option in [
            format!("Dir::State={folder}/state"),
            // As if nothing were installed: else what is installed could be preferred.
            String::from("Dir::State::status=/dev/null"),
            format!("Dir::Cache={folder}/cache"),
            String::from("Dir::Etc::sourcelist=/dev/null"),
            format!("Dir::Etc::sourceparts={folder}/sources"),
            String::from("Dir::Etc::preferences=/dev/null"),
            String::from("Dir::Etc::preferencesparts=/dev/null"),
            String::from("Acquire::Languages=none"),
            // The folders are this user's, and apt's own user may not write there.
            String::from("APT::Sandbox::User="),
        ] {
            command.args(["-o", &option]);
        }
        for kind in NEEDLESS {
            command.args(["-o", &format!("Acquire::IndexTargets::deb::{kind}::DefaultEnabled=false")]);
        }
        command.current_dir(self.folder.join("packages"));
        command
    }

    /// Unpacks the package into `folder`, and returns its name with its version.
    fn unpack(&self, package: &str, folder: &Path) -> Result<String> {
        command::run(self.command("apt-get").args(["-q", "update"]))?;
        command::run(self.command("apt-get").args(["-q", "download", package]))?;
        let file = self.downloaded(package)?;
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        command::run(Command::new("dpkg-deb").arg("-x").arg(&file).arg(folder))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        Ok(name)
    }

    /// The package's file: `NAME_VERSION_ARCHITECTURE.deb`.
    fn downloaded(&self, package: &str) -> Result<PathBuf> {
        let beginning = format!("{package}_");
        for entry in fs::read_dir(self.folder.join("packages")).context("cannot look for what was fetched")? {
            let path = entry.context("cannot look for what was fetched")?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&beginning)) {
                return Ok(path);
            }
        }
        bail!("apt fetched no {package}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_of_the_own_release_are_taken_without_its_updates_and_without_others() {
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
