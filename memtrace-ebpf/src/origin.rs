//! First frame and registers of a stack walk.

use core::arch::asm;
use core::ffi::c_void;
use core::mem::MaybeUninit;

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_probe_read_kernel, bpf_task_pt_regs};
use memtrace_common::vocabulary::ResultCookie;
use memtrace_unwind::{InitialRegisters, WINDOW_WORDS, Window};

use crate::registers::{self, Registers};
use crate::user_memory::UserMemory;

/// The frame of the caller of a function.
#[derive(Clone, Copy)]
pub struct Caller {
    pub ip: u64,
    /// Value of the stack pointer after the return.
    pub stack_pointer: u64,
}

/// Start of a stack walk.
pub trait Origin {
    /// Returns the registers of the first frame. `registers` is space for a copy of the registers, and `window` is space for
    /// words of the stack.
    fn begin<'copy>(
        &'copy self,
        registers: &'copy mut MaybeUninit<Registers>,
        window: &'copy mut Window,
    ) -> impl InitialRegisters + 'copy;
}

/// An origin with a known caller.
pub trait HasCaller {
    fn caller(&self) -> Caller;
}

impl HasCaller for Returning<'_> {
    #[inline(always)]
    fn caller(&self) -> Caller {
        self.caller
    }
}

impl HasCaller for Inside<'_> {
    #[inline(always)]
    fn caller(&self) -> Caller {
        self.caller
    }
}

/// A function that returns. The walk starts at its caller.
pub struct Returning<'context> {
    pub registers: &'context Registers,
    pub caller: Caller,
}

/// An instruction inside of a function. The walk starts at the caller of the function.
pub struct Inside<'context> {
    pub registers: &'context Registers,
    /// Frame of the caller. Only its stack pointer is used, because the instruction pointer is read from the stack.
    pub caller: Caller,
    /// Locations of the caller's registers.
    pub cookie: ResultCookie,
}

/// A thread that was interrupted or has entered the kernel.
pub struct Interrupted {
    /// Kernel address of the thread's registers.
    pub registers: u64,
}

impl Interrupted {
    /// Returns the current thread, with its user registers at the entry of the kernel.
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: the task is the current one, as the helper requires.
        Self { registers: unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64 }
    }

    /// Returns the current thread at the instruction of a uprobe. The context of the program is the thread's registers.
    #[inline(always)]
    pub fn at_probe(context: &impl EbpfContext) -> Self {
        Self { registers: context.as_ptr() as u64 }
    }
}

impl Origin for Returning<'_> {
    #[inline(always)]
    fn begin<'copy>(
        &'copy self,
        _registers: &'copy mut MaybeUninit<Registers>,
        _window: &'copy mut Window,
    ) -> impl InitialRegisters + 'copy {
        AtReturn { registers: self.registers, caller: self.caller }
    }
}

impl Origin for Inside<'_> {
    #[inline(always)]
    fn begin<'copy>(
        &'copy self,
        _registers: &'copy mut MaybeUninit<Registers>,
        window: &'copy mut Window,
    ) -> impl InitialRegisters + 'copy {
        // The window also covers words above the frame, which the walk reads next.
        window.fill(self.caller.stack_pointer.wrapping_sub(size_of::<Frame>() as u64), FRAME_WORDS, &mut UserMemory);
        AtCaller { inside: self, words: window.words() }
    }
}

impl Origin for Interrupted {
    #[inline(always)]
    fn begin<'copy>(
        &'copy self,
        registers: &'copy mut MaybeUninit<Registers>,
        _window: &'copy mut Window,
    ) -> impl InitialRegisters + 'copy {
        // SAFETY: `registers` has the given size. The helper writes zeros if it cannot read.
        unsafe {
            bpf_probe_read_kernel(
                registers.as_mut_ptr().cast(),
                size_of::<Registers>() as u32,
                self.registers as *const c_void,
            );
        }
        // SAFETY: the helper has written it, and any bits are registers.
        AtInstruction { registers: unsafe { registers.assume_init_ref() } }
    }
}

/// The frame of a caller at the return of the called function.
struct AtReturn<'context> {
    registers: &'context Registers,
    caller: Caller,
}

/// Number of words of a frame: the saved registers and the return address.
const FRAME_WORDS: usize = ResultCookie::MAX_SAVED as usize + 1;

/// Saved registers and return address of a frame, from the lowest address on.
type Frame = [u64; FRAME_WORDS];

/// The frame of a caller. The called function has saved some of the caller's registers in its own frame.
struct AtCaller<'copy> {
    inside: &'copy Inside<'copy>,
    /// Words of the stack: the frame of the function, then the words above it.
    words: &'copy [u64; WINDOW_WORDS],
}

impl InitialRegisters for AtCaller<'_> {
    #[inline(always)]
    fn ip(&self) -> u64 {
        self.words[ResultCookie::MAX_SAVED as usize]
    }

    #[inline(always)]
    fn ip_is_return(&self) -> bool {
        true
    }

    #[inline(always)]
    fn register(&self, number: usize) -> u64 {
        let Inside { registers, caller, cookie } = self.inside;
        let place = ResultCookie::PRESERVED_NUMBERS.iter().position(|preserved| *preserved == number);
        match place.map_or(0, |place| cookie.saved(place)) {
            0 => registers::by_number(registers, caller.stack_pointer, number),
            words => saved_word(self.words, words),
        }
    }
}

/// Returns the word that is `below` words below the return address. The frame is at the start of `words`. The load is
/// inline assembly: the compiler would merge it with the load of a register from the context, which the verifier
/// refuses.
#[inline(always)]
fn saved_word(words: &[u64; WINDOW_WORDS], below: usize) -> u64 {
    let index = (FRAME_WORDS - 1 - below) & (FRAME_WORDS - 1);
    let word: u64;
    // SAFETY: the mask keeps the index within the frame; the instruction reads that word only.
    unsafe {
        let address = words.as_ptr().add(index);
        asm!("{word} = *(u64 *)({address} + 0)", word = out(reg) word, address = in(reg) address, options(readonly));
    }
    word
}

/// The frame of an interrupted thread, before its next instruction.
struct AtInstruction<'copy> {
    registers: &'copy Registers,
}

impl InitialRegisters for AtInstruction<'_> {
    #[inline(always)]
    fn ip(&self) -> u64 {
        registers::instruction(self.registers)
    }

    #[inline(always)]
    fn ip_is_return(&self) -> bool {
        false
    }

    #[inline(always)]
    fn register(&self, number: usize) -> u64 {
        registers::by_number(self.registers, registers::stack_pointer(self.registers), number)
    }
}

impl InitialRegisters for AtReturn<'_> {
    #[inline(always)]
    fn ip(&self) -> u64 {
        self.caller.ip
    }

    #[inline(always)]
    fn ip_is_return(&self) -> bool {
        true
    }

    #[inline(always)]
    fn register(&self, number: usize) -> u64 {
        registers::by_number(self.registers, self.caller.stack_pointer, number)
    }
}
