//! What each kernel can do, and what it refuses: these tests hold on every supported one.

use std::fs;
use std::process::Command;

use memtrace_tests::{Trace, Victim, memory, root, tracer};
use serde::Deserialize;

const KERNEL: i32 = 5;

/// The kernel half exchanges words atomically (`BPF_XCHG`, include/uapi/linux/bpf.h), and a mapping's notice can carry a
/// build-id (`PERF_RECORD_MISC_MMAP_BUILD_ID`, include/uapi/linux/perf_event.h), both since Linux 5.12.
const ATOMICS_AND_BUILD_IDS: (u32, u32) = (5, 12);

#[derive(Debug, Deserialize)]
struct Told {
    findings: Vec<Finding>,
    #[serde(skip)]
    code: Option<i32>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    subject: String,
    verdict: String,
    detail: String,
    remedy: Option<String>,
}

impl Told {
    fn about(&self, subject: &str) -> &Finding {
        let found = self.findings.iter().find(|finding| finding.subject == subject);
        found.expect("doctor tells of all that it tries")
    }
}

fn doctor() -> Told {
    root::required();
    let output = Command::new(tracer::binary()).args(["doctor", "--json"]).output().expect("doctor can be run");
    let told: Told = serde_json::from_slice(&output.stdout).expect("doctor writes its own JSON");
    Told { code: output.status.code(), ..told }
}

/// The first two numbers of the running kernel's release.
fn version() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel has a release");
    let mut numbers =
        release.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().expect("a number"));
    (numbers.next().expect("a first number"), numbers.next().expect("a second number"))
}

#[test]
fn what_every_supported_kernel_has_is_found() {
    let told = doctor();
    for subject in ["type information", "uprobes", "ring buffers"] {
        assert_eq!(told.about(subject).verdict, "ok", "{told:#?}");
    }
}

#[test]
fn the_kernel_half_is_loaded_from_linux_5_12_on_and_refused_with_the_verifiers_reason_before() {
    let told = doctor();
    let half = told.about("kernel half");
    if version() >= ATOMICS_AND_BUILD_IDS {
        assert_eq!((told.code, half.verdict.as_str()), (Some(0), "ok"), "{half:#?}");
        assert_eq!(told.about("probes").verdict, "ok", "{told:#?}");
    } else {
        assert_eq!((told.code, half.verdict.as_str()), (Some(KERNEL), "fail"), "{half:#?}");
        assert!(half.detail.contains("BPF_STX uses reserved fields"), "{half:#?}");
        assert_eq!(half.remedy.as_deref(), Some("boot Linux 5.12 or newer"));
        assert_eq!(told.about("probes").verdict, "info", "{told:#?}");
    }
}

#[test]
fn a_target_is_traced_from_linux_5_12_on_and_left_alone_before() {
    let mut victim = Victim::start("exact");
    if version() >= ATOMICS_AND_BUILD_IDS {
        let tracer = Trace::of(&victim).start();
        let books = victim.work();
        tracer.stop().report().assert_equals(&books);
    } else {
        Trace::of(&victim).run().assert_refused(KERNEL, &["BPF_STX uses reserved fields", "memtrace doctor"]);
        assert_eq!(memory::breakpoints(victim.pid()), [""; 0]);
        victim.work();
    }
    assert_eq!(memory::breakpoints(victim.pid()), [""; 0]);
    victim.finish();
}

#[test]
fn mapped_files_are_told_by_build_ids_from_linux_5_12_on_and_by_inodes_before() {
    let told = doctor();
    let notices = told.about("mapping notices");
    let expected = if version() >= ATOMICS_AND_BUILD_IDS {
        ("ok", "files are told by their build-ids")
    } else {
        ("warn", "files are told by device and inode: on overlayfs and btrfs some frames will have no name")
    };
    assert_eq!((notices.verdict.as_str(), notices.detail.as_str()), expected);
}
