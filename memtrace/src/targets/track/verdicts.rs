//! Reasons why objects have no traced allocator.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use memtrace_model::UntracedReason;
use memtrace_object::allocators::Verdict;

/// Maximum number of remembered verdicts. When it is reached, all verdicts are forgotten, and objects are examined
/// again.
const MAX_VERDICTS: usize = 1 << 16;

/// Reason why an object has no traced allocator, by its handle; `None` if it has one.
#[derive(Debug, Default)]
pub(super) struct Verdicts(HashMap<PathBuf, Option<UntracedReason>>);

impl Verdicts {
    pub(super) fn insert(&mut self, handle: PathBuf, reason: Option<UntracedReason>) {
        if self.0.len() >= MAX_VERDICTS {
            self.0.clear();
        }
        self.0.insert(handle, reason);
    }

    /// Forgets objects with closed files.
    pub(super) fn forget(&mut self, closed: &HashSet<PathBuf>) {
        self.0.retain(|handle, _| !closed.contains(handle));
    }

    pub(super) fn get(&self, handle: &Path) -> Option<Option<UntracedReason>> {
        self.0.get(handle).copied()
    }
}

/// Returns the reason why an object with this verdict has no traced allocator; `None` if it has one.
pub(super) const fn obstacle(verdict: &Verdict) -> Option<UntracedReason> {
    match verdict {
        Verdict::Traced(_) => None,
        Verdict::Unprobeable(..) => Some(UntracedReason::UnsupportedAllocator),
        Verdict::Lacks(_) | Verdict::DynamicLinker | Verdict::Own | Verdict::NotElf => {
            Some(UntracedReason::NoAllocator)
        }
        Verdict::NoSymbols => Some(UntracedReason::Stripped),
        Verdict::Go => Some(UntracedReason::Go),
        Verdict::Foreign(_) => Some(UntracedReason::Architecture),
        Verdict::NotOpened => Some(UntracedReason::Unreadable),
        Verdict::Bad(_) => Some(UntracedReason::Damaged),
    }
}

#[cfg(test)]
mod tests {
    use memtrace_object::allocators::{Kind, Kinds};

    use super::*;

    #[test]
    fn only_a_traced_allocator_is_no_obstacle() {
        let kinds = || Kinds::one(Kind::known("glibc").unwrap());
        assert_eq!(obstacle(&Verdict::Traced(kinds())), None);
        let reasons = [
            (Verdict::Unprobeable(kinds(), "free"), UntracedReason::UnsupportedAllocator),
            (Verdict::Lacks("malloc"), UntracedReason::NoAllocator),
            (Verdict::Own, UntracedReason::NoAllocator),
            (Verdict::NoSymbols, UntracedReason::Stripped),
            (Verdict::Go, UntracedReason::Go),
            (Verdict::Foreign("32 bits"), UntracedReason::Architecture),
            (Verdict::NotOpened, UntracedReason::Unreadable),
            (Verdict::Bad(String::new()), UntracedReason::Damaged),
        ];
        for (verdict, reason) in reasons {
            assert_eq!(obstacle(&verdict), Some(reason), "{verdict:?}");
        }
    }

    #[test]
    fn full_verdicts_start_empty() {
        let mut verdicts = Verdicts::default();
        for number in 0..=MAX_VERDICTS {
            verdicts.insert(PathBuf::from(number.to_string()), Some(UntracedReason::Go));
        }
        assert_eq!(verdicts.get(Path::new("0")), None, "it is examined again");
        assert_eq!(verdicts.get(Path::new(&MAX_VERDICTS.to_string())), Some(Some(UntracedReason::Go)));
    }
}
