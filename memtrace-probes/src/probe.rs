//! One probe: a nop, its note and its semaphore.

use core::sync::atomic::{AtomicU16, Ordering};

/// Number of tracers that use a probe. The kernel increments it when a tracer attaches, and decrements it at detach.
#[repr(transparent)]
pub(crate) struct Semaphore(AtomicU16);

impl Semaphore {
    pub(crate) const fn new() -> Self {
        Self(AtomicU16::new(0))
    }

    /// Returns true while a tracer uses the probe.
    #[inline(always)]
    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// Defines the semaphore of a probe in the section `.probes`, which tracers expect. The linker drops a semaphore that
/// nothing reads; the note of the probe then has 0 as its address.
macro_rules! semaphore {
    ($name:ident) => {
        #[cfg_attr(target_os = "linux", link_section = ".probes")]
        static $name: $crate::probe::Semaphore = $crate::probe::Semaphore::new();
    };
}

/// Executes a probe. The arguments are in the registers that a function call uses. The note names these registers.
///
/// On x86-64 the nop has one byte: at a nop of five bytes, some kernels write below the stack pointer. The default
/// options of `asm!` keep the compiler from moving memory accesses across the probe, including accesses of an
/// allocator.
#[cfg(all(target_os = "linux", target_pointer_width = "64", any(target_arch = "x86_64", target_arch = "aarch64")))]
macro_rules! probe {
    (@asm $semaphore:path, $name:literal, $text:literal $(, $register:tt = $value:expr)*) => {{
        #[cfg(target_arch = "x86_64")]
        macro_rules! nop { () => { ".byte 0x90" } }
        #[cfg(target_arch = "aarch64")]
        macro_rules! nop { () => { "nop" } }
        #[allow(named_asm_labels, reason = "tools know the base of the notes by this name")]
        // SAFETY: the code is a nop. The note only refers to the nop and is not loaded.
        unsafe {
            core::arch::asm!(
                concat!("990: ", nop!()),
                ".pushsection .note.stapsdt,\"?\",\"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                ".8byte _.stapsdt.base",
                ".8byte {semaphore}",
                ".asciz \"memtrace\"",
                concat!(".asciz \"", $name, "\""),
                concat!(".asciz \"", $text, "\""),
                "994: .balign 4",
                ".popsection",
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                semaphore = sym $semaphore,
                $(in($register) $value,)*
                options(nostack, preserves_flags),
            );
        }
    }};
    ($semaphore:path, $name:literal) => {
        $crate::probe::probe!(@asm $semaphore, $name, "")
    };
    ($semaphore:path, $name:literal, $first:expr) => {{
        #[cfg(target_arch = "x86_64")]
        $crate::probe::probe!(@asm $semaphore, $name, "8@%rdi", "rdi" = $first);
        #[cfg(target_arch = "aarch64")]
        $crate::probe::probe!(@asm $semaphore, $name, "8@x0", "x0" = $first);
    }};
    ($semaphore:path, $name:literal, $first:expr, $second:expr) => {{
        #[cfg(target_arch = "x86_64")]
        $crate::probe::probe!(@asm $semaphore, $name, "8@%rdi 8@%rsi", "rdi" = $first, "rsi" = $second);
        #[cfg(target_arch = "aarch64")]
        $crate::probe::probe!(@asm $semaphore, $name, "8@x0 8@x1", "x0" = $first, "x1" = $second);
    }};
    ($semaphore:path, $name:literal, $first:expr, signed $second:expr) => {{
        #[cfg(target_arch = "x86_64")]
        $crate::probe::probe!(@asm $semaphore, $name, "8@%rdi -8@%rsi", "rdi" = $first, "rsi" = $second);
        #[cfg(target_arch = "aarch64")]
        $crate::probe::probe!(@asm $semaphore, $name, "8@x0 -8@x1", "x0" = $first, "x1" = $second);
    }};
}

/// Evaluates the arguments of a probe on a system without probes.
#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
macro_rules! probe {
    ($semaphore:path, $name:literal $(, $first:expr $(, $($second:tt)*)?)?) => {{
        $(let _ = $first;)?
    }};
}

pub(crate) use {probe, semaphore};
