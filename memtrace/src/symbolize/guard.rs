//! Keeps a panic of blazesym's from ending memtrace.
//!
//! blazesym 0.2.7 panics on debug information that contradicts itself: on a line whose file is not in the table
//! (`dwarf::lines::Lines::row_location`), and, where overflows are checked, on a symbol that ends beyond all addresses
//! (`elf::parser::find_sym`). The target's files are not ours to trust, and a report without one object's names is better
//! than no report.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; `None` where it panicked. What it worked on may be in disorder then, and must not be used again.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    // The hook would print to standard error, in the midst of the report's summary. Panics elsewhere still go the old way.
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if GUARDED.get() {
                log::debug!("while symbolizing: {info}");
            } else {
                previous(info);
            }
        }));
    });
    GUARDED.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(false);
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_value_and_the_next_work_runs() {
        assert_eq!(guarded(|| panic!("on purpose")), None::<u32>);
        assert_eq!(guarded(|| 7), Some(7));
        assert!(!GUARDED.get());
    }
}
