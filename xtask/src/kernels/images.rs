//! Downloads Debian's kernels, or builds kernels from Debian's source, and prepares them for boot in `target/kernels`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use bpf_artifact::Machine;

use super::supported::Kernel;
use super::{built, bzimage};
use crate::apt::{self, Apt, Mirror};
use crate::workspace::{Workspace, create_empty};
use crate::{command, ui};

/// Modules of Debian's kernels that a guest needs for the host's files (9p) and the overlay on them.
const MODULES: &[&str] = &["virtio_pci", "9p", "9pnet_virtio", "overlay"];

/// Name of the file with the kernel.
const KERNEL: &str = "vmlinux";

/// Name of the file with the versions of the packages. The file is written last, so it marks a complete folder.
const COMPLETE: &str = "VERSION";

/// Name of the file with the options of a kernel that is built on this machine. The file is empty for other kernels.
const OPTIONS: &str = "OPTIONS";

/// Kernel that is ready to boot.
pub(super) struct Image {
    folder: PathBuf,
    pub(super) machine: Machine,
}

impl Image {
    /// Returns the path of the kernel.
    pub(super) fn kernel(&self) -> PathBuf {
        self.folder.join(KERNEL)
    }

    /// Returns the modules to load, in order. A kernel that is built on this machine has no modules.
    pub(super) fn modules(&self) -> Result<Vec<PathBuf>> {
        let folder = self.folder.join("modules");
        if folder.exists() { files(&folder) } else { Ok(Vec::new()) }
    }
}

/// Returns the kernel. Downloads or builds it if it is missing, or if it was built with other options.
pub(super) fn kernel(workspace: &Workspace, kernel: &Kernel) -> Result<Image> {
    let all = workspace.join("target/kernels");
    let folder = all.join(kernel.name);
    let options = kernel.config.unwrap_or_default();
    if !folder.join(COMPLETE).exists() || fs::read_to_string(folder.join(OPTIONS)).unwrap_or_default() != options {
        ui::step(&format!("Downloading Debian's Linux {}", kernel.number()));
        let why = || format!("cannot prepare Linux {}", kernel.name);
        create_empty(&folder)?;
        let unpacked = folder.join("unpacked");
        fs::create_dir_all(&unpacked)?;
        let version = fetch(&all, kernel, &unpacked, &folder.join(KERNEL)).with_context(why)?;
        if kernel.config.is_none() {
            prepare(&unpacked, &folder, kernel.machine).with_context(why)?;
        }
        fs::remove_dir_all(&unpacked).context("cannot remove the unpacked packages")?;
        fs::write(folder.join(OPTIONS), options).context("cannot write the file of options")?;
        fs::write(folder.join(COMPLETE), version + "\n").context("cannot write the version file")?;
    }
    Ok(Image { folder, machine: kernel.machine })
}

/// Returns the path of busybox for the initramfs of the kernel's guest. Downloads it if it is missing.
pub(super) fn busybox(workspace: &Workspace, kernel: &Kernel) -> Result<PathBuf> {
    let all = workspace.join("target/kernels");
    let folder = match kernel.machine {
        Machine::X86_64 => all.join("busybox"),
        Machine::Aarch64 => all.join("busybox-arm64"),
    };
    let program = |folder: &Path| {
        ["bin/busybox", "usr/bin/busybox"].map(|path| folder.join(path)).into_iter().find(|path| path.is_file())
    };
    if let Some(program) = program(&folder) {
        return Ok(program);
    }
    let mirrors = apt::mirrors()?;
    let mirror = mirrors.first().context("apt has no source of the machine's Debian release")?;
    let apt = apt_for(&all, mirror, "bookworm", kernel)?;
    create_empty(&folder)?;
    apt.update()?;
    apt.unpack("busybox-static", &folder).context("cannot download busybox, the init program of guests")?;
    program(&folder).context("its package does not contain busybox")
}

/// Returns apt for the packages of a suite and the kernel's architecture.
fn apt_for(all: &Path, mirror: &Mirror, suite: &str, kernel: &Kernel) -> Result<Apt> {
    let name = match kernel.machine {
        Machine::X86_64 => suite.to_owned(),
        Machine::Aarch64 => format!("{suite}-arm64"),
    };
    Ok(Apt::prepare(&all.join("apt").join(name), &mirror.source(suite))?.for_architecture(kernel.architecture()))
}

/// Unpacks the newest kernel with this version number into `unpacked`, or builds it from source into `built`. Uses the
/// first mirror and suite that has the kernel. Returns the names of the packages with their versions.
fn fetch(all: &Path, kernel: &Kernel, unpacked: &Path, built: &Path) -> Result<String> {
    let mut problem = None;
    for mirror in apt::mirrors()? {
        for suite in kernel.suites {
            let apt = apt_for(all, &mirror, suite, kernel)?;
            let fetch = || match kernel.config {
                None => fetch_from(&apt, kernel, unpacked),
                Some(config) => built::build(&apt, kernel.number(), config, unpacked, built),
            };
            match apt.update().and_then(|()| fetch()) {
                Ok(version) => return Ok(version),
                Err(error) => problem = Some(error.context(format!("in {suite}"))),
            }
        }
    }
    Err(problem.unwrap_or_else(|| anyhow::anyhow!("apt has no source of the machine's Debian release")))
}

