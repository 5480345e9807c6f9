//! The frame and registers that a stack walk starts from.

use core::arch::asm;
use core::ffi::c_void;
use core::mem::MaybeUninit;

use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_probe_read_kernel, bpf_task_pt_regs};
use memtrace_common::vocabulary::ResultCookie;
use memtrace_unwind::{InitialRegisters, WINDOW_WORDS, Window};

use crate::registers::{self, Registers};
use crate::user_memory::UserMemory;

/// The frame that a function returns to.
#[derive(Clone, Copy)]
pub struct Caller {
    pub ip: u64,
    /// Stack pointer after the return.
    pub stack_pointer: u64,
}

/// Start of a stack walk.
pub trait Origin {
    /// Returns the first frame. `registers` is memory for a copy of the registers, and `window` for words of the stack.
    fn begin<'copy>(
        &'copy self,
        registers: &'copy mut MaybeUninit<Registers>,
        window: &'copy mut Window,
    ) -> impl InitialRegisters + 'copy;
}

/// An origin at the caller of a function.
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

/// A function that returns with these registers.
pub struct Returning<'context> {
    pub registers: &'context Registers,
    pub caller: Caller,
}

/// An instruction inside of a function, of which the walk starts at the caller.
pub struct Inside<'context> {
    pub registers: &'context Registers,
    /// The instruction pointer is read from the stack.
    pub caller: Caller,
    /// Places of the caller's registers.
    pub cookie: ResultCookie,
}

/// A thread that was interrupted or entered the kernel.
pub struct Interrupted {
    /// Kernel address of its registers.
    pub registers: u64,
}

impl Interrupted {
    /// Returns the current thread with its registers from before it entered the kernel.
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: the task is the current one, as the helper requires.
        Self { registers: unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64 }
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
        // The walk continues above the frame, in the same words.
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
        // SAFETY: the helper writes the size of the registers; it writes zeros if it cannot read.
        unsafe {
            bpf_probe_read_kernel(
                registers.as_mut_ptr().cast(),
                size_of::<Registers>() as u32,
                self.registers as *const c_void,
            );
        }
        // SAFETY: it has been written, and any bits are registers.
        AtInstruction { registers: unsafe { registers.assume_init_ref() } }
    }
}

/// A frame after the call that returns to it.
struct AtReturn<'context> {
    registers: &'context Registers,
    caller: Caller,
}

/// Number of words of a frame: those in which it saves registers, and the return address.
const FRAME_WORDS: usize = ResultCookie::MAX_SAVED as usize + 1;

/// Words of a frame.
type Frame = [u64; FRAME_WORDS];

/// The frame of a caller, with the registers that the called function has saved.
struct AtCaller<'copy> {
    inside: &'copy Inside<'copy>,
    /// The first ones are the frame of the function.
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

/// Returns a word below the return address of a frame, which is at the start of `words`. The instruction is written out, because
/// the compiler would merge it with one that reads a register of the context, which the verifier refuses.
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

/// A frame before its next instruction.
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
