//! Containment of panics in blazesym.
//!
//! blazesym 0.2.7 panics on contradictory debug information. One case is a line with a file outside of the file table
//! (`dwarf::lines::Lines::row_location`). Another case, with overflow checks, is a symbol that ends beyond the
//! address space (`elf::parser::find_sym`). The files of a target are not trusted, and a report without the names of
//! one object is better than no report.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, and returns `None` if it panics. In this case, state that `work` has modified may be inconsistent and
/// must be dropped.
pub(super) fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    // The default hook would print into the report's summary. It still handles panics outside of `work`.
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if IS_CAUGHT.get() {
                log::debug!("symbolization: {info}");
            } else {
                previous(info);
            }
        }));
    });
    IS_CAUGHT.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(false);
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_returned_as_none() {
        assert_eq!(catch_panic(|| panic!("on purpose")), None::<u32>);
        assert_eq!(catch_panic(|| 7), Some(7));
        assert!(!IS_CAUGHT.get());
    }
}
