//! Builds the test binaries, and makes the commands that run them, as the user or as root.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::privilege::Root;
use crate::workspace::Workspace;
use crate::{command, ui};

/// Package with tests that all run as root.
pub(super) const PRIVILEGED_PACKAGE: &str = "memtrace-tests";

/// A test binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    /// Name of the binary's package.
    pub(crate) package: String,
    /// Name of the library, program or test file.
    pub(crate) target: String,
    pub(crate) program: PathBuf,
    /// Folder of the package, which is the working directory of the tests.
    pub(crate) folder: PathBuf,
}

impl Binary {
    /// Returns the name for the summary.
    pub(super) fn name(&self) -> String {
        if self.package == self.target { self.package.clone() } else { format!("{} {}", self.package, self.target) }
    }

    /// Returns the path of an executable of the workspace that was built with the same profile.
    pub(crate) fn neighbour(&self, name: &str) -> Result<PathBuf> {
        let folder = self.program.parent().and_then(Path::parent).context("tests are built in target/PROFILE/deps")?;
        Ok(folder.join(name))
    }

    /// Returns a command that runs the binary.
    pub(super) fn command(&self) -> Command {
        self.with_cargo_environment(Command::new(&self.program))
    }

    /// Returns a command that runs the binary as root. The tests run one at a time, because a probe in a library slows
    /// down all processes that map the library. `wrapper`: words before the path of the binary. The binary is killed
    /// after `deadline`.
    pub(super) fn privileged_command(&self, root: Root, deadline: Duration, wrapper: &[String]) -> Command {
        let mut command = root.command("timeout");
        command.args(["--kill-after=10", &deadline.as_secs().to_string()]).args(wrapper);
        command.arg(&self.program).arg("--test-threads=1");
        self.with_cargo_environment(command)
    }

    fn with_cargo_environment(&self, mut command: Command) -> Command {
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Builds the test binaries of the packages selected by `arguments`, and returns them sorted by name.
pub(super) fn build(workspace: &Workspace, arguments: &[&str]) -> Result<Vec<Binary>> {
    let mut cargo = command::cargo();
    cargo.current_dir(workspace.root()).args(["test", "--no-run"]).args(arguments);
    cargo.arg("--message-format=json-render-diagnostics").stdin(Stdio::null()).stderr(Stdio::inherit());
    ui::note(&command::shown(&cargo));
    let output = cargo.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cannot build the tests");
    }
    let mut binaries: Vec<Binary> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| parse(&serde_json::from_str(line).ok()?))
        .collect();
    binaries.sort_by_key(Binary::name);
    Ok(binaries)
}

/// Returns the test binary if a message of cargo is the artifact message of a test binary (the Cargo Book, "External
/// tools", "Artifact messages").
fn parse(message: &Value) -> Option<Binary> {
    (message["reason"] == "compiler-artifact" && message["profile"]["test"] == true).then_some(())?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    Some(Binary {
        package: package_name(message["package_id"].as_str()?, &folder)?,
        target: message["target"]["name"].as_str()?.to_owned(),
        program: PathBuf::from(message["executable"].as_str()?),
        folder,
    })
}

/// Returns the name of a package. A package id ends in `#name@version`, or in `#version` if the folder has the name of
/// the package (the Cargo Book, "Package ID Specifications").
fn package_name(id: &str, folder: &Path) -> Option<String> {
    let (_, end) = id.rsplit_once('#')?;
    match end.split_once('@') {
        Some((name, _)) => Some(name.to_owned()),
        None => Some(folder.file_name()?.to_string_lossy().into_owned()),
    }
}

/// Returns the binary of the privileged tests.
pub(crate) fn privileged(binaries: &[Binary]) -> Result<&Binary> {
    let binary = binaries.iter().find(|binary| binary.package == PRIVILEGED_PACKAGE);
    binary.context("there is no binary of the privileged tests")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message() -> Value {
        json!({
            "reason": "compiler-artifact",
            "package_id": "path+file:///checkout/tests#memtrace-tests@0.1.0",
            "manifest_path": "/checkout/tests/Cargo.toml",
            "target": { "kind": ["test"], "name": "exact" },
            "profile": { "test": true },
            "executable": "/checkout/target/debug/deps/exact-0123",
        })
    }

    #[test]
    fn test_binary_is_parsed_from_an_artifact_message() {
        let binary = parse(&message()).unwrap();
        assert_eq!(binary.name(), "memtrace-tests exact");
        assert_eq!(binary.program, Path::new("/checkout/target/debug/deps/exact-0123"));
        assert_eq!(binary.folder, Path::new("/checkout/tests"));
        assert_eq!(binary.neighbour("memtrace").unwrap(), Path::new("/checkout/target/debug/memtrace"));
    }

    #[test]
    fn binary_without_tests_is_skipped() {
        let mut message = message();
        message["profile"]["test"] = json!(false);
        assert_eq!(parse(&message), None);
    }

    #[test]
    fn package_id_may_omit_the_name() {
        let name = package_name("path+file:///checkout/memtrace#0.1.0", Path::new("/checkout/memtrace"));
        assert_eq!(name.as_deref(), Some("memtrace"));
    }
}
