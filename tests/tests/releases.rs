//! Kernel releases: each command that loads BPF programs runs on Linux 5.17 and newer. On an older kernel, it fails and
//! names the release as the reason.

use std::fs;
use std::process::Command;

use memtrace_tests::kernel::{FIND_VMA, version};
use memtrace_tests::{Scratch, breakpoints, doctor, tracer, victim};

/// Exit code: the kernel lacks a feature.
const KERNEL: i32 = 5;

#[test]
fn releases_before_5_17_are_refused_by_every_command() {
    let victim = victim::start_with("steady", &["100"]);
    let pid = victim.pid().to_string();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel has a release");
    let scratch = Scratch::new();
    let file = |name: &str| scratch.path(name).to_string_lossy().into_owned();
    let commands: [&[&str]; 9] = [
        &["--pid", &pid, "--duration", "1s", "-o", &file("heap.json")],
        &["-o", &file("command.json"), "--", "true"],
        &["faults", "--pid", &pid, "--duration", "1s", "-o", &file("faults.json")],
        &["maps", "--pid", &pid, "--duration", "1s", "-o", &file("maps.json")],
        &["reclaim", "--pid", &pid, "--duration", "1s", "-o", &file("reclaim.json")],
        &["record", "--pid", &pid, "--duration", "1s", "-o", &file("record.memtrace")],
        &["accounts", "--pid", &pid, "--duration", "1s"],
        &["threads", "--pid", &pid, "--once"],
        &["wss", "--pid", &pid, "--method", "faults", "100ms"],
    ];
    for words in commands {
        let output = Command::new(tracer::binary()).args(words).output().expect("memtrace starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        if version() >= FIND_VMA {
            assert_eq!(output.status.code(), Some(0), "{words:?}: {stderr}");
        } else {
            assert_eq!(output.status.code(), Some(KERNEL), "{words:?}: {stderr}");
            let named = format!("it is Linux {}", release.trim());
            for word in ["bpf_find_vma", &named, "boot Linux 5.17 or newer"] {
                assert!(stderr.contains(word), "{words:?}: `{word}` is not in {stderr}");
            }
            assert_eq!(breakpoints::list(victim.pid()), [""; 0]);
            assert_eq!(fs::read_dir(scratch.path("")).expect("the directory exists").count(), 0, "{words:?}");
        }
    }
}

#[test]
fn doctor_names_a_release_before_5_17() {
    let output = doctor::run();
    let verdicts = ["release", "BPF programs"].map(|subject| &*output.findings_on(subject)[0].verdict);
    if version() >= FIND_VMA {
        assert_eq!(verdicts, ["ok"; 2], "{output:#?}");
    } else {
        assert_eq!((verdicts, output.code), (["warn", "fail"], Some(KERNEL)), "{output:#?}");
        let programs = output.findings_on("BPF programs")[0];
        assert!(programs.detail.contains("bpf_find_vma"), "{programs:#?}");
        assert_eq!(programs.remedy.as_deref(), Some("boot Linux 5.17 or newer"));
    }
}
