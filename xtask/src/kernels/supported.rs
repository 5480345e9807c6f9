//! The kernels that memtrace is tested on, and which of them are asked for.

use anyhow::{Result, bail};
use bpf_artifact::{Machine, Variant};

/// A kernel that is supported.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// As Linux numbers it, and what it runs on unless that is x86_64.
    pub(crate) name: &'static str,
    /// What it runs on.
    pub(crate) machine: Machine,
    /// Debian's suites that have, or had lately, a kernel of that number.
    pub(super) suites: &'static [&'static str],
    /// Which programs of an object its verifier refuses, and what it says then; those of the others it takes.
    pub(super) refuses: &'static [(Variant, &'static str)],
}

const X86: Machine = Machine::X86_64;

/// All of them, the oldest first.
pub(crate) const ALL: &[Kernel] = &[
    Kernel {
        name: "5.10",
        machine: X86,
        suites: &["bullseye"],
        refuses: &[
            (Variant::Usual, "BPF_STX uses reserved fields"),
            (Variant::Plain, "invalid func unknown#174"),
            (Variant::Plain, "invalid func unknown#158"),
        ],
    },
    Kernel { name: "6.1", machine: X86, suites: &["bookworm"], refuses: &[] },
    Kernel { name: "6.12", machine: X86, suites: &["trixie"], refuses: &[] },
    Kernel { name: "6.18", machine: X86, suites: &["trixie-backports"], refuses: &[] },
    Kernel { name: "7.2", machine: X86, suites: &["sid", "trixie-backports"], refuses: &[] },
    Kernel { name: "6.1-arm64", machine: Machine::Aarch64, suites: &["bookworm"], refuses: &[] },
];

/// The one that `cargo xtask test` always runs.
pub(crate) const USUAL: &str = "6.1";

impl Kernel {
    /// Its number.
    pub(super) fn number(&self) -> &'static str {
        self.name.split('-').next().unwrap_or(self.name)
    }

    /// Debian's name of what it runs on.
    pub(super) const fn architecture(&self) -> &'static str {
        match self.machine {
            Machine::X86_64 => "amd64",
            Machine::Aarch64 => "arm64",
        }
    }
}

/// Those that a list with commas names; `all` is every one.
pub(crate) fn named(list: &str) -> Result<Vec<&'static Kernel>> {
    if list == "all" {
        return Ok(ALL.iter().collect());
    }
    let mut found: Vec<&Kernel> = Vec::new();
    for name in list.split(',') {
        let Some(kernel) = ALL.iter().find(|kernel| kernel.name == name.trim()) else {
            let known: Vec<_> = ALL.iter().map(|kernel| kernel.name).collect();
            bail!("{name:?} is no supported kernel; there are: {}, all", known.join(", "));
        };
        if !found.contains(&kernel) {
            found.push(kernel);
        }
    }
    Ok(found)
}

/// What follows `--kernels`; nothing without it.
pub(crate) fn asked_for(options: &[String]) -> Result<Option<Vec<&'static Kernel>>> {
    match options {
        [] => Ok(None),
        [option, list] if option == "--kernels" => named(list).map(Some),
        [option] if option == "--kernels" => named("all").map(Some),
        [option, ..] => bail!("{option:?} is not understood; there is --kernels LIST, and --kernels all"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        named(list).unwrap().iter().map(|kernel| kernel.name).collect()
    }

    #[test]
    fn a_list_names_kernels_once_each_and_all_names_every_one() {
        assert_eq!(names("6.12,6.1,6.12"), ["6.12", "6.1"]);
        assert_eq!(names("all"), ["5.10", "6.1", "6.12", "6.18", "7.2", "6.1-arm64"]);
        assert_eq!(names(USUAL), [USUAL]);
        assert!(named("6.1,2.4").unwrap_err().to_string().contains("2.4"));
    }

    #[test]
    fn the_list_follows_its_option() {
        let asked = |options: &[&str]| asked_for(&options.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(asked(&[]).unwrap(), None);
        assert_eq!(asked(&["--kernels", "5.10"]).unwrap().unwrap().len(), 1);
        assert_eq!(asked(&["--kernels"]).unwrap().unwrap().len(), ALL.len());
        assert!(asked(&["--kernel", "5.10"]).is_err());
    }
}
