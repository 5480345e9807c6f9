//! Parser of `/proc/PID/cgroup`: the cgroup of a process, with its systemd unit, container and pod. It does no I/O.
//!
//! The names in the paths are conventions of user space: systemd names units, container runtimes name containers, the
//! kubelet names pods. The tests have a table of real paths.

use std::cmp::Reverse;

use memtrace_model::{Cgroup, Container};

/// Suffixes of the systemd units that contain processes. Slices only contain other units.
const UNITS: &[&str] = &[".service", ".scope", ".mount", ".socket", ".swap"];

/// Prefixes that runtimes put before a container's id. `.scope` may follow the id. Monitors of a runtime, such as
/// `libpod-conmon-ID.scope`, do not match: `conmon-ID` is not an id.
const RUNTIMES: &[(&str, &str)] = &[
    ("docker-", "docker"),
    ("nerdctl-", "containerd"),
    ("cri-containerd-", "containerd"),
    ("containerd-", "containerd"),
    ("crio-", "crio"),
    ("cri-o-", "crio"),
    ("libpod-payload-", "podman"),
    ("libpod-", "podman"),
];

/// Returns the most specific cgroup among the lines of `/proc/PID/cgroup`: `HIERARCHY:CONTROLLERS:PATH` (cgroups(7)). A
/// process is in one cgroup of each hierarchy: version 2 has a single hierarchy with number 0, version 1 may have
/// several others. Returns `None` if there is no line.
pub(super) fn parse(text: &str) -> Option<Cgroup> {
    text.lines()
        .filter_map(line)
        .max_by_key(|(rank, cgroup)| (specificity(cgroup), Reverse(*rank)))
        .map(|(_, cgroup)| cgroup)
}

/// Same as [`parse`], for a process that is exiting. The kernel shows such a process in the root of each hierarchy of
/// version 1 (`proc_cgroup_show`, kernel/cgroup/cgroup.c), so lines of version 1 are ignored.
pub(super) fn parse_exiting(text: &str) -> Option<Cgroup> {
    let (version_2, version_1): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("0::"));
    let cgroup = parse(&version_2.join("\n"))?;
    (version_1.is_empty() || cgroup.path != "/").then_some(cgroup)
}

/// Parses a line. Returns its cgroup with the rank of its hierarchy. Of equally specific cgroups, the lowest rank wins.
fn line(line: &str) -> Option<(u32, Cgroup)> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let rank = match (number, controllers) {
        ("0", "") => 0,
        (_, "name=systemd") => 1,
        (_, controllers) if controllers.split(',').any(|name| name == "memory") => 2,
        _ => 3,
    };
    // The kernel appends ` (deleted)` to the path of a removed cgroup (`proc_cgroup_show`, kernel/cgroup/cgroup.c).
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.starts_with('/').then(|| (rank, parse_path(path)))
}

/// Sort key: cgroups with a container, a pod, a unit or a path other than the root are more specific.
fn specificity(cgroup: &Cgroup) -> (bool, bool, bool, bool) {
    (cgroup.container.is_some(), cgroup.pod.is_some(), cgroup.unit.is_some(), cgroup.path != "/")
}

fn parse_path(path: &str) -> Cgroup {
    // containerd writes `SLICE:cri-containerd:ID` if the kubelet uses the systemd cgroup driver.
    let names: Vec<&str> = path.split(['/', ':']).filter(|name| !name.is_empty()).collect();
    let unit = names.iter().rev().find(|name| UNITS.iter().any(|end| name.ends_with(end)));
    let container = (0..names.len()).rev().find_map(|at| container(&names[..=at]));
    let pod = names.iter().rev().find_map(|name| pod(name));
    Cgroup { path: path.to_owned(), unit: unit.map(|&unit| unit.to_owned()), container, pod }
}

/// Returns the container if the last of `names` is the cgroup of a container.
fn container(names: &[&str]) -> Option<Container> {
    let (&name, ancestors) = names.split_last()?;
    let parent = ancestors.last().copied().unwrap_or_default();
    let named = |runtime, id: &str| Some(Container { runtime: Some(runtime), id: id.to_owned() });
    let bare = name.strip_suffix(".scope").unwrap_or(name);
    if let Some((runtime, id)) =
        RUNTIMES.iter().find_map(|(start, runtime)| Some((*runtime, bare.strip_prefix(start).filter(|id| is_id(id))?)))
    {
        return named(runtime, id);
    }
    if is_id(name) {
        let runtime = match parent {
            "docker" => Some("docker"),
            "cri-containerd" => Some("containerd"),
            "crio" => Some("crio"),
            _ => None,
        };
        return Some(Container { runtime, id: name.to_owned() });
    }
    if let Some(machine) = name.strip_prefix("machine-").and_then(|name| name.strip_suffix(".scope")) {
        let machine = unescaped(machine);
        // libvirt registers virtual machines too. The process in such a cgroup is the emulator.
        return if machine.starts_with("qemu-") { None } else { named("nspawn", &machine) };
    }
    if let Some(instance) = name.strip_prefix("systemd-nspawn@").and_then(|name| name.strip_suffix(".service")) {
        return named("nspawn", &unescaped(instance));
    }
    if let Some(name) = name.strip_prefix("lxc.payload.") {
        return named("lxc", name);
    }
    matches!(parent, "lxc" | "lxc.payload").then(|| named("lxc", name))?
}

/// Returns true for a container id: 64 hexadecimal digits.
fn is_id(text: &str) -> bool {
    text.len() == 64 && is_hex(text)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns the uid of the pod if `name` is the cgroup of a pod. The uid follows `pod`, at the start or after a dash.
fn pod(name: &str) -> Option<String> {
    let bare = name.strip_suffix(".slice").unwrap_or(name);
    let uid = bare.strip_prefix("pod").or_else(|| bare.rsplit_once("-pod").map(|(_, uid)| uid))?;
    // Dashes separate the levels of systemd slices, so names of slices have underscores in place of the uid's dashes.
    let uid = uid.replace('_', "-");
    is_uid(&uid).then_some(uid)
}

/// Returns true for the uid of a pod: a UUID, or a hash for a static pod.
fn is_uid(text: &str) -> bool {
    let groups: Vec<_> = text.split('-').collect();
    groups.iter().all(|group| is_hex(group))
        && matches!(groups.iter().map(|group| group.len()).collect::<Vec<_>>()[..], [8, 4, 4, 4, 12] | [32])
}

/// Reverts systemd's escaping: `\x2d` for a dash (systemd-escape(1)).
fn unescaped(name: &str) -> String {
    let mut parts = name.split("\\x");
    let mut plain = String::from(parts.next().unwrap_or_default());
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(u8::is_ascii);
        match byte {
            Some(byte) => {
                plain.push(char::from(byte));
                plain.push_str(&part[2..]);
            }
            None => {
                plain.push_str("\\x");
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests;
