//! The privileges that tracing needs.

/// Fails the test if it does not run as root.
pub fn require() {
    // SAFETY: geteuid has no conditions.
    let user = unsafe { libc::geteuid() };
    assert_eq!(user, 0, "this test traces another process and needs root: run `cargo xtask test`");
}
