use proptest::prelude::*;

use super::*;

const ID: &str = "3f4b8e1c9d7a65200f1e2d3c4b5a69788796a5b4c3d2e1f00123456789abcdef";
const OTHER: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const POD: &str = "2f3c9a1b-7d4e-4c55-9b8a-0123456789ab";
const POD_IN_A_SLICE: &str = "2f3c9a1b_7d4e_4c55_9b8a_0123456789ab";

/// Unit; runtime and id of the container; uid of the pod.
type Parts<'a> = (Option<&'a str>, Option<(Option<&'a str>, &'a str)>, Option<&'a str>);

fn parts(cgroup: &Cgroup) -> Parts<'_> {
    let container = cgroup.container.as_ref().map(|container| (container.runtime, container.id.as_str()));
    (cgroup.unit.as_deref(), container, cgroup.pod.as_deref())
}

#[track_caller]
fn assert_parts(path: &str, unit: Option<&str>, container: Option<(Option<&str>, &str)>, pod: Option<&str>) {
    let cgroup = parse(&format!("0::{path}\n")).expect("a line of version 2");
    assert_eq!(cgroup.path, path);
    assert_eq!(parts(&cgroup), (unit, container, pod), "{path}");
}

#[test]
fn the_innermost_unit_with_processes_counts() {
    let table = [
        ("/", None),
        ("/init.scope", Some("init.scope")),
        ("/system.slice/cron.service", Some("cron.service")),
        ("/system.slice/system-getty.slice/getty@tty1.service", Some("getty@tty1.service")),
        ("/system.slice/systemd-udevd.service/udev", Some("systemd-udevd.service")),
        ("/system.slice/system-postgresql.slice/postgresql@15-main.service", Some("postgresql@15-main.service")),
        ("/user.slice/user-1000.slice/session-3.scope", Some("session-3.scope")),
        ("/user.slice/user-1000.slice/user@1000.service/init.scope", Some("init.scope")),
        ("/user.slice/user-1000.slice/user@1000.service", Some("user@1000.service")),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-firefox-4711.scope",
            Some("app-gnome-firefox-4711.scope"),
        ),
        ("/user.slice", None),
        ("/batch/nightly", None),
    ];
    for (path, unit) in table {
        assert_parts(path, unit, None, None);
    }
}

#[test]
fn containers_are_recognized_by_their_runtimes_names() {
    let table = [
        (format!("/docker/{ID}"), Some("docker")),
        (format!("/kubepods/burstable/pod{POD}/{ID}"), None),
        (format!("/ecs/0123456789abcdef0123456789abcdef/{ID}"), None),
        (format!("/kubepods/besteffort/pod{POD}/crio-{ID}"), Some("crio")),
        (format!("/libpod_parent/libpod-{ID}"), Some("podman")),
        (format!("/docker/{OTHER}/docker/{ID}"), Some("docker")),
    ];
    for (path, runtime) in table {
        let cgroup = parse(&format!("0::{path}")).unwrap();
        assert_eq!(parts(&cgroup).1, Some((runtime, ID)), "{path}");
        assert_eq!(cgroup.unit, None, "{path}");
    }
    let scopes = [
        (format!("docker-{ID}.scope"), "docker"),
        (format!("nerdctl-{ID}.scope"), "containerd"),
        (format!("cri-containerd-{ID}.scope"), "containerd"),
        (format!("crio-{ID}.scope"), "crio"),
        (format!("libpod-{ID}.scope"), "podman"),
        (format!("libpod-payload-{ID}.scope"), "podman"),
    ];
    for (scope, runtime) in scopes {
        let container = Some((Some(runtime), ID));
        assert_parts(&format!("/system.slice/{scope}"), Some(&scope), container, None);
        let user_path = format!("/user.slice/user-1000.slice/user@1000.service/user.slice/{scope}/container");
        assert_parts(&user_path, Some(&scope), container, None);
        let own_systemd = format!("/system.slice/{scope}/system.slice/nginx.service");
        assert_parts(&own_systemd, Some("nginx.service"), container, None);
    }
}

#[test]
fn named_containers_are_recognized() {
    let table = [
        ("/machine.slice/machine-bookworm.scope/payload", Some(("nspawn", "bookworm"))),
        ("/machine.slice/machine-build\\x2dbox.scope", Some(("nspawn", "build-box"))),
        ("/machine.slice/systemd-nspawn@web.service/payload", Some(("nspawn", "web"))),
        ("/lxc.payload.mail/system.slice/postfix.service", Some(("lxc", "mail"))),
        ("/lxc/mail", Some(("lxc", "mail"))),
        ("/lxc.payload/mail/init.scope", Some(("lxc", "mail"))),
        // Monitors of containers and virtual machines are no containers.
        ("/lxc.monitor.mail", None),
        ("/machine.slice/machine-qemu\\x2d1\\x2ddebian.scope", None),
    ];
    for (path, container) in table {
        let cgroup = parse(&format!("0::{path}")).unwrap();
        let container = container.map(|(runtime, id)| (Some(runtime), id));
        assert_eq!(parts(&cgroup).1, container, "{path}");
    }
    for scope in [format!("libpod-conmon-{ID}.scope"), format!("crio-conmon-{ID}.scope")] {
        assert_parts(&format!("/machine.slice/{scope}"), Some(&scope), None, None);
    }
}

