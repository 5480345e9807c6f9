//! Arguments of a hooked function, for programs that serve more than one signature.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::bpf_get_attach_cookie;
use aya_ebpf::programs::ProbeContext;
use memtrace_common::vocabulary::Cookie;

use crate::registers;

/// Returns the BPF cookie of the probe.
#[inline(always)]
pub fn cookie(context: &impl EbpfContext) -> Cookie {
    // SAFETY: the context is the program's own.
    Cookie(unsafe { bpf_get_attach_cookie(context.as_ptr()) })
}

/// Returns the argument with the index in `place` of the cookie; `None` if the place is empty.
#[inline(always)]
pub fn argument(context: &ProbeContext, cookie: Cookie, place: u32) -> Option<u64> {
    let [first, second, third, fourth, fifth, sixth] = registers::arguments(registers::of(context));
    match cookie.argument(place) {
        0 => Some(first),
        1 => Some(second),
        2 => Some(third),
        3 => Some(fourth),
        4 => Some(fifth),
        5 => Some(sixth),
        _ => None,
    }
}

/// Returns the requested bytes: the argument in the first place of the cookie, times the argument in the second place
/// if there is one.
#[inline(always)]
pub fn size(context: &ProbeContext, cookie: Cookie) -> u64 {
    let size = argument(context, cookie, 0).unwrap_or(0);
    match argument(context, cookie, 1) {
        Some(count) => product(count, size),
        None => size,
    }
}

/// Returns the bytes of `count` elements. If the product overflows, the call fails and its old block stays allocated.
/// The result is at least 1 in this case, because realloc with size 0 would be a free.
#[inline(always)]
pub fn product(count: u64, size: u64) -> u64 {
    if count == 0 || size == 0 { 0 } else { count.wrapping_mul(size).max(1) }
}
