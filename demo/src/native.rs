//! The service's C half.

unsafe extern "C" {
    fn login_with_password(user: u64) -> i32;
    fn login_with_token(user: u64) -> i32;
    fn serve_request(number: u64) -> u64;
}

/// Logs a user in. Every third one has a token. Only one thread may call this: the table has no lock.
pub(crate) fn login(user: u64) {
    let opened = if user.is_multiple_of(3) {
        // SAFETY: any user number is good, and the table is used by this thread alone.
        unsafe { login_with_token(user) }
    } else {
        // SAFETY: any user number is good, and the table is used by this thread alone.
        unsafe { login_with_password(user) }
    };
    assert!(opened != 0, "no memory left for a session");
}

/// Reads request `number` and returns the length of its path.
pub(crate) fn request(number: u64) -> u64 {
    // SAFETY: any number is good, and nothing is shared between calls.
    unsafe { serve_request(number) }
}
