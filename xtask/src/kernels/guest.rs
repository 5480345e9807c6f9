//! One boot of a guest: a machine under emulation that has this one's files, with a layer over them that takes its writes,
//! or files of its own.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bpf_artifact::Machine;

use super::cpio::Archive;
use super::images::Image;
use crate::setup::Program;
use crate::{command, ui};

/// What guests run in, and its package.
pub(crate) const fn emulator(machine: Machine) -> Program {
    match machine {
        Machine::X86_64 => Program { name: "qemu-system-x86_64", package: "qemu-system-x86" },
        Machine::Aarch64 => Program { name: "qemu-system-aarch64", package: "qemu-system-arm" },
    }
}

/// The memory of a guest, in MiB.
const MEMORY: &str = "2048";

/// What the guest's first file system has folders for.
const FOLDERS: &[&str] = &["bin", "proc", "sys", "dev", "modules", "lower", "layer", "new", "etc"];

/// The files that a guest has.
pub(super) enum Files {
    /// This machine's.
    Host,
    /// These: where each lies there, and here.
    Own(Vec<(String, PathBuf)>),
}

/// What is booted.
pub(super) struct Guest<'a> {
    pub(super) image: &'a Image,
    pub(super) busybox: &'a Path,
    pub(super) files: &'a Files,
    /// Where its ports lie.
    pub(super) folder: &'a Path,
}

/// How a guest ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// The exit status of what was run in it; `None` where none was told.
    pub(super) told: Option<i32>,
    /// How the emulator ended.
    emulator: ExitStatus,
    /// What the kernel wrote to its console.
    console: String,
    /// What the emulator complained about.
    complaints: String,
}

impl Ended {
    /// Why there is no exit status, with what the guest and the emulator said last.
    pub(super) fn explain(&self, deadline: Duration) -> String {
        const LINES: usize = 30;
        let reason = if self.emulator.code() == Some(124) {
            format!("the guest did not end in {} s", deadline.as_secs())
        } else {
            format!("the guest ended without a result (emulator: {})", self.emulator)
        };
        let lines: Vec<_> = self.console.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n    ");
        format!("{reason}\n{}    its console:\n    {last}", self.complaints)
    }
}

/// Boots the guest, runs the shell's `commands` in it, and gives each line of output to `line`.
///
/// # Errors
///
/// When the emulator cannot be run. How the guest fared is in what is returned.
pub(super) fn run(guest: &Guest<'_>, commands: &str, deadline: Duration, mut line: impl FnMut(&str)) -> Result<Ended> {
    let folder = guest.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = |name: &str| folder.join(name);
    fs::write(file("initrd"), first_files(guest, commands)?).context("cannot write the guest's first files")?;
    for name in ["console", "status", "complaints"] {
        fs::write(file(name), "").context("cannot make the guest's ports")?;
    }
    let mut emulator = machine(guest, deadline);
    emulator.stderr(fs::File::create(file("complaints"))?);
    ui::note(&command::shown(&emulator));
    let mut child = emulator.spawn().context("the emulator cannot be run")?;
    if let Some(stdout) = child.stdout.take() {
        for text in BufReader::new(stdout).split(b'\n') {
            line(String::from_utf8_lossy(&text.context("cannot read what the guest writes")?).trim_end_matches('\r'));
        }
    }
    let emulator = child.wait().context("cannot wait for the emulator")?;
    let read = |name| fs::read(file(name)).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
    Ok(Ended {
        told: read("status").trim().parse().ok(),
        emulator,
        console: read("console"),
        complaints: read("complaints"),
    })
}

fn first_files(guest: &Guest<'_>, commands: &str) -> Result<Vec<u8>> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let mut archive = Archive::default();
    FOLDERS.iter().for_each(|folder| archive.directory(folder));
    archive.file("bin/busybox", &read(guest.busybox)?);
    archive.link("bin/sh", "busybox");
    archive.file("command", commands.as_bytes());
    match guest.files {
        Files::Host => {
            archive.file("init", include_bytes!("init.sh"));
            for module in guest.image.modules()? {
                let name = module.file_name().unwrap_or_default().to_string_lossy().into_owned();
                archive.file(&format!("modules/{name}"), &read(&module)?);
            }
        }
        Files::Own(files) => {
            archive.file("init", include_bytes!("init-alone.sh"));
            let folders: BTreeSet<&Path> =
                files.iter().flat_map(|(path, _)| Path::new(path).ancestors().skip(1)).collect();
            let is_new = |folder: &str| !folder.is_empty() && !FOLDERS.contains(&folder);
            folders
                .iter()
                .filter_map(|folder| folder.to_str())
                .filter(|folder| is_new(folder))
                .for_each(|folder| archive.directory(folder));
            for (path, file) in files {
                archive.file(path, &read(file)?);
            }
        }
    }
    Ok(archive.finish())
}

/// Emulation is asked for by name: where `/dev/kvm` opens it may still run other kernels than these.
fn machine(guest: &Guest<'_>, deadline: Duration) -> Command {
    let Guest { image, folder, files, .. } = guest;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", &deadline.as_secs().to_string(), emulator(image.machine).name]);
    command.args(["-accel", "tcg,thread=multi", "-smp", "1", "-m", MEMORY]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    // The console, the output, the exit status.
    command.arg("-serial").arg(format!("file:{}", folder.join("console").display()));
    command.args(["-chardev", "stdio,id=output,signal=off"]);
    let status = format!("file,id=status,path={}", folder.join("status").display());
    command.args(["-chardev", &status]);
    let console = match image.machine {
        Machine::X86_64 => {
            command.args(["-machine", "q35", "-cpu", "max"]);
            command.args(["-serial", "chardev:output", "-serial", "chardev:status"]);
            "ttyS0"
        }
        Machine::Aarch64 => {
            // Signed pointers take long to emulate.
            command.args(["-machine", "virt", "-cpu", "max,pauth=off"]);
            command.args(["-device", "pci-serial,chardev=output", "-device", "pci-serial,chardev=status"]);
            "ttyAMA0"
        }
    };
    if matches!(files, Files::Host) {
        command.args(["-virtfs", "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap"]);
    }
    command.arg("-kernel").arg(image.kernel()).arg("-initrd").arg(folder.join("initrd"));
    // A kernel that is in trouble ends, and with it the emulator.
    command.args(["-append", &format!("console={console} quiet panic=-1 oops=panic softlockup_panic=0")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn ended(status: i32, console: &str) -> String {
        let emulator = ExitStatus::from_raw(status << 8);
        let ended = Ended { told: None, emulator, console: console.to_owned(), complaints: String::new() };
        ended.explain(Duration::from_secs(9))
    }

    #[test]
    fn a_guest_without_a_result_is_explained_by_the_end_of_its_console() {
        let console = format!("{}Kernel panic - not syncing\n", "line\n".repeat(100));
        let text = ended(0, &console);
        assert!(text.starts_with("the guest ended without a result"), "{text}");
        assert!(text.ends_with("Kernel panic - not syncing"), "{text}");
        assert_eq!(text.lines().count(), 32);
        assert!(ended(124, "").starts_with("the guest did not end in 9 s"));
    }
}
