//! Which control group a process is in, and what that says of it: `/proc/PID/cgroup`. Pure.
//!
//! What stands in the paths is a habit of whoever makes the groups, not of the kernel: systemd names units, container
//! runtimes name containers, the kubelet names pods. The tests have a table of real ones.

use std::cmp::Reverse;

use crate::model::{Cgroup, Container};

/// How systemd's units end that processes are in. Slices only hold others.
const UNITS: &[&str] = &[".service", ".scope", ".mount", ".socket", ".swap"];

/// How runtimes name the group of a container, before its id and perhaps `.scope`. Their monitors, as in
/// `libpod-conmon-ID.scope`, are none: what is behind the prefix is no id.
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

/// The group that says the most, of the lines of `/proc/PID/cgroup`: `HIERARCHY:CONTROLLERS:PATH` (cgroups(7)). A process is
/// in one group of each hierarchy; of version 2 there is one hierarchy, numbered 0, and beside it there may be some of
/// version 1. `None` where there is no line.
pub(crate) fn parse(text: &str) -> Option<Cgroup> {
    text.lines().filter_map(line).max_by_key(|(rank, cgroup)| (worth(cgroup), Reverse(*rank))).map(|(_, cgroup)| cgroup)
}

/// The group of a line, and how soon its hierarchy is taken where several say as much.
fn line(line: &str) -> Option<(u32, Cgroup)> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let rank = match (number, controllers) {
        ("0", "") => 0,
        (_, "name=systemd") => 1,
        (_, controllers) if controllers.split(',').any(|name| name == "memory") => 2,
        _ => 3,
    };
    // What the kernel appends to the path of a group that was removed (`proc_cgroup_show`, kernel/cgroup/cgroup.c).
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.starts_with('/').then(|| (rank, read(path)))
}

/// How much a group says.
fn worth(cgroup: &Cgroup) -> (bool, bool, bool, bool) {
    (cgroup.container.is_some(), cgroup.pod.is_some(), cgroup.unit.is_some(), cgroup.path != "/")
}

/// What a path says.
fn read(path: &str) -> Cgroup {
    // containerd under a kubelet that leaves groups to systemd writes `SLICE:cri-containerd:ID`.
    let names: Vec<&str> = path.split(['/', ':']).filter(|name| !name.is_empty()).collect();
    let unit = names.iter().rev().find(|name| UNITS.iter().any(|end| name.ends_with(end)));
    let container = (0..names.len()).rev().find_map(|at| container(&names[..=at]));
    let pod = names.iter().rev().find_map(|name| pod(name));
    Cgroup { path: path.to_owned(), unit: unit.map(|&unit| unit.to_owned()), container, pod }
}

/// The container whose group the last of `names` is, if it is one's.
fn container(names: &[&str]) -> Option<Container> {
    let (&name, above) = names.split_last()?;
    let parent = above.last().copied().unwrap_or_default();
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
        // libvirt registers its virtual machines too: what runs in those groups is the emulator.
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

/// Whether it is the id of a container: 64 hexadecimal digits.
fn is_id(text: &str) -> bool {
    text.len() == 64 && is_hex(text)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The uid of the pod whose group `name` is: behind `pod`, which begins the name or follows a dash.
fn pod(name: &str) -> Option<String> {
    let bare = name.strip_suffix(".slice").unwrap_or(name);
    let uid = bare.strip_prefix("pod").or_else(|| bare.rsplit_once("-pod").map(|(_, uid)| uid))?;
    // systemd takes dashes for levels of slices, so there they are underscores.
    let uid = uid.replace('_', "-");
    is_uid(&uid).then_some(uid)
}

/// Whether it is what the kubelet calls a pod by: a UUID, or, for one that a file of its own describes, a hash.
fn is_uid(text: &str) -> bool {
    let groups: Vec<_> = text.split('-').collect();
    groups.iter().all(|group| is_hex(group))
        && matches!(groups.iter().map(|group| group.len()).collect::<Vec<_>>()[..], [8, 4, 4, 4, 12] | [32])
}

/// A name as it was before systemd escaped it: `\x2d` for a dash (systemd-escape(1)).
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
