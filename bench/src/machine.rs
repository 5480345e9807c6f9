//! Description of the machine.

use std::fs;

use serde::Serialize;

/// Machine on which the benchmark ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Machine {
    cpu: String,
    processors: usize,
    /// True in a guest of a hypervisor. Single-stepping is much slower there.
    is_virtual: bool,
    kernel: String,
    system: String,
}

impl Machine {
    pub(crate) fn current() -> Self {
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

/// Returns the value of the first field with this name (proc_cpuinfo(5)).
fn field<'text>(cpuinfo: &'text str, name: &str) -> Option<&'text str> {
    cpuinfo.lines().find_map(|line| Some(line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_name_must_match_completely() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor\n";
        assert_eq!(field(cpuinfo, "model"), Some("17"));
        assert_eq!(field(cpuinfo, "model name"), Some("AMD EPYC"));
        assert_eq!(field(cpuinfo, "bugs"), None);
    }
}
