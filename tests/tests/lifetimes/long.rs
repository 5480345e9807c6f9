//! Storms of processes.

use super::*;

#[test]
fn every_process_of_a_storm_is_recorded_with_its_end() {
    // With stacks of the other processes, the trace would take longer than the storm.
    let tracer = Trace::system_wide().options(&["--max-depth", "0", "--keep-ended", "10000"]).start();
    let mut expected = BTreeMap::new();
    for (command, comm) in [("/bin/true", "true"), ("/bin/echo", "echo")] {
        for _ in 0..STORM {
            let mut child = Command::new(command).stdout(Stdio::null()).spawn().expect("the command exists");
            expected.insert(child.id(), (comm, Some("exit")));
            assert!(child.wait().expect("the command ends").success());
        }
    }
    let outcome = tracer.stop();
    assert_eq!(expected.len(), 2 * STORM, "a pid was used twice");
    // Other processes of a busy machine can fill the rings. Even then, no end of a process may be
    // lost.
    let report = outcome.report_with_code(outcome.code.filter(|code| *code == 20).unwrap_or(0));
    for reason in [LossReason::RingFullProcess, LossReason::ProcessesFull, LossReason::MappingsLost] {
        assert_eq!(report.loss_count(reason), 0, "{:?}", report.losses);
    }
    report.assert_consistent();
    let mut found = BTreeMap::new();
    for process in report.processes.iter().filter(|process| expected.contains_key(&process.pid)) {
        assert!(process.ended.is_some() && process.ended_s.is_some(), "{process:?}");
        // The last entry of a pid is the image after the exec.
        found.insert(process.pid, (&*process.comm, process.ended.as_deref()));
    }
    assert_eq!(found, expected);
}
