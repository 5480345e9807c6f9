//! The machine that the numbers are of.

use std::fs;

use serde::Serialize;

/// The machine that the numbers are of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Machine {
    cpu: String,
    processors: usize,
    /// Whether it is a guest of a hypervisor, which makes a single step many times dearer.
    is_virtual: bool,
    kernel: String,
    system: String,
}

impl Machine {
    /// This one.
    pub(crate) fn this() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let unknown = || String::from("unknown");
        Self {
            cpu: field(&cpuinfo, "model name").map_or_else(unknown, String::from),
            processors: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            is_virtual: field(&cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: read("/etc/os-release")
                .lines()
                .find_map(|line| line.strip_prefix("PRETTY_NAME="))
                .map_or_else(unknown, |name| name.trim_matches('"').to_owned()),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The first field of that name, as `/proc/cpuinfo` writes fields (proc_cpuinfo(5)).
fn field<'text>(cpuinfo: &'text str, name: &str) -> Option<&'text str> {
    cpuinfo.lines().find_map(|line| Some(line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_told_from_one_whose_name_is_longer() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor\n";
        assert_eq!(field(cpuinfo, "model"), Some("17"));
        assert_eq!(field(cpuinfo, "model name"), Some("AMD EPYC"));
        assert_eq!(field(cpuinfo, "bugs"), None);
    }
}
