//! Chain of functions with known frame layouts. A function uses a frame pointer only if its comment says so.

use std::arch::global_asm;

global_asm!(
    ".pushsection .text.chain, \"ax\", @progbits",
    ".balign 4096",
    ".globl chain_begin, chain_end",
    ".globl chain_outermost, chain_outermost_return, chain_first, chain_first_return, chain_second, chain_second_return",
    ".globl chain_third, chain_third_return, chain_deep, chain_deep_return, chain_deepest_return",
    ".globl chain_interrupted, chain_interrupted_at, chain_handler, chain_handler_return, chain_restorer, chain_alloc",
    // Rust declares each symbol as a function or as a static, so functions have a second name.
    ".globl call_outermost, call_first, call_deep, call_interrupted",
    ".set call_outermost, chain_outermost",
    ".set call_first, chain_first",
    ".set call_deep, chain_deep",
    ".set call_interrupted, chain_interrupted",
    "chain_begin:",
    // Calls the function in its first argument with its second argument.
    "chain_outermost:",
    "push rbx",
    "mov rax, rdi",
    "mov rdi, rsi",
    "call rax",
    "chain_outermost_return:",
    "pop rbx",
    "ret",
    // Frame of 40 bytes, addressed by the stack pointer.
    "chain_first:",
    "sub rsp, 40",
    "call chain_second",
    "chain_first_return:",
    "add rsp, 40",
    "ret",
    // Frame with a frame pointer.
    "chain_second:",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, 48",
    "call chain_third",
    "chain_second_return:",
    "leave",
    "ret",
    // Realigns the stack as gcc does: the CFA is stored in memory only.
    "chain_third:",
    "lea r10, [rsp + 8]",
    "and rsp, -64",
    "push qword ptr [r10 - 8]",
    "push rbp",
    "mov rbp, rsp",
    "push r10",
    "sub rsp, 40",
    "mov edi, {size}",
    "call chain_alloc",
    "chain_third_return:",
    "mov r10, [rbp - 8]",
    "leave",
    "lea rsp, [r10 - 8]",
    "ret",
    // Calls itself until the number of calls is its argument.
    "chain_deep:",
    "sub rsp, 24",
    "dec edi",
    "jz 2f",
    "call chain_deep",
    "chain_deep_return:",
    "add rsp, 24",
    "ret",
    "2:",
    "mov edi, {size}",
    "call chain_alloc",
    "chain_deepest_return:",
    "add rsp, 24",
    "ret",
    // Sends a signal to the current thread, which interrupts it. The argument points to the ids of process and thread.
    "chain_interrupted:",
    "sub rsp, 24",
    "mov rsi, [rdi + 8]",
    "mov rdi, [rdi]",
    "mov edx, {signal}",
    "mov eax, {tgkill}",
    "syscall",
    "chain_interrupted_at:",
    "add rsp, 24",
    "ret",
    "chain_handler:",
    "sub rsp, 8",
    "mov edi, {size}",
    "call chain_alloc",
    "chain_handler_return:",
    "add rsp, 8",
    "ret",
    "nop",
    "chain_restorer:",
    "mov eax, {sigreturn}",
    "syscall",
    // Allocator. Nothing uses the address that it returns. The kernel emulates its first instruction.
    "chain_alloc:",
    "push r12",
    "lea rax, [rdi + 0x1000]",
    "pop r12",
    "ret",
    "chain_end:",
    ".popsection",
    size = const SIZE,
    signal = const libc::SIGUSR2,
    tgkill = const libc::SYS_tgkill,
    sigreturn = const libc::SYS_rt_sigreturn,
);

/// Size of the allocation of the chain, in bytes.
pub(super) const SIZE: u64 = 64;

unsafe extern "C" {
    fn call_outermost(function: Function, argument: u64);
    #[link_name = "call_first"]
    pub(super) safe fn first(unused: u64);
    #[link_name = "call_deep"]
    pub(super) safe fn deep(calls: u64);
    #[link_name = "call_interrupted"]
    pub(super) safe fn interrupted(ids: u64);
}

/// A function of the chain.
pub(super) type Function = extern "C" fn(u64);

/// Calls `function` from the outermost function of the chain.
pub(super) fn run(function: Function, argument: u64) {
    // SAFETY: the functions above follow the calling convention.
    unsafe { call_outermost(function, argument) }
}

pub(super) fn address(symbol: *const u8) -> u64 {
    symbol as u64
}

/// Address of a symbol of the chain.
macro_rules! here {
    ($symbol:ident) => {{
        unsafe extern "C" {
            safe static $symbol: u8;
        }
        address(&raw const $symbol)
    }};
}
pub(super) use here;

/// Converts an address of this executable to a file offset.
pub(super) fn offset_in_file(address: u64) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).unwrap();
    maps.lines()
        .find_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (begin, end) = fields.next()?.split_once('-')?;
            let (begin, end) = (hexadecimal(begin), hexadecimal(end));
            let offset = hexadecimal(fields.nth(1)?);
            (begin..end).contains(&address).then(|| address - begin + offset)
        })
        .unwrap()
}

/// The kernel's `struct sigaction`. The sigaction function of glibc replaces the restorer.
#[repr(C)]
struct Action {
    handler: u64,
    flags: u64,
    restorer: u64,
    mask: u64,
}

/// Makes `chain_handler` the handler of the chain's signal. Returns the ids of this process and thread.
pub(super) fn handle_signals() -> [u64; 2] {
    /// `SA_RESTORER`, arch/x86/include/uapi/asm/signal.h.
    const RESTORER: u64 = 0x0400_0000;
    let action = Action { handler: here!(chain_handler), flags: RESTORER, restorer: here!(chain_restorer), mask: 0 };
    let nothing = std::ptr::null_mut::<Action>();
    // SAFETY: action and mask have the kernel's sizes, and the handler follows the calling convention.
    let done = unsafe { libc::syscall(libc::SYS_rt_sigaction, libc::SIGUSR2, &raw const action, nothing, 8) };
    assert_eq!(done, 0);
    // SAFETY: the call has no conditions.
    let thread = unsafe { libc::gettid() };
    [u64::from(std::process::id()), thread.try_into().unwrap()]
}
