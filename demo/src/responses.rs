//! Responses of the service. The service formats and drops them.

use std::fmt::Write as _;

/// Formats the response to a request.
#[inline(never)]
pub(crate) fn render(request: u64, length: u64) -> String {
    let mut response = String::new();
    for line in 0..4 {
        // Writing to a string cannot fail.
        let _ = writeln!(response, "response {request}, line {line}, for a path of {length} bytes");
    }
    response
}
