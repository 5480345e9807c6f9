//! The step itself.

use core::hint::black_box;
use core::ops::ControlFlow;

use memtrace_common::unwind::{Rule, cfa, fp, ra};
use memtrace_common::wire::{End, MAX_FRAMES};

use crate::{Kind, Memory, Table};

/// No frame is larger: the stack's own default limit (`_STK_LIM`, include/uapi/linux/resource.h).
const MAX_FRAME_BYTES: u64 = 8 << 20;
/// In code that was generated at run time a frame pointer is this near.
const MAX_GENERATED_BYTES: u64 = 1 << 20;

/// How far the registers lie above the stack pointer in a signal frame: `uc_mcontext` in `struct ucontext`
/// (include/uapi/asm-generic/ucontext.h), at which the handler's return leaves the stack pointer.
const SIGNAL_CONTEXT: u64 = 40;
/// Where they lie in there (`struct sigcontext_64`, arch/x86/include/uapi/asm/sigcontext.h).
const CONTEXT_FP: u64 = 80;
const CONTEXT_SP: u64 = 120;
const CONTEXT_IP: u64 = 128;

/// DWARF's numbers for x86-64 registers (System V ABI, AMD64 supplement, figure 3.36).
const FRAME_POINTER: u32 = 6;
const STACK_POINTER: u32 = 7;
const NUMBERED: usize = 16;

/// The instruction pointer is a return address: the call is before it.
const RETURN: u32 = 1 << 0;
/// The frame pointer is known.
const FP_KNOWN: u32 = 1 << 1;
/// The frame was found by the frame pointer of generated code, and whether it is one has yet to show.
const GUESSED: u32 = 1 << 2;
/// Some frame was found so.
const GENERATED: u32 = 1 << 3;
/// All registers are those of the leaf frame.
const LEAF: u32 = 1 << 4;

/// Where a walk begins.
pub trait Begin {
    /// The instruction pointer.
    fn ip(&self) -> u64;
    /// Whether that is a return address, as it is where a return was probed; else it is the instruction to run next.
    fn ip_is_return(&self) -> bool;
    /// Another register, by DWARF's number below 16; of these 6 is the frame pointer and 7 the stack pointer.
    fn register(&self, number: usize) -> u64;
}

/// Registers where a walk begins, as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The instruction pointer.
    pub ip: u64,
    /// Whether that is a return address, as it is where a return was probed; else it is the instruction to run next.
    pub ip_is_return: bool,
    /// The others by DWARF's numbers; of these 6 is the frame pointer and 7 the stack pointer.
    pub numbered: [u64; NUMBERED],
}

impl Begin for Registers {
    fn ip(&self) -> u64 {
        self.ip
    }

    fn ip_is_return(&self) -> bool {
        self.ip_is_return
    }

    fn register(&self, number: usize) -> u64 {
        self.numbered[number & (NUMBERED - 1)]
    }
}

/// A walk in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Walk {
    ip: u64,
    sp: u64,
    fp: u64,
    hash: u64,
    count: u32,
    depth: u32,
    flags: u32,
    reserved: u32,
    leaf: [u64; NUMBERED],
}

/// What a rule comes to.
enum Caller {
    /// The frame of a call.
    Call { cfa: u64, return_address: u64 },
    /// What a signal interrupted.
    Interrupted { ip: u64, sp: u64 },
}

impl Walk {
    /// Begins a walk of `depth` frames at most, or [`MAX_FRAMES`]. The hash begins with `seed`.
    #[inline(always)]
    pub fn begin(&mut self, from: &impl Begin, depth: u32, seed: u64) {
        // One by one: sixteen registers at once would take as many words of a stack that has few.
        macro_rules! keep {
            ($($number:literal)*) => { $(self.leaf[$number] = from.register($number);)* };
        }
        keep!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        self.ip = from.ip();
        self.sp = self.leaf[STACK_POINTER as usize];
        self.fp = self.leaf[FRAME_POINTER as usize];
        self.hash = mix(0, seed);
        self.count = 0;
        self.depth = depth;
        self.flags = FP_KNOWN | LEAF | if from.ip_is_return() { RETURN } else { 0 };
    }

    /// How many frames have been found.
    #[inline(always)]
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// A hash of the seed, the frames in their order, and of how the walk ended: an [`End`].
    #[inline(always)]
    #[must_use]
    pub fn hash(&self, end: u32) -> u64 {
        mix(self.hash, u64::from(end))
    }

