//! Lanes: `cargo xtask test` runs two tests at the same time, except tests in modules `alone` and `long`.

use std::env;

/// Environment variable that is set for tests in a lane.
const VARIABLE: &str = "MEMTRACE_LANE";

/// Fails the test if other tests may run at the same time.
///
/// # Panics
///
/// If the test runs in a lane.
pub fn require_whole_machine() {
    assert!(env::var_os(VARIABLE).is_none(), "this test uses the whole machine: move it into a module `alone`");
}
