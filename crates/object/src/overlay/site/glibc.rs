//! Facts about glibc: its version, and its instructions that a thread executes to make system calls on behalf of memtrace.

use std::fs::File;

use memtrace_model::VirtOffset;

use crate::elf::{Elf, Machine, Source, constants, dynamic_symbols};

/// Start of the text that glibc prints when it is executed (csu/version.c).
const BANNER: &[u8] = b"GNU C Library ";

/// Maximum length of the text's first line, in bytes.
const MAX_BANNER: u64 = 256;

/// Maximum number of texts that are read.
const MAX_BANNERS: usize = 16;

/// Function with the instruction for system calls.
const SYSCALL: &str = "syscall";

/// Maximum length of this function in bytes. It has 51 bytes in glibc 2.36.
const MAX_SYSCALL: u64 = 1024;

/// `mov $15,%rax; syscall`: the system call `rt_sigreturn` (sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c).
const SIGRETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// Addresses of instructions in glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gadgets {
    /// `syscall`, followed by a return unless the call has failed.
    pub call: VirtOffset,
    /// The system call `rt_sigreturn`.
    pub sigreturn: VirtOffset,
}

/// Returns the version of glibc in `file`, such as (2, 36); `None` if the file is no released glibc.
pub fn glibc_version(file: &File) -> Option<(u32, u32)> {
    let elf = Elf::parse(file).ok()?;
    if !dynamic_symbols::defines(&elf, "gnu_get_libc_version").ok()? {
        return None;
    }
    let banners = constants::find(&elf, BANNER).ok()?;
    banners.into_iter().take(MAX_BANNERS).find_map(|at| {
        let (offset, left) = elf.locate(at).ok()?;
        version_in(&elf.bytes_in_file(offset, left.min(MAX_BANNER)).ok()?)
    })
}

/// Returns the version in a text that begins with `GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.`. A
/// development version has a third number.
fn version_in(text: &[u8]) -> Option<(u32, u32)> {
    let line = text.split(|&byte| byte == b'\n').next().and_then(|line| std::str::from_utf8(line).ok())?;
    let (_, version) = line.split_once(" release version ")?;
    let mut numbers = version.strip_suffix('.')?.split('.');
    let found = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    numbers.next().is_none().then_some(found)
}

/// Finds the gadgets in glibc's `file`.
pub fn gadgets(file: &File) -> Option<Gadgets> {
    let elf = Elf::parse(file).ok()?;
    if elf.machine() != Machine::X86_64 {
        return None;
    }
    let symbols = dynamic_symbols::definitions(&elf, SYSCALL).ok()?;
    let call = symbols.into_iter().find_map(|symbol| {
        let end = symbol.virt.0.saturating_add(symbol.size.min(MAX_SYSCALL));
        let (address, code) = elf.code(symbol.virt.0, end).ok()?;
        address.checked_add(call_in(&code)? as u64)
    })?;
    Some(Gadgets { call: VirtOffset(call), sigreturn: VirtOffset(sigreturn(&elf)?) })
}

/// Returns the offset of `syscall; cmp $-4095,%rax; jae; ret`.
fn call_in(code: &[u8]) -> Option<usize> {
    let is_call = |bytes: &[u8]| matches!(bytes, [0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0x73, _, 0xc3]);
    code.windows(11).position(is_call)
}

/// Returns the address of [`SIGRETURN`]. It need not be known whether an instruction begins there.
fn sigreturn<S: Source>(elf: &Elf<S>) -> Option<u64> {
    let mut found = None;
    let searched = elf.for_each_code_chunk(SIGRETURN.len() - 1, |address, bytes| {
        if found.is_none() {
            let at = bytes.windows(SIGRETURN.len()).position(|window| window == SIGRETURN);
            found = at.map(|at| address.wrapping_add(at as u64));
        }
    });
    searched.ok().and(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_releases() {
        let version = |text: &str| version_in(text.as_bytes());
        let debian = "GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\nCopyright (C) 2022";
        assert_eq!(version(debian), Some((2, 36)));
        assert_eq!(version("GNU C Library (GNU libc) stable release version 2.40.\n"), Some((2, 40)));
        assert_eq!(version("GNU C Library (GNU libc) development release version 2.41.9000.\n"), None);
        assert_eq!(version("GNU C Library (GNU libc) stable release version 2.\n"), None);
        assert_eq!(version("GNU C Library (GNU libc) stable release version 2.x.\n"), None);
        assert_eq!(version("GNU C Library (GNU libc)\n stable release version 2.36.\n"), None);
    }

    #[test]
    fn system_calls_are_followed_by_a_return() {
        let code = [0x90, 0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0x73, 0x01, 0xc3, 0x48];
        assert_eq!(call_in(&code), Some(1));
        // ja in place of jae, another number, and no return.
        for (at, byte) in [(9, 0x77), (5, 0x00), (11, 0x90)] {
            let mut changed = code;
            changed[at] = byte;
            assert_eq!(call_in(&changed), None, "{at}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn version_and_gadgets_are_those_of_the_running_libc() {
        use std::ffi::CStr;

        let file = File::open(harness::fixtures::GLIBC).unwrap();
        // SAFETY: the function has no condition.
        let version = unsafe { libc::gnu_get_libc_version() };
        // SAFETY: this is a string that is never freed.
        let running = unsafe { CStr::from_ptr(version) };
        let (major, minor) = glibc_version(&file).unwrap();
        assert_eq!(running.to_str().unwrap(), format!("{major}.{minor}"));
        let found = gadgets(&file).unwrap();
        let printed = harness::fixtures::output(
            "objdump",
            &["-d".as_ref(), "--disassemble=syscall".as_ref(), harness::fixtures::GLIBC.as_ref()],
        );
        let line = printed.lines().find(|line| line.trim_end().ends_with("syscall") && line.contains(":\t")).unwrap();
        let address = u64::from_str_radix(line.split(':').next().unwrap().trim(), 16).unwrap();
        assert_eq!(found.call, VirtOffset(address));
        let other = File::open("/etc/passwd").unwrap();
        assert_eq!((glibc_version(&other), gadgets(&other)), (None, None));
    }
}
