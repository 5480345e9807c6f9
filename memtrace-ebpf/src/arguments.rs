//! The arguments of a function, for programs that serve functions of more than one shape.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::bpf_get_attach_cookie;
use aya_ebpf::programs::ProbeContext;
use memtrace_common::vocabulary::Cookie;

use crate::registers;

/// What the probe was told when it was placed (Linux 5.15).
#[inline(always)]
pub fn cookie(context: &ProbeContext) -> Cookie {
    // SAFETY: the context is the program's own.
    Cookie(unsafe { bpf_get_attach_cookie(context.as_ptr()) })
}

/// The argument in one of the cookie's places, where there is one.
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

/// The bytes asked for: what is in the first place, times what is in the second.
#[inline(always)]
pub fn size(context: &ProbeContext, cookie: Cookie) -> u64 {
    let size = argument(context, cookie, 0).unwrap_or(0);
    match argument(context, cookie, 1) {
        Some(count) => product(count, size),
        None => size,
    }
}

/// The bytes of `count` elements. A call for more than there can be fails and keeps its block; the wrapped product must
/// only not read as 0, which would mean a free.
#[inline(always)]
pub fn product(count: u64, size: u64) -> u64 {
    if count == 0 || size == 0 { 0 } else { count.wrapping_mul(size).max(1) }
}
