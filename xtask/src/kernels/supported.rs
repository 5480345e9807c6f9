//! Kernels that memtrace is tested on, and their selection by options.

use anyhow::{Result, bail};
use bpf_artifact::Machine;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// Version number, with a suffix for a special configuration or for another architecture than x86_64.
    pub(crate) name: &'static str,
    pub(crate) machine: Machine,
    /// Debian suites that have, or recently had, this version.
    pub(super) suites: &'static [&'static str],
    /// Options to build the kernel from Debian's source; `None` for Debian's build.
    pub(crate) config: Option<&'static str>,
    /// True if memtrace supports the kernel. Otherwise, only the refusal is tested.
    pub(crate) is_supported: bool,
}

const X86: Machine = Machine::X86_64;

/// All kernels: Debian's builds for x86_64, the oldest first, then the others.
pub(crate) const ALL: &[Kernel] = &[
    Kernel { name: "5.10", machine: X86, suites: &["bullseye"], config: None, is_supported: false },
    Kernel { name: "6.1", machine: X86, suites: &["bookworm"], config: None, is_supported: true },
    Kernel { name: "6.12", machine: X86, suites: &["trixie"], config: None, is_supported: true },
    Kernel { name: "6.18", machine: X86, suites: &["trixie-backports"], config: None, is_supported: true },
    Kernel { name: "7.2", machine: X86, suites: &["sid", "trixie-backports"], config: None, is_supported: true },
    Kernel {
        name: "6.12-page-tracking",
        machine: X86,
        suites: &["trixie"],
        config: Some(include_str!("page-tracking.config")),
        is_supported: true,
    },
    Kernel { name: "6.1-arm64", machine: Machine::Aarch64, suites: &["bookworm"], config: None, is_supported: true },
];

/// Name of the kernel that `cargo xtask test` uses in both tiers.
pub(crate) const DEFAULT: &str = "6.1";

impl Kernel {
    /// Returns the version number.
    pub(super) fn number(&self) -> &'static str {
        self.name.split('-').next().unwrap_or(self.name)
    }

    /// Returns Debian's name of the architecture.
    pub(super) const fn architecture(&self) -> &'static str {
        match self.machine {
            Machine::X86_64 => "amd64",
            Machine::Aarch64 => "arm64",
        }
    }
}

/// Returns the kernels of a comma-separated list of names, or all kernels for `all`.
pub(crate) fn by_names(list: &str) -> Result<Vec<&'static Kernel>> {
    if list == "all" {
        return Ok(ALL.iter().collect());
    }
    let mut kernels: Vec<&Kernel> = Vec::new();
    for name in list.split(',') {
        let Some(kernel) = ALL.iter().find(|kernel| kernel.name == name.trim()) else {
            let names: Vec<_> = ALL.iter().map(|kernel| kernel.name).collect();
            bail!("unknown kernel {name:?}; known: {}, all", names.join(", "));
        };
        if !kernels.contains(&kernel) {
            kernels.push(kernel);
        }
    }
    Ok(kernels)
}

/// Parses `--kernels LIST`. Without a list, the option selects all kernels.
pub(crate) fn from_options(options: &[String]) -> Result<Option<Vec<&'static Kernel>>> {
    match options {
        [] => Ok(None),
        [option, list] if option == "--kernels" => by_names(list).map(Some),
        [option] if option == "--kernels" => by_names("all").map(Some),
        [option, ..] => bail!("unknown option {option:?}; expected --kernels LIST or --kernels all"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        by_names(list).unwrap().iter().map(|kernel| kernel.name).collect()
    }

    #[test]
    fn kernels_are_selected_by_list_without_duplicates() {
        assert_eq!(names("6.12,6.1,6.12"), ["6.12", "6.1"]);
        assert_eq!(names("all"), ["5.10", "6.1", "6.12", "6.18", "7.2", "6.12-page-tracking", "6.1-arm64"]);
        assert_eq!(names(DEFAULT), [DEFAULT]);
        assert!(by_names("6.1,2.4").unwrap_err().to_string().contains("2.4"));
    }

    #[test]
    fn option_takes_an_optional_list() {
        let parse = |options: &[&str]| from_options(&options.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(parse(&[]).unwrap(), None);
        assert_eq!(parse(&["--kernels", "5.10"]).unwrap().unwrap().len(), 1);
        assert_eq!(parse(&["--kernels"]).unwrap().unwrap().len(), ALL.len());
        assert!(parse(&["--kernel", "5.10"]).is_err());
    }
}
