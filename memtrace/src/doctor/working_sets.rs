//! Methods of `memtrace wss`.

use std::io;

use memtrace_host::kernel::features;
use memtrace_host::pmu::CacheCounters;
use memtrace_host::procfs::{self, Damon, DamonError, PageTracker};
use memtrace_model::{Pid, WorkingSetMethod};

use super::finding::{Area, Finding};

/// Reason that a method is not available: it needs more privileges.
const DENIED: &str = "needs root";

/// A method of `memtrace wss`, and the reason if it is not available.
type Availability = (WorkingSetMethod, Option<&'static str>);

pub(super) fn examine() -> Finding {
    let unless = |is_available: bool, reason| if is_available { None } else { Some(reason) };
    let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let availability = |&method: &WorkingSetMethod| {
        let missing = match method {
            WorkingSetMethod::Referenced => unless(procfs::has_clear_refs(), "CONFIG_PROC_PAGE_MONITOR"),
            WorkingSetMethod::Idle => match PageTracker::idle() {
                Ok(_) => None,
                Err(error) if is_denied(&error) => Some(DENIED),
                Err(_) => Some("CONFIG_IDLE_PAGE_TRACKING"),
            },
            WorkingSetMethod::Written => unless(procfs::has_soft_dirty(), "CONFIG_MEM_SOFT_DIRTY"),
            WorkingSetMethod::Damon => match Damon::find() {
                Ok(()) => None,
                Err(DamonError::InUse) => Some("in use by another program"),
                Err(DamonError::Failed(error)) if is_denied(&error) => Some(DENIED),
                Err(_) => Some("CONFIG_DAMON_VADDR, CONFIG_DAMON_SYSFS"),
            },
            WorkingSetMethod::Faults => {
                unless(features::require().is_ok(), "Linux 5.17, CONFIG_DEBUG_INFO_BTF, CONFIG_UPROBE_EVENTS")
            }
        };
        (method, missing)
    };
    let cache = CacheCounters::start(&[Pid(std::process::id())]).err().map(|error| error.to_string());
    check(&WorkingSetMethod::ALL.iter().map(availability).collect::<Vec<_>>(), cache.as_deref())
}

/// Judges the methods. `cache_error`: reason that the use of the last-level cache cannot be measured.
fn check(methods: &[Availability], cache_error: Option<&str>) -> Finding {
    const SUBJECT: &str = "working sets";
    let available: Vec<_> =
        methods.iter().filter(|(_, missing)| missing.is_none()).map(|(method, _)| method.name()).collect();
    let missing =
        methods.iter().filter_map(|(method, missing)| missing.map(|reason| format!("{} ({reason})", method.name())));
    let missing: Vec<_> = missing.collect();
    if methods.iter().any(|(method, missing)| *method == WorkingSetMethod::Referenced && missing.is_some()) {
        return Finding::warn(
            Area::Kernel,
            SUBJECT,
            "the kernel has no /proc/PID/clear_refs, so `memtrace wss` has no method; tracing works",
            "use a kernel with CONFIG_PROC_PAGE_MONITOR",
        );
    }
    let mut detail = format!("methods {}", available.join(", "));
    if !missing.is_empty() {
        detail += &format!("; not {}", missing.join(", "));
    }
    detail += "; use of the last-level cache: ";
    detail += cache_error.unwrap_or("measured");
    Finding::ok(Area::Kernel, SUBJECT, &detail)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn methods_are_listed_with_the_options_of_missing_ones() {
        let all = [(WorkingSetMethod::Referenced, None), (WorkingSetMethod::Idle, Some("CONFIG_IDLE_PAGE_TRACKING"))];
        let finding = check(&all, Some("there is no PMU"));
        assert_eq!(finding.verdict, Verdict::Ok);
        let expected =
            "methods referenced; not idle (CONFIG_IDLE_PAGE_TRACKING); use of the last-level cache: there is no PMU";
        assert_eq!(finding.detail, expected);
        let expected = "methods referenced; use of the last-level cache: measured";
        assert_eq!(check(&all[..1], None).detail, expected);
    }

    #[test]
    fn kernel_without_a_method_is_a_warning() {
        let finding = check(&[(WorkingSetMethod::Referenced, Some("CONFIG_PROC_PAGE_MONITOR"))], None);
        assert_eq!(finding.verdict, Verdict::Warn);
    }
}
