//! The test programs that cargo builds, so that each can be run with or without privileges.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::privilege::Root;
use crate::workspace::Workspace;
use crate::{command, ui};

/// One test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    /// The package that it tests.
    pub(crate) package: String,
    /// The library, program or file of tests.
    pub(crate) target: String,
    /// Whether it is a file of tests alone, which has no reason to be empty.
    pub(super) is_test_file: bool,
    /// The program.
    pub(crate) program: PathBuf,
    /// The package's folder, in which tests run.
    pub(crate) folder: PathBuf,
}

impl Binary {
    /// As the tally shows it.
    pub(super) fn name(&self) -> String {
        if self.package == self.target { self.package.clone() } else { format!("{} {}", self.package, self.target) }
    }

    /// A command that runs it.
    pub(super) fn command(&self) -> Command {
        self.as_cargo_does(Command::new(&self.program))
    }

    /// A command that runs it as root, one test at a time: a probe on a shared library slows everyone who uses it.
    /// After `deadline` it is ended with all that it started.
    pub(super) fn privileged_command(&self, root: Root, deadline: Duration) -> Command {
        let mut command = root.command("timeout");
        command.args(["--kill-after=10", &deadline.as_secs().to_string()]).arg(&self.program).arg("--test-threads=1");
        self.as_cargo_does(command)
    }

    fn as_cargo_does(&self, mut command: Command) -> Command {
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Builds the test programs of the packages that `which` tells cargo of, in the order of their names.
pub(super) fn build(workspace: &Workspace, which: &[&str]) -> Result<Vec<Binary>> {
    let mut cargo = command::cargo();
    cargo.current_dir(workspace.root()).args(["test", "--no-run"]).args(which);
    cargo.arg("--message-format=json-render-diagnostics").stdin(Stdio::null()).stderr(Stdio::inherit());
    ui::note(&command::shown(&cargo));
    let output = cargo.output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the tests could not be built");
    }
    let mut binaries: Vec<Binary> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| parse(&serde_json::from_str(line).ok()?))
        .collect();
    binaries.sort_by_key(Binary::name);
    Ok(binaries)
}

/// The test program that a message of cargo's tells of, if it does
/// (the Cargo Book, "External tools", "Artifact messages").
fn parse(message: &Value) -> Option<Binary> {
    (message["reason"] == "compiler-artifact" && message["profile"]["test"] == true).then_some(())?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    Some(Binary {
        package: package_name(message["package_id"].as_str()?, &folder)?,
        target: message["target"]["name"].as_str()?.to_owned(),
        is_test_file: message["target"]["kind"][0] == "test",
        program: PathBuf::from(message["executable"].as_str()?),
        folder,
    })
}

/// A package id ends in `#name@version`, or in `#version` when the folder has the package's name
/// (the Cargo Book, "Package ID Specifications").
fn package_name(id: &str, folder: &Path) -> Option<String> {
    let (_, end) = id.rsplit_once('#')?;
    match end.split_once('@') {
        Some((name, _)) => Some(name.to_owned()),
        None => Some(folder.file_name()?.to_string_lossy().into_owned()),
    }
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
    fn a_test_program_is_taken_from_cargos_message() {
        let binary = parse(&message()).unwrap();
        assert_eq!(binary.name(), "memtrace-tests exact");
        assert!(binary.is_test_file);
        assert_eq!(binary.program, Path::new("/checkout/target/debug/deps/exact-0123"));
        assert_eq!(binary.folder, Path::new("/checkout/tests"));
    }

    #[test]
    fn a_program_that_is_no_test_is_passed_over() {
        let mut message = message();
        message["profile"]["test"] = json!(false);
        assert_eq!(parse(&message), None);
    }

    #[test]
    fn a_package_may_be_named_by_its_folder_alone() {
        let name = package_name("path+file:///checkout/memtrace#0.1.0", Path::new("/checkout/memtrace"));
        assert_eq!(name.as_deref(), Some("memtrace"));
    }
}
