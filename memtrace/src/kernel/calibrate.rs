//! What a probe costs on this machine, measured on memtrace itself before anybody else is probed.
//!
//! A hypervisor may make a single step twenty times dearer than on bare metal, so that a figure from elsewhere says little.

use std::time::{Duration, Instant};

use crate::model::AbsAddr;

/// A function of memtrace's own that does nothing.
#[derive(Clone, Copy, Debug)]
pub struct Dummy(extern "C" fn());

/// Calls in a row that are timed together.
const CALLS: u32 = 250;
/// How often that is done; the fastest counts, since everything that disturbs only makes it slower.
const ROUNDS: u32 = 8;

impl Dummy {
    /// One that begins with an instruction which the kernel emulates.
    #[must_use]
    pub const fn emulated() -> Self {
        Self(emulated)
    }

    /// One that begins with an instruction which the kernel steps over.
    #[must_use]
    pub const fn stepped() -> Self {
        Self(stepped)
    }

    /// Where its first instruction lies.
    #[must_use]
    pub fn address(self) -> AbsAddr {
        AbsAddr(self.0 as usize as u64)
    }

    /// How long one call takes.
    #[must_use]
    pub fn time(self) -> Duration {
        let round = || {
            let begun = Instant::now();
            for _ in 0..CALLS {
                (self.0)();
            }
            begun.elapsed() / CALLS
        };
        (0..ROUNDS).map(|_| round()).min().unwrap_or_default()
    }
}

/// `push` is emulated (`push_setup_xol_ops`, arch/x86/kernel/uprobes.c).
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn emulated() {
    core::arch::naked_asm!("push rbp", "pop rbp", "ret");
}

/// `xor` is not.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
extern "C" fn stepped() {
    core::arch::naked_asm!("xor eax, eax", "ret");
}

/// A branch is simulated (`arm_probe_decode_insn`, arch/arm64/kernel/probes/decode-insn.c).
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn emulated() {
    core::arch::naked_asm!("b 1f", "1:", "ret");
}

/// `mov` is not.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn stepped() {
    core::arch::naked_asm!("mov x0, xzr", "ret");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unprobed_call_takes_next_to_nothing() {
        assert!(Dummy::emulated().time() < Duration::from_millis(1));
        assert!(Dummy::stepped().time() < Duration::from_millis(1));
        assert_ne!(Dummy::emulated().address(), Dummy::stepped().address());
    }
}
