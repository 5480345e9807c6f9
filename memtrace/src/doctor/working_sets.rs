//! Methods of `memtrace wss`.

use super::finding::{Area, Finding};
use crate::procfs;

pub(super) fn examine() -> Finding {
    check(procfs::has_clear_refs())
}

fn check(has_clear_refs: bool) -> Finding {
    const SUBJECT: &str = "working sets";
    if has_clear_refs {
        return Finding::ok(Area::Kernel, SUBJECT, "method referenced: the accessed bits of the page tables");
    }
    Finding::warn(
        Area::Kernel,
        SUBJECT,
        "the kernel has no /proc/PID/clear_refs, so `memtrace wss` has no method; tracing works",
        "use a kernel with CONFIG_PROC_PAGE_MONITOR",
    )
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn missing_method_is_a_warning() {
        assert_eq!(check(true).verdict, Verdict::Ok);
        assert_eq!(check(false).verdict, Verdict::Warn);
    }
}
