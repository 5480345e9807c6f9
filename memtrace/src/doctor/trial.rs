//! What came of trying something, told apart: it works, it was not permitted, or it cannot work.

use std::io;

use super::permissions::{self, Capability, Held, SYS_ADMIN};
use super::{Area, Finding};
use crate::kernel::{Kernel, KernelError, Probes};
use crate::procfs::{Objects, ProcessError};
use crate::session::overhead::probe_cost;
use crate::session::overhead::probe_cost::ProbeCost;

/// Why a trial failed.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It was not permitted.
    NotPermitted(String),
    /// It did not work.
    Failed(String),
}

impl From<KernelError> for Refusal {
    fn from(error: KernelError) -> Self {
        let text = error.to_string();
        if matches!(error, KernelError::Permission { .. }) { Self::NotPermitted(text) } else { Self::Failed(text) }
    }
}

impl Refusal {
    /// What the system said to an action.
    pub(super) fn of(action: &str, error: &io::Error) -> Self {
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

/// Something that is tried.
pub(super) struct Trial {
    pub(super) subject: &'static str,
    /// What it takes.
    pub(super) needs: &'static [Capability],
    /// What to do where it does not work though it is permitted.
    pub(super) remedy: &'static str,
}

impl Trial {
    /// What a trial's outcome means for those who hold these capabilities.
    pub(super) fn judge(&self, held: &Held, outcome: Result<impl AsRef<str>, Refusal>) -> Finding {
        let Self { subject, needs, remedy } = *self;
        match (outcome, held.missing(needs)) {
            (Ok(detail), _) => Finding::ok(Area::Kernel, subject, detail),
            // Not the kernel's fault, and perhaps all is well with it.
            (Err(Refusal::NotPermitted(_)), Some(missing)) => {
                let detail = format!("not known: it cannot be tried without {missing}");
                Finding::warn(Area::Kernel, subject, detail, permissions::remedy())
            }
            (Err(Refusal::NotPermitted(text)), None) if held.missing(&[SYS_ADMIN]).is_some() => {
                let detail = format!("{text}: this kernel asks for {}", SYS_ADMIN.name);
                Finding::fail(Area::Permissions, subject, detail, permissions::remedy())
            }
            (Err(Refusal::NotPermitted(text)), None) => Finding::fail(
                Area::Permissions,
                subject,
                format!("{text}, though {} is held", SYS_ADMIN.name),
                "run memtrace outside of the container or sandbox, or allow it bpf and perf_event_open there \
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

/// Probes memtrace's own process, as a target is probed, and takes the probes away again.
pub(super) fn probe_oneself(kernel: &mut Kernel) -> Result<ProbeCost, Refusal> {
    // Functions whose return is probed too, so that both kinds of probe are tried.
    Ok(probe_cost::measure(kernel, &mut Probes::default(), &mut Objects::new())?)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    const TRIAL: Trial = Trial { subject: "thing", needs: &[permissions::BPF], remedy: "boot another kernel" };

    fn judged(mask: &str, outcome: Result<&str, Refusal>) -> (Area, Verdict, String) {
        let held = Held::by(Some(&format!("CapEff: {mask}")));
        let found = TRIAL.judge(&held, outcome);
        (found.area, found.verdict, found.detail)
    }

    #[test]
    fn a_refusal_for_lack_of_a_capability_says_nothing_of_the_kernel_but_which_it_is() {
        let refused = || Err(Refusal::NotPermitted("not permitted".into()));
        let expected = "not known: it cannot be tried without CAP_BPF".to_owned();
        assert_eq!(judged("0", refused()), (Area::Kernel, Verdict::Warn, expected));
        let expected = "not permitted: this kernel asks for CAP_SYS_ADMIN".to_owned();
        assert_eq!(judged("8000000000", refused()), (Area::Permissions, Verdict::Fail, expected));
        let expected = "not permitted, though CAP_SYS_ADMIN is held".to_owned();
        assert_eq!(judged("8000200000", refused()), (Area::Permissions, Verdict::Fail, expected));
    }

    #[test]
    fn what_works_is_ok_and_what_fails_is_the_kernels_whoever_tries() {
        for mask in ["0", "8000000000"] {
            assert_eq!(judged(mask, Ok("there")), (Area::Kernel, Verdict::Ok, "there".to_owned()));
            let failed = judged(mask, Err(Refusal::Failed("EINVAL".into())));
            assert_eq!(failed, (Area::Kernel, Verdict::Fail, "EINVAL".to_owned()));
        }
    }

    #[test]
    fn the_systems_errors_are_told_apart_by_their_numbers() {
        let of = |number| Refusal::of("try", &io::Error::from_raw_os_error(number));
        assert!(matches!(of(libc::EPERM), Refusal::NotPermitted(_)));
        assert!(matches!(of(libc::EACCES), Refusal::NotPermitted(_)));
        assert!(matches!(of(libc::EINVAL), Refusal::Failed(_)));
    }
}