    /// Puts the next frame into `frames` and goes on to its caller.
    ///
    /// A frame is the address behind the call's last byte: where the frame's instruction pointer is no return address,
    /// because of a signal, one more than that. So what was running is always in the byte before.
    ///
    /// # Errors
    ///
    /// `Break` with the reason for which the walk is at its end.
    #[inline(always)]
    pub fn step(
        &mut self,
        frames: &mut [u64; MAX_FRAMES],
        memory: &mut impl Memory,
        table: &mut impl Table,
    ) -> ControlFlow<End> {
        if self.count >= self.depth || self.count as usize >= MAX_FRAMES {
            return ControlFlow::Break(End::Truncated);
        }
        let is_return = self.flags & RETURN != 0;
        let found = table.at(if is_return { self.ip.wrapping_sub(1) } else { self.ip });
        // Only where no file's code is can an exchanged return address lead.
        if is_return && found.kind != Kind::Rule && self.take_original(table) {
            return ControlFlow::Continue(());
        }
        if found.kind == Kind::Cut {
            return self.dead_end(frames, found.end);
        }
        // The kernel makes a signal handler return to an instruction that nobody has called.
        let is_signal = found.rule.cfa_kind == cfa::SIGNAL;
        self.push(frames, is_return && !is_signal);
        let caller = match found.kind {
            Kind::Generated => self.by_frame_pointer(memory),
            Kind::Rule | Kind::Cut => self.by_rule(&found.rule, memory),
        };
        match caller {
            Ok(Caller::Call { return_address: 0, .. }) => ControlFlow::Break(self.complete()),
            Ok(Caller::Call { cfa, return_address }) => {
                self.sp = cfa;
                self.ip = return_address;
                self.flags = self.flags & !LEAF | RETURN;
                ControlFlow::Continue(())
            }
            Ok(Caller::Interrupted { ip, sp }) => {
                self.sp = sp;
                self.ip = ip;
                self.flags &= !(LEAF | RETURN | GUESSED);
                ControlFlow::Continue(())
            }
            Err(end) => ControlFlow::Break(end),
        }
    }

    /// Goes on with the return address that belongs where the last one was read, if that is another one.
    #[inline(always)]
    fn take_original(&mut self, table: &mut impl Table) -> bool {
        match table.original_return(self.sp.wrapping_sub(8)) {
            Some(original) if original != self.ip => {
                self.ip = original;
                true
            }
            _ => false,
        }
    }

    /// Nothing is known about the address.
    #[inline(always)]
    fn dead_end(&mut self, frames: &mut [u64; MAX_FRAMES], end: End) -> ControlFlow<End> {
        if self.flags & GUESSED != 0 {
            return ControlFlow::Break(End::GeneratedCut);
        }
        self.push(frames, self.flags & RETURN != 0);
        ControlFlow::Break(end)
    }

    #[inline(always)]
    fn push(&mut self, frames: &mut [u64; MAX_FRAMES], is_return: bool) {
        let frame = if is_return { self.ip } else { self.ip.wrapping_add(1) };
        // The mask changes nothing; it lets the verifier see the bound.
        frames[self.count as usize & (MAX_FRAMES - 1)] = frame;
        self.count += 1;
        self.hash = mix(self.hash, frame);
    }

    #[inline(always)]
    const fn complete(&self) -> End {
        if self.flags & GENERATED != 0 { End::Generated } else { End::Complete }
    }

    #[inline(always)]
    fn by_rule(&mut self, rule: &Rule, memory: &mut impl Memory) -> Result<Caller, End> {
        self.flags &= !GUESSED;
        let cfa = match rule.cfa_kind {
            cfa::SP => plus(self.sp, rule.cfa_offset),
            cfa::FP => plus(self.known_fp()?, rule.cfa_offset),
            cfa::PLT => self.plt(rule.cfa_offset),
            cfa::DEREF_SP => plus(word(memory, plus(self.sp, rule.cfa_offset))?, rule.extra),
            cfa::DEREF_FP => plus(word(memory, plus(self.known_fp()?, rule.cfa_offset))?, rule.extra),
            cfa::SIGNAL => return self.interrupted(memory),
            cfa::END => return Err(self.complete()),
            cfa::REGISTER => plus(self.register(rule.extra)?, rule.cfa_offset),
            cfa::NONE => return Err(End::NoRow),
            _ => return Err(End::Untabled),
        };
        check(self.sp, cfa, MAX_FRAME_BYTES)?;
        let source = match rule.ra_kind {
            ra::AT_CFA_MINUS_8 => cfa.wrapping_sub(8),
            ra::AT_CFA => plus(cfa, rule.extra),
            ra::REGISTER => {
                let return_address = self.register(rule.extra)?;
                self.restore_fp(rule, cfa, memory)?;
                return Ok(Caller::Call { cfa, return_address });
            }
            _ => return Err(End::RegisterLost),
        };
        // The frame pointer lies below the return address, so that reading it first reads both.
        self.restore_fp(rule, cfa, memory)?;
        Ok(Caller::Call { cfa, return_address: word(memory, source)? })
    }

