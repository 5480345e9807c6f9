//! Calls of the C functions of the service.

unsafe extern "C" {
    fn login_with_password(user: u64) -> i32;
    fn login_with_token(user: u64) -> i32;
    fn serve_request(number: u64) -> u64;
}

/// Logs a user in. Every third user has a token, the others have a password. Only one thread may call this function,
/// because the session table has no lock.
pub(crate) fn login(user: u64) {
    let opened = if user.is_multiple_of(3) {
        // SAFETY: any user number is valid, and only this thread uses the table.
        unsafe { login_with_token(user) }
    } else {
        // SAFETY: any user number is valid, and only this thread uses the table.
        unsafe { login_with_password(user) }
    };
    assert!(opened != 0, "out of memory for a session");
}

/// Parses request `number`, and returns the length of its first header.
pub(crate) fn request(number: u64) -> u64 {
    // SAFETY: any number is valid, and calls share no data.
    unsafe { serve_request(number) }
}