fn fetch_from(apt: &Apt, kernel: &Kernel, unpacked: &Path) -> Result<String> {
    let prefix = format!("linux-image-{}.", kernel.number());
    let names = apt.names(&prefix);
    let architecture = kernel.architecture();
    let Some(image) = newest(&names, &prefix, architecture) else {
        bail!("there is no package {prefix}*-{architecture}")
    };
    let mut versions = apt.unpack(image, unpacked)?;
    // Since Linux 7, the image package contains only dependencies.
    let parts = ["linux-binary-", "linux-modules-", "linux-base-"];
    for part in apt.dependencies(image).iter().filter(|name| parts.iter().any(|part| name.starts_with(part))) {
        versions.push(' ');
        versions.push_str(&apt.unpack(part, unpacked)?);
    }
    Ok(versions)
}

/// Returns the newest package with this prefix that has no flavour, such as cloud or rt.
fn newest<'names>(names: &'names [String], prefix: &str, architecture: &str) -> Option<&'names str> {
    let numbers = |name: &str| -> Vec<u32> {
        let parts = name[prefix.len()..].split(|letter: char| !letter.is_ascii_digit());
        parts.filter_map(|part| part.parse().ok()).collect()
    };
    let end = format!("-{architecture}");
    let without_flavour = names.iter().filter(|name| {
        let rest = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(&end));
        rest.is_some_and(|rest| {
            rest.starts_with(|first: char| first.is_ascii_digit()) && !rest.contains("-cloud") && !rest.contains("-rt")
        })
    });
    without_flavour.max_by_key(|name| numbers(name)).map(String::as_str)
}

/// Unpacks the kernel, and the modules that a guest needs, to `folder`.
fn prepare(unpacked: &Path, folder: &Path, machine: Machine) -> Result<()> {
    // Since Debian 13, modules are below `usr`.
    let below_usr = unpacked.join("usr");
    let base = if unpacked.join("lib/modules").is_dir() { unpacked } else { below_usr.as_path() };
    let releases = files(&base.join("lib/modules"))?;
    let [modules] = &releases[..] else { bail!("the packages have modules of {} kernels", releases.len()) };
    let release = modules.file_name().unwrap_or_default();
    let mut candidates = files(modules)?;
    candidates.extend(files(&unpacked.join("boot")).unwrap_or_default());
    let is_kernel =
        |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"));
    let image = candidates.iter().find(is_kernel).context("the packages contain no kernel")?;
    let image = fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
    fs::write(folder.join(KERNEL), bzimage::unpack(image)?).context("cannot write the kernel")?;

    fs::create_dir_all(folder.join("modules"))?;
    // A guest with its own files needs no modules.
    if machine == Machine::Aarch64 {
        return Ok(());
    }
    command::run(Command::new("depmod").arg("-b").arg(base).arg(release))?;
    for (index, module) in in_order(base, &release.to_string_lossy())?.iter().enumerate() {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        let (name, unpack): (_, &[&str]) = match name.rsplit_once('.') {
            Some((name, "xz")) => (name, &["xz", "-dc"]),
            Some((name, "zst")) => (name, &["zstd", "-dcq"]),
            _ => (&*name, &["cat"]),
        };
        let output = Command::new(unpack[0]).args(&unpack[1..]).arg(module).output()?;
        if !output.status.success() {
            bail!("{} failed to unpack {}", unpack[0], module.display());
        }
        fs::write(folder.join("modules").join(format!("{index:02}-{name}")), output.stdout)?;
    }
    Ok(())
}

/// Returns the files of the modules and of their dependencies, in load order. A built-in module has no file.
fn in_order(base: &Path, release: &str) -> Result<Vec<PathBuf>> {
    let mut modules = Vec::new();
    for name in MODULES {
        let mut modprobe = Command::new("modprobe");
        modprobe.arg("-d").arg(base).args(["-S", release, "--show-depends", name]);
        let shown = command::answer(&mut modprobe).with_context(|| format!("the kernel has no module {name}"))?;
        for file in shown.lines().filter_map(|line| line.strip_prefix("insmod ")) {
            let file = PathBuf::from(file.trim());
            if !modules.contains(&file) {
                modules.push(file);
            }
        }
    }
    Ok(modules)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let why = || format!("cannot list {}", folder.display());
    let entries = fs::read_dir(folder).with_context(why)?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>().with_context(why)?;
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_kernel_without_a_flavour_is_selected() {
        let names = [
            "linux-image-6.12.9+deb13-amd64",
            "linux-image-6.12.107+deb13-amd64",
            "linux-image-6.12.200+deb13-cloud-amd64",
            "linux-image-6.12.200+deb13-rt-amd64",
            "linux-image-6.12.201+deb13-amd64-dbg",
            "linux-image-6.12.202+deb13-amd64-unsigned",
            "linux-image-6.1.300-amd64",
        ]
        .map(String::from);
        assert_eq!(newest(&names, "linux-image-6.12.", "amd64"), Some("linux-image-6.12.107+deb13-amd64"));
        assert_eq!(newest(&names, "linux-image-6.13.", "amd64"), None);
    }
}
