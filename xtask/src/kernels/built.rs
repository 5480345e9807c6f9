//! Builds a kernel from Debian's source, for options that Debian's kernels do not have.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::apt::Apt;
use crate::requirement::Requirement;
use crate::{command, ui};

pub(crate) const REQUIREMENTS: &[Requirement] = &[
    Requirement { name: "gcc", package: "gcc" },
    Requirement { name: "make", package: "make" },
    Requirement { name: "flex", package: "flex" },
    Requirement { name: "bison", package: "bison" },
    Requirement { name: "bc", package: "bc" },
    Requirement { name: "pahole", package: "dwarves" },
    Requirement { name: "/usr/include/libelf.h", package: "libelf-dev" },
];

/// Builds the kernel of version `number` in `folder`, and writes it to the file `kernel`. The configuration is
/// `tinyconfig` with the options of `config`. Returns the name of the source package with its version.
pub(super) fn build(apt: &Apt, number: &str, config: &str, folder: &Path, kernel: &Path) -> Result<String> {
    let name = format!("linux-source-{number}");
    let version = apt.unpack(&name, folder)?;
    ui::step(&format!("Building Linux {number}, which takes about ten minutes"));
    let archive = folder.join("usr/src").join(format!("{name}.tar.xz"));
    command::run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(folder))?;
    let source = folder.join(&name);
    fs::write(source.join("memtrace.config"), config).context("cannot write the options of the kernel")?;
    let make = |target: &str| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut make = Command::new("make");
        make.current_dir(&source).args(["--silent", &format!("-j{threads}"), target]);
        command::run(&mut make)
    };
    make("tinyconfig")?;
    let mut merge = Command::new(source.join("scripts/kconfig/merge_config.sh"));
    command::run(merge.current_dir(&source).args(["-Q", "-m", ".config", "memtrace.config"]))?;
    make("olddefconfig")?;
    check(&source.join(".config"), config)?;
    make("vmlinux")?;
    // The debug information would take a large part of the guest's memory.
    command::run(Command::new("objcopy").arg("--strip-debug").arg(source.join("vmlinux")).arg(kernel))?;
    Ok(version)
}

/// Checks that no option was dropped because of its dependencies.
fn check(path: &PathBuf, config: &str) -> Result<()> {
    let actual = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let missing = missing(config, &actual);
    anyhow::ensure!(missing.is_empty(), "the kernel has not the options {}", missing.join(", "));
    Ok(())
}

fn missing<'config>(config: &'config str, actual: &str) -> Vec<&'config str> {
    let options = config.lines().filter(|line| line.starts_with("CONFIG_"));
    options.filter(|option| !actual.lines().any(|line| line == *option)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_options_are_found() {
        let config = "# Methods\nCONFIG_DAMON=y\nCONFIG_MEMCG=y\n";
        assert_eq!(missing(config, "CONFIG_MEMCG=y\n# CONFIG_DAMON is not set\n"), ["CONFIG_DAMON=y"]);
        assert_eq!(missing(config, "CONFIG_DAMON=y\nCONFIG_MEMCG=y\n"), [""; 0]);
    }
}