    /// A PLT entry pushes its number in its upper part (System V ABI, AMD64 supplement, section 5.2).
    #[inline(always)]
    const fn plt(&self, threshold: i32) -> u64 {
        let pc = if self.flags & RETURN != 0 { self.ip.wrapping_sub(1) } else { self.ip };
        let pushed = if (pc & 15) as i32 >= threshold { 8 } else { 0 };
        self.sp.wrapping_add(8 + pushed)
    }

    #[inline(always)]
    fn interrupted(&mut self, memory: &mut impl Memory) -> Result<Caller, End> {
        let context = self.sp.wrapping_add(SIGNAL_CONTEXT);
        self.fp = word(memory, context.wrapping_add(CONTEXT_FP))?;
        self.flags |= FP_KNOWN;
        let sp = word(memory, context.wrapping_add(CONTEXT_SP))?;
        let ip = word(memory, context.wrapping_add(CONTEXT_IP))?;
        Ok(Caller::Interrupted { ip, sp })
    }

    #[inline(always)]
    fn restore_fp(&mut self, rule: &Rule, cfa: u64, memory: &mut impl Memory) -> Result<(), End> {
        let source = match rule.fp_kind {
            fp::SAME => return Ok(()),
            fp::AT_CFA => plus(cfa, rule.fp_offset),
            fp::AT_FP if self.flags & FP_KNOWN != 0 => plus(self.fp, rule.fp_offset),
            _ => {
                self.flags &= !FP_KNOWN;
                return Ok(());
            }
        };
        self.fp = word(memory, source)?;
        self.flags |= FP_KNOWN;
        Ok(())
    }

    /// As every function with a frame pointer leaves them: the caller's, and above it the return address.
    #[inline(always)]
    fn by_frame_pointer(&mut self, memory: &mut impl Memory) -> Result<Caller, End> {
        self.flags |= GUESSED | GENERATED;
        let pointer = self.known_fp().map_err(|_| End::GeneratedCut)?;
        let cfa = pointer.wrapping_add(16);
        check(self.sp, cfa, MAX_GENERATED_BYTES).map_err(|_| End::GeneratedCut)?;
        if pointer < self.sp {
            return Err(End::GeneratedCut);
        }
        self.fp = word(memory, pointer)?;
        let return_address = word(memory, pointer.wrapping_add(8))?;
        if return_address == 0 { Err(End::GeneratedCut) } else { Ok(Caller::Call { cfa, return_address }) }
    }

    #[inline(always)]
    const fn known_fp(&self) -> Result<u64, End> {
        if self.flags & FP_KNOWN != 0 { Ok(self.fp) } else { Err(End::RegisterLost) }
    }

    #[inline(always)]
    fn register(&self, number: i32) -> Result<u64, End> {
        match number.cast_unsigned() {
            STACK_POINTER => Ok(self.sp),
            FRAME_POINTER => self.known_fp(),
            number if self.flags & LEAF != 0 && number < NUMBERED as u32 => {
                // The compiler knows that the mask changes nothing, and would leave it out. But it compares another copy
                // of the number, of which the verifier of Linux 6.1 does not see that it is the same.
                Ok(self.leaf[black_box(number as usize) & (NUMBERED - 1)])
            }
            _ => Err(End::RegisterLost),
        }
    }
}

#[inline(always)]
const fn plus(address: u64, offset: i32) -> u64 {
    address.wrapping_add_signed(offset as i64)
}

#[inline(always)]
fn word(memory: &mut impl Memory, address: u64) -> Result<u64, End> {
    memory.word(address).ok_or(End::Unreadable)
}

/// A caller's frame begins above its callee's, on the same stack.
#[inline(always)]
const fn check(sp: u64, cfa: u64, most: u64) -> Result<(), End> {
    if cfa > sp && cfa - sp < most && cfa.is_multiple_of(8) { Ok(()) } else { Err(End::BadFrame) }
}

/// Mixes a word into a hash. The multiplier is that of Steele and Vigna, "Computationally easy, spectrally good
/// multipliers" (2021), for 64 bits.
#[inline(always)]
#[must_use]
pub const fn mix(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0xD134_2543_DE82_EF95);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests;
