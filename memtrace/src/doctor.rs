//! Checks of the kernel, the capabilities and the target; features are tried where possible.

mod allocators;
mod finding;
mod kernel;
mod namespaces;
mod patching;
mod permissions;
mod process;
mod symbols;
mod trial;
mod working_sets;

use memtrace_host::privileges::effective_capabilities;
use memtrace_model::Pid;

pub(crate) use finding::{Area, Finding, Verdict};
pub(crate) use patching::{StubState, stubs};

/// Checks the requirements of tracing and, if `pid` is given, that process.
pub(crate) fn examine(pid: Option<Pid>) -> Vec<Finding> {
    let held = effective_capabilities();
    let (mut findings, probe_cost) = kernel::examine(held);
    findings.extend(permissions::examine(held));
    findings.extend(namespaces::examine());
    findings.push(working_sets::examine());
    findings.extend(pid.into_iter().flat_map(|pid| process::examine(pid, probe_cost)));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_warning_and_failure_has_a_remedy() {
        for pid in [Pid(std::process::id()), Pid(u32::MAX)] {
            for finding in examine(Some(pid)) {
                let good = matches!(finding.verdict, Verdict::Ok | Verdict::Info);
                assert_eq!(finding.remedy.is_none(), good, "{finding:?}");
            }
        }
    }

    #[test]
    fn privileged_machine_that_can_trace_passes_all_checks() {
        let findings = examine(None);
        let failed: Vec<_> = findings.iter().filter(|finding| finding.verdict == Verdict::Fail).collect();
        assert_eq!(failed, [] as [&Finding; 0]);
        for subject in
            ["type information", "uprobes", "ring buffers", "BPF programs", "probes", "CAP_BPF", "CAP_PERFMON"]
        {
            let verdicts: Vec<_> = findings.iter().filter(|finding| finding.subject == subject).collect();
            assert!(matches!(verdicts[..], [Finding { verdict: Verdict::Ok, .. }]), "{subject}: {verdicts:?}");
        }
    }
}