#[test]
fn pods_are_recognized_with_both_cgroup_drivers() {
    let scope = format!("cri-containerd-{ID}.scope");
    let containerd = Some((Some("containerd"), ID));
    for slice in ["kubepods-burstable-pod", "kubepods-besteffort-pod", "kubepods-pod", "kubelet-kubepods-burstable-pod"]
    {
        let path = format!("/kubepods.slice/kubepods-burstable.slice/{slice}{POD_IN_A_SLICE}.slice/{scope}");
        assert_parts(&path, Some(&scope), containerd, Some(POD));
    }
    assert_parts(&format!("/kubepods/burstable/pod{POD}/{ID}"), None, Some((None, ID)), Some(POD));
    assert_parts(&format!("/kubepods/pod{POD}"), None, None, Some(POD));
    assert_parts(
        &format!("/system.slice/containerd.service/kubepods-burstable-pod{POD_IN_A_SLICE}.slice:cri-containerd:{ID}"),
        Some("containerd.service"),
        containerd,
        Some(POD),
    );
    // The uid of a static pod is a hash.
    let hash = "0123456789abcdef0123456789abcdef";
    assert_parts(&format!("/kubepods/burstable/pod{hash}/{ID}"), None, Some((None, ID)), Some(hash));
    // A cluster with containers as nodes.
    assert_parts(
        &format!("/docker/{OTHER}/kubelet/kubepods/burstable/pod{POD}/{ID}"),
        None,
        Some((None, ID)),
        Some(POD),
    );
    // Similar names that are not Kubernetes pods: podman's pods and others.
    assert_parts(&format!("/machine.slice/machine-libpod_pod_{ID}.slice"), None, None, None);
    assert_parts("/podcasts/pod-1234/pod", None, None, None);
}

#[test]
fn the_most_specific_cgroup_of_all_hierarchies_counts() {
    // Docker with both versions: the cgroup of version 2 is the service that started the container.
    let hybrid = format!(
        "12:memory:/docker/{ID}\n11:cpu,cpuacct:/docker/{ID}\n1:name=systemd:/docker/{ID}\n\
         0::/system.slice/containerd.service\n"
    );
    let cgroup = parse(&hybrid).unwrap();
    assert_eq!(parts(&cgroup), (None, Some((Some("docker"), ID)), None));

    let service = "5:memory:/system.slice/cron.service\n1:name=systemd:/system.slice/cron.service\n0::/\n";
    assert_eq!(parse(service).unwrap().path, "/system.slice/cron.service");
    // All cgroups are equally specific: version 2 comes first, then systemd, then memory.
    let path_of = |text| parse(text).unwrap().path;
    assert_eq!(path_of("3:pids:/a\n2:memory:/b\n1:name=systemd:/c\n0::/d\n"), "/d");
    assert_eq!(path_of("3:pids:/a\n2:memory:/b\n1:name=systemd:/c\n0::/\n"), "/c");
    assert_eq!(path_of("3:pids:/a\n2:cpu,memory:/b\n1:name=systemd:/\n0::/\n"), "/b");
    assert_eq!(path_of("3:pids:/a:b\n0::/\n"), "/a:b");
    assert_eq!(path_of("0::/\n"), "/");
}

#[test]
fn a_removed_cgroup_keeps_its_name() {
    let cgroup = parse("0::/system.slice/cron.service (deleted)\n").unwrap();
    assert_eq!((cgroup.path.as_str(), cgroup.unit.as_deref()), ("/system.slice/cron.service", Some("cron.service")));
}

#[test]
fn malformed_lines_yield_none() {
    for text in ["", "\n", "0::", "0:", "0::relative\n", "garbage"] {
        assert_eq!(parse(text), None, "{text:?}");
    }
}

#[test]
fn container_ids_have_exactly_64_hex_digits() {
    for near in [&ID[1..], &format!("{ID}0"), &ID.to_uppercase(), &format!("{}g", &ID[1..])] {
        assert_parts(&format!("/docker/{near}"), None, None, None);
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "[0-9a-f:/.\\\\x\n -]{0,80}|.*", path in "[\\\\x0-9ä]{0,12}") {
        let _ = parse(&text);
        let _ = parse(&format!("0::/machine-{path}.scope"));
    }
}

#[test]
fn exiting_process_has_no_cgroup_of_version_1() {
    let path = |text| parse_exiting(text).map(|cgroup| cgroup.path);
    assert_eq!(path("4:memory:/\n1:name=systemd:/\n"), None);
    assert_eq!(path("4:memory:/\n0::/\n"), None, "the other hierarchy may be the meaningful one");
    assert_eq!(path("4:memory:/\n0::/system.slice/cron.service\n").as_deref(), Some("/system.slice/cron.service"));
    assert_eq!(path("0::/\n").as_deref(), Some("/"));
}
