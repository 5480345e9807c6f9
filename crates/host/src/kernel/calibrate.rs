//! Functions of memtrace that are probed to measure the cost of a probe on this machine.
//!
//! On a virtual machine, a single step may cost twenty times as much as on bare metal, so the cost cannot be a
//! constant.

use std::time::{Duration, Instant};

use memtrace_model::AbsAddr;

/// Function without effect. Its calls are timed with and without a probe.
#[derive(Clone, Copy, Debug)]
pub struct CalibrationFunction(extern "C" fn());

/// Number of calls in a round, which are timed together.
const CALLS: u32 = 250;
/// Number of rounds. The fastest round counts, because disturbances only add time.
const ROUNDS: u32 = 8;

impl CalibrationFunction {
    /// Returns the function for emulated probes: the kernel emulates its first instruction.
    #[must_use]
    pub const fn emulated() -> Self {
        Self(emulated)
    }

    /// Returns the function for stepped probes: the kernel single-steps its first instruction.
    #[must_use]
    pub const fn stepped() -> Self {
        Self(stepped)
    }

    /// Returns the address of the first instruction.
    #[must_use]
    pub fn address(self) -> AbsAddr {
        AbsAddr(self.0 as usize as u64)
    }

    /// Returns the duration of one call: the mean of the fastest round.
    #[must_use]
    pub fn time(self) -> Duration {
        let round = || {
            let start = Instant::now();
            for _ in 0..CALLS {
                (self.0)();
            }
            start.elapsed() / CALLS
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

/// `xor` is single-stepped.
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

/// `mov` is single-stepped.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
extern "C" fn stepped() {
    core::arch::naked_asm!("mov x0, xzr", "ret");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprobed_calls_are_fast() {
        assert!(CalibrationFunction::emulated().time() < Duration::from_millis(1));
        assert!(CalibrationFunction::stepped().time() < Duration::from_millis(1));
        assert_ne!(CalibrationFunction::emulated().address(), CalibrationFunction::stepped().address());
    }
}
