//! Boots a guest: an emulated machine with this machine's files below an overlay, or with its own files.

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
use crate::requirement::Requirement;
use crate::{command, ui};

/// Returns the emulator of an architecture and its package.
pub(crate) const fn emulator(machine: Machine) -> Requirement {
    match machine {
        Machine::X86_64 => Requirement { name: "qemu-system-x86_64", package: "qemu-system-x86" },
        Machine::Aarch64 => Requirement { name: "qemu-system-aarch64", package: "qemu-system-arm" },
    }
}

/// Memory of a guest, in MiB.
const MEMORY: &str = "2048";

/// Folders of the guest's initramfs.
const FOLDERS: &[&str] = &["bin", "proc", "sys", "dev", "modules", "lower", "layer", "new", "etc"];

/// Files of a guest.
pub(super) enum Files {
    /// The files of this machine.
    Host,
    /// These files: the path in the guest, and the path on this machine.
    Own(Vec<(String, PathBuf)>),
}

/// Configuration of a guest.
pub(super) struct Guest<'a> {
    pub(super) image: &'a Image,
    pub(super) busybox: &'a Path,
    pub(super) files: &'a Files,
    /// Folder with the initramfs, and with the files of the serial ports.
    pub(super) folder: &'a Path,
}

/// Outcome of a guest.
#[derive(Debug)]
pub(super) struct GuestExit {
    /// Exit status of the script, if the guest reported it.
    pub(super) status: Option<i32>,
    /// Exit status of the emulator.
    emulator: ExitStatus,
    /// Output of the kernel's console.
    console: String,
    /// Standard error of the emulator.
    errors: String,
}

impl GuestExit {
    /// Returns a message about a missing exit status, with the last output of the guest and the emulator.
    pub(super) fn explain(&self, deadline: Duration) -> String {
        const LINES: usize = 30;
        let reason = if self.emulator.code() == Some(124) {
            format!("the guest did not finish in {} s", deadline.as_secs())
        } else {
            format!("the guest finished without a result (emulator: {})", self.emulator)
        };
        let lines: Vec<_> = self.console.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n    ");
        format!("{reason}\n{}    its console:\n    {last}", self.errors)
    }
}

/// Boots the guest, and runs the shell commands `commands` in it. Passes each line of their output to `line`.
///
/// # Errors
///
/// The emulator cannot run. Errors in the guest are in the returned [`GuestExit`].
pub(super) fn run(
    guest: &Guest<'_>,
    commands: &str,
    deadline: Duration,
    mut line: impl FnMut(&str),
) -> Result<GuestExit> {
    let folder = guest.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let file = |name: &str| folder.join(name);
    fs::write(file("initrd"), initramfs(guest, commands)?).context("cannot write the guest's initramfs")?;
    for name in ["console", "status", "errors"] {
        fs::write(file(name), "").context("cannot create the files of the guest's ports")?;
    }
    let mut emulator = machine(guest, deadline);
    emulator.stderr(fs::File::create(file("errors"))?);
    ui::note(&command::shown(&emulator));
    let mut child = emulator.spawn().context("cannot run the emulator")?;
    if let Some(stdout) = child.stdout.take() {
        for text in BufReader::new(stdout).split(b'\n') {
            line(String::from_utf8_lossy(&text.context("cannot read the guest's output")?).trim_end_matches('\r'));
        }
    }
    let emulator = child.wait().context("cannot wait for the emulator")?;
    let read = |name| fs::read(file(name)).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
    Ok(GuestExit {
        status: read("status").trim().parse().ok(),
        emulator,
        console: read("console"),
        errors: read("errors"),
    })
}

fn initramfs(guest: &Guest<'_>, commands: &str) -> Result<Vec<u8>> {
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

/// Returns the command of the emulator. The emulator never uses `/dev/kvm`, because these kernels may fail under KVM.
fn machine(guest: &Guest<'_>, deadline: Duration) -> Command {
    let Guest { image, folder, files, .. } = guest;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", &deadline.as_secs().to_string(), emulator(image.machine).name]);
    command.args(["-accel", "tcg,thread=multi", "-smp", "1", "-m", MEMORY]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    // The ports of the console, the output and the exit status.
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
            // Pointer authentication is slow to emulate.
            command.args(["-machine", "virt", "-cpu", "max,pauth=off"]);
            command.args(["-device", "pci-serial,chardev=output", "-device", "pci-serial,chardev=status"]);
            "ttyAMA0"
        }
    };
    if matches!(files, Files::Host) {
        command.args(["-virtfs", "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap"]);
    }
    command.arg("-kernel").arg(image.kernel()).arg("-initrd").arg(folder.join("initrd"));
    // The emulator exits if the kernel panics.
    command.args(["-append", &format!("console={console} quiet panic=-1 oops=panic softlockup_panic=0")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn explanation(status: i32, console: &str) -> String {
        let emulator = ExitStatus::from_raw(status << 8);
        let exit = GuestExit { status: None, emulator, console: console.to_owned(), errors: String::new() };
        exit.explain(Duration::from_secs(9))
    }

    #[test]
    fn missing_result_is_explained_with_the_end_of_the_console() {
        let console = format!("{}Kernel panic - not syncing\n", "line\n".repeat(100));
        let text = explanation(0, &console);
        assert!(text.starts_with("the guest finished without a result"), "{text}");
        assert!(text.ends_with("Kernel panic - not syncing"), "{text}");
        assert_eq!(text.lines().count(), 32);
        assert!(explanation(124, "").starts_with("the guest did not finish in 9 s"));
    }
}
