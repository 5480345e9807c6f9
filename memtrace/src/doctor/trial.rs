//! Trials of kernel features. A feature works, is not permitted, or fails.

use std::io;

use memtrace_host::kernel::{Kernel, KernelError, Probes};
use memtrace_host::privileges::CapabilitySet;
use memtrace_host::procfs::{Objects, ProcessError};

use super::finding::{Area, Finding};
use super::permissions::{self, Capability, SYS_ADMIN, missing};
use crate::run_kit::probe_cost;
use crate::run_kit::probe_cost::ProbeCost;

/// Reason for the failure of a trial.
#[derive(Debug)]
pub(super) enum Refusal {
    NotPermitted(String),
    Failed(String),
}

impl From<KernelError> for Refusal {
    fn from(error: KernelError) -> Self {
        let text = error.to_string();
        if matches!(error, KernelError::Permission { .. }) { Self::NotPermitted(text) } else { Self::Failed(text) }
    }
}

impl Refusal {
    /// Converts the error of an action; `action` is a verb with its object.
    pub(super) fn from_io(action: &str, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::PermissionDenied {
            Self::NotPermitted(format!("not permitted to {action}: {error}"))
        } else {
            Self::Failed(format!("could not {action}: {error}"))
        }
    }
}

impl From<ProcessError> for Refusal {
    fn from(error: ProcessError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A feature to try.
pub(super) struct Trial {
    pub(super) subject: &'static str,
    pub(super) needs: &'static [Capability],
    /// Remedy if the trial fails although it is permitted.
    pub(super) remedy: &'static str,
}

impl Trial {
    /// Returns the finding for the outcome of a trial. `held`: the capabilities of memtrace.
    pub(super) fn judge(&self, held: CapabilitySet, outcome: Result<impl AsRef<str>, Refusal>) -> Finding {
        let Self { subject, needs, remedy } = *self;
        match (outcome, missing(held, needs)) {
            (Ok(detail), _) => Finding::ok(Area::Kernel, subject, detail),
            // A refusal for lack of a capability says nothing about the feature.
            (Err(Refusal::NotPermitted(_)), Some(missing)) => {
                let detail = format!("not known: the trial needs {missing}");
                Finding::warn(Area::Kernel, subject, detail, permissions::remedy())
            }
            (Err(Refusal::NotPermitted(text)), None) if missing(held, &[SYS_ADMIN]).is_some() => {
                let detail = format!("{text}: this kernel requires {}", SYS_ADMIN.name);
                Finding::fail(Area::Permissions, subject, detail, permissions::remedy())
            }
            (Err(Refusal::NotPermitted(text)), None) => Finding::fail(
                Area::Permissions,
                subject,
                format!("{text} despite {}", SYS_ADMIN.name),
                "run memtrace outside of the container or sandbox, or permit bpf and perf_event_open there \
                 (docker run --privileged)",
            ),
            (Err(Refusal::Failed(text)), _) => Finding::fail(Area::Kernel, subject, text, remedy),
        }
    }
}

impl From<probe_cost::Error> for Refusal {
    fn from(error: probe_cost::Error) -> Self {
        match error {
            probe_cost::Error::Kernel(error) => error.into(),
            other => Self::Failed(other.to_string()),
        }
    }
}

/// Attaches probes to memtrace's own process, measures their cost, and removes them.
pub(super) fn probe_own_process(kernel: &mut Kernel) -> Result<ProbeCost, Refusal> {
    Ok(probe_cost::measure(kernel, &mut Probes::default(), &mut Objects::new())?)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    const TRIAL: Trial = Trial { subject: "thing", needs: &[permissions::BPF], remedy: "boot another kernel" };

    fn judged(held: CapabilitySet, outcome: Result<&str, Refusal>) -> (Area, Verdict, String) {
        let found = TRIAL.judge(held, outcome);
        (found.area, found.verdict, found.detail)
    }

    #[test]
    fn missing_capability_is_named_and_leaves_the_feature_unknown() {
        let refused = || Err(Refusal::NotPermitted("not permitted".into()));
        let expected = "not known: the trial needs CAP_BPF".to_owned();
        assert_eq!(judged(CapabilitySet::empty(), refused()), (Area::Kernel, Verdict::Warn, expected));
        let expected = "not permitted: this kernel requires CAP_SYS_ADMIN".to_owned();
        assert_eq!(judged(CapabilitySet::BPF, refused()), (Area::Permissions, Verdict::Fail, expected));
        let expected = "not permitted despite CAP_SYS_ADMIN".to_owned();
        assert_eq!(
            judged(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN, refused()),
            (Area::Permissions, Verdict::Fail, expected)
        );
    }

    #[test]
    fn success_and_failure_do_not_depend_on_capabilities() {
        for held in [CapabilitySet::empty(), CapabilitySet::BPF] {
            assert_eq!(judged(held, Ok("there")), (Area::Kernel, Verdict::Ok, "there".to_owned()));
            let failed = judged(held, Err(Refusal::Failed("EINVAL".into())));
            assert_eq!(failed, (Area::Kernel, Verdict::Fail, "EINVAL".to_owned()));
        }
    }

    #[test]
    fn io_errors_are_classified_by_number() {
        let refusal = |number| Refusal::from_io("try", &io::Error::from_raw_os_error(number));
        assert!(matches!(refusal(libc::EPERM), Refusal::NotPermitted(_)));
        assert!(matches!(refusal(libc::EACCES), Refusal::NotPermitted(_)));
        assert!(matches!(refusal(libc::EINVAL), Refusal::Failed(_)));
    }
}
