use super::*;

#[test]
fn whatever_is_not_good_has_a_remedy() {
    for pid in [Pid(std::process::id()), Pid(u32::MAX)] {
        for finding in examine(Some(pid)) {
            let good = matches!(finding.verdict, Verdict::Ok | Verdict::Info);
            assert_eq!(finding.remedy.is_none(), good, "{finding:?}");
        }
    }
}

#[test]
fn a_hostile_name_stays_in_its_line() {
    let found = Finding::warn(Area::Process, "process 7", "a\nfail  b\x1b[2J", "kill\r7");
    assert_eq!(found.detail, "a\u{fffd}fail  b\u{fffd}[2J");
    assert_eq!(found.remedy.as_deref(), Some("kill\u{fffd}7"));
}

#[test]
fn privileged_a_machine_that_can_trace_is_found_to_have_all_that_it_takes() {
    let findings = examine(None);
    let failed: Vec<_> = findings.iter().filter(|finding| finding.verdict == Verdict::Fail).collect();
    assert_eq!(failed, [] as [&Finding; 0]);
    for needed in ["type information", "uprobes", "ring buffers", "kernel half", "probes", "CAP_BPF", "CAP_PERFMON"] {
        let verdicts: Vec<_> = findings.iter().filter(|finding| finding.subject == needed).collect();
        assert!(matches!(verdicts[..], [Finding { verdict: Verdict::Ok, .. }]), "{needed}: {verdicts:?}");
    }
}
