//! State of a stack walk, and the step from a frame to its caller.

mod simple;

use core::hint::black_box;
use core::ops::ControlFlow;

use memtrace_common::unwind::{Rule, cfa, fp, ra};
use memtrace_common::wire::{End, FRAME_BY_FP, MAX_FRAMES};

use crate::call_site::{can_return_to, follows_call};
use crate::registers::{InitialRegisters, NUMBERED};
use crate::{Kind, Memory, Table};

/// Limit for the size of a frame: the default stack size (`_STK_LIM`, include/uapi/linux/resource.h).
const MAX_FRAME_BYTES: u64 = 8 << 20;
/// Limit for the distance to the frame pointer in code without rows.
const MAX_FRAME_POINTER_BYTES: u64 = 1 << 20;

/// Limit for the distance in bytes from the stack pointer of the function that calls `main` to the start of the stack.
/// The frames of musl's functions in between take about 100 bytes.
const MAX_START_BYTES: u64 = 256;

/// Offset of the saved registers in a signal frame of x86-64: `uc_mcontext` in `struct ucontext`
/// (include/uapi/asm-generic/ucontext.h). After the handler's return, the stack pointer points to this structure.
const SIGNAL_CONTEXT: u64 = 40;
/// Offsets of registers in `uc_mcontext` (`struct sigcontext_64`, arch/x86/include/uapi/asm/sigcontext.h).
const CONTEXT_FP: u64 = 80;
const CONTEXT_SP: u64 = 120;
const CONTEXT_IP: u64 = 128;

/// DWARF number of the frame pointer on x86-64 (System V ABI, AMD64 supplement, figure 3.36).
const FRAME_POINTER: u32 = 6;
/// DWARF number of the stack pointer on x86-64.
const STACK_POINTER: u32 = 7;

/// The instruction pointer is a return address, so the call is before it.
const RETURN: u32 = 1 << 0;
/// The frame pointer is known.
const FP_KNOWN: u32 = 1 << 1;
/// The current frame was found by frame pointer.
const BY_FP: u32 = 1 << 2;
/// A frame of the stack was found by frame pointer.
const ANY_BY_FP: u32 = 1 << 3;
/// The current frame is the leaf: all its registers are known.
const LEAF: u32 = 1 << 4;
/// The last frame without rows is at a gap in the table of an object, not in JIT code.
const FROM_GAP: u32 = 1 << 5;
/// The last frame without rows is in an object without a table.
const WITHOUT_TABLE: u32 = 1 << 6;
/// The current frame was found by the frame pointer of code without a table. The walk keeps this frame only if it is
/// outermost, or if its caller is found too.
const UNPROVEN: u32 = 1 << 7;
/// The step in progress looks for the caller of a frame that needs a proof ([`UNPROVEN`]).
const PROVING: u32 = 1 << 8;

/// Position of a walk: the registers of the current frame, with flags, and the limit of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Instruction pointer of the current frame.
    pub ip: u64,
    /// Stack pointer of the current frame.
    pub sp: u64,
    /// Frame pointer of the current frame, if the flags say that it is known.
    pub fp: u64,
    /// Flags of the walk, private to this crate.
    pub flags: u32,
    /// Maximum number of frames of the walk.
    pub depth: u32,
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
    /// Hash before the last frame, if this frame needs a proof.
    proven_hash: u64,
    leaf: [u64; NUMBERED],
}

/// Result of applying a rule.
enum Caller {
    /// The caller, after a call.
    Call { cfa: u64, return_address: u64 },
    /// The code that a signal interrupted.
    Interrupted { ip: u64, sp: u64 },
}

impl Walk {
    /// Begins a walk of at most `depth` frames, and at most [`MAX_FRAMES`]. The hash begins with `seed`.
    #[inline(always)]
    pub fn begin(&mut self, from: &impl InitialRegisters, depth: u32, seed: u64) {
        // One at a time: a copy of 16 registers at once would go through the BPF stack, which has 512 bytes.
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

    /// Returns the position of a walk that has ended. [`Self::resume`] continues from this position.
    #[inline(always)]
    #[must_use]
    pub const fn position(&self) -> Position {
        Position { ip: self.ip, sp: self.sp, fp: self.fp, flags: self.flags, depth: self.depth }
    }

    /// Returns a register of the leaf frame by its DWARF number, which is below 16.
    #[inline(always)]
    #[must_use]
    pub const fn leaf(&self, number: usize) -> u64 {
        self.leaf[number & (NUMBERED - 1)]
    }

    /// Returns a walk at `position`, with all of `frames` except the last one. The next step finds the last frame
    /// again. `leaf` has the registers of the leaf frame. The hash began with `seed`.
    #[must_use]
    pub fn resume(position: Position, seed: u64, frames: &[u64], leaf: [u64; NUMBERED]) -> Self {
        let Position { ip, sp, fp, flags, depth } = position;
        let walked = frames.split_last().map_or(frames, |(_, walked)| walked);
        let hash = walked.iter().fold(mix(0, seed), |hash, frame| mix(hash, *frame));
        // The number of frames is at most MAX_FRAMES.
        Self { ip, sp, fp, hash, count: walked.len() as u32, depth, flags, reserved: 0, proven_hash: 0, leaf }
    }

    /// Returns the number of frames found.
    #[inline(always)]
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Returns a hash of the seed, the frames in order, and `end`, the number of an [`End`].
    #[inline(always)]
    #[must_use]
    pub fn hash(&self, end: u32) -> u64 {
        mix(self.hash, u64::from(end))
    }

    /// Returns the end of a walk that has ended with [`End::NoRow`]. `stack_start` is the start address of the main thread's
    /// stack. If the last frame is close to this address, the walk is complete: only functions of the C library that start the
    /// program are missing, which have no call frame information.
    #[inline(always)]
    #[must_use]
    pub const fn end_without_row(&self, stack_start: u64) -> End {
        if stack_start.wrapping_sub(self.sp) <= MAX_START_BYTES { self.complete() } else { End::NoRow }
    }

    /// Appends the current frame to `frames` and goes on to its caller.
    ///
    /// The stored address of a frame is its return address. For an interrupted frame, it is the instruction pointer
    /// plus one. So the byte before the stored address always belongs to the executing instruction.
    ///
    /// # Errors
    ///
    /// `Break` with the reason when the walk has ended.
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
        let found = table.lookup(if is_return { self.ip.wrapping_sub(1) } else { self.ip });
        // A return address that a uretprobe has replaced is the address of a trampoline. The trampoline is in no file,
        // so it has no rule.
        if is_return && found.kind != Kind::Rule && self.restore_original_return(table) {
            return ControlFlow::Continue(());
        }
        let is_code = found.end as u32 == End::NoRow as u32 || found.end as u32 == End::NoTable as u32;
        if found.kind == Kind::End && !is_code {
            return self.dead_end(frames, found.end);
        }
        self.begin_proof();
        // A signal handler's return address is set by the kernel, not by a call.
        let is_signal = found.rule.cfa_kind == cfa::SIGNAL;
        self.push(frames, is_return && !is_signal);
        let caller = if found.kind == Kind::Generated || found.rule.cfa_kind == cfa::NONE {
            self.by_frame_pointer(memory, table, found.kind, found.end)
        } else {
            self.by_rule(&found.rule, memory)
        };
        match caller {
            Ok(Caller::Call { cfa, return_address }) if self.lacks_proof(cfa, return_address, memory, table) => {
                ControlFlow::Break(self.end_at_frame(End::NoTable))
            }
            Ok(Caller::Call { return_address: 0, .. }) => ControlFlow::Break(self.complete()),
            Ok(Caller::Call { cfa, return_address }) => {
                self.sp = cfa;
                self.ip = return_address;
                self.flags = self.flags & !(LEAF | PROVING) | RETURN;
                ControlFlow::Continue(())
            }
            Ok(Caller::Interrupted { ip, sp }) => {
                self.sp = sp;
                self.ip = ip;
                self.flags &= !(LEAF | RETURN | BY_FP | PROVING);
                ControlFlow::Continue(())
            }
            Err(end) => ControlFlow::Break(self.end_at_frame(end)),
        }
    }

    /// Remembers the state before a frame that needs a proof.
    #[inline(always)]
    const fn begin_proof(&mut self) {
        if self.flags & UNPROVEN != 0 {
            self.proven_hash = self.hash;
            self.flags = self.flags & !UNPROVEN | PROVING;
        }
    }

    /// Returns true if the current frame needs a proof, and the word that its rule has found is no return address. A frame
    /// that was found by frame pointer has passed other checks.
    #[inline(always)]
    fn lacks_proof(&self, cfa: u64, return_address: u64, memory: &mut impl Memory, table: &mut impl Table) -> bool {
        if self.flags & (PROVING | BY_FP) != PROVING {
            return false;
        }
        if return_address == 0 {
            return true;
        }
        // If a uretprobe has replaced the return address, the next step restores it.
        !follows_call(return_address, memory, table) && table.original_return(cfa.wrapping_sub(8)).is_none()
    }

    /// Returns the end of a walk that finds no caller of the current frame. Removes the frame if it needs a proof.
    #[inline(always)]
    const fn end_at_frame(&mut self, end: End) -> End {
        let is_outermost = end as u32 == End::Complete as u32 || end as u32 == End::Generated as u32;
        if is_outermost || self.flags & PROVING == 0 {
            return end;
        }
        self.count = self.count.wrapping_sub(1);
        self.hash = self.proven_hash;
        End::NoTable
    }

    /// Restores the current return address if a uretprobe has replaced it. Returns true if the original return
    /// address was restored.
    #[inline(always)]
    fn restore_original_return(&mut self, table: &mut impl Table) -> bool {
        match table.original_return(self.sp.wrapping_sub(8)) {
            Some(original) if original != self.ip => {
                self.ip = original;
                true
            }
            _ => false,
        }
    }

    /// Ends the walk at an address without a rule.
    #[inline(always)]
    fn dead_end(&mut self, frames: &mut [u64; MAX_FRAMES], end: End) -> ControlFlow<End> {
        // A frame that was found by frame pointer is dropped unless its address is known to be code.
        if self.flags & BY_FP != 0 {
            match end {
                End::NoMapping => return ControlFlow::Break(self.cut_without_row()),
                End::MappingsBusy => return ControlFlow::Break(end),
                _ => {}
            }
        }
        self.push(frames, self.flags & RETURN != 0);
        ControlFlow::Break(end)
    }

    #[inline(always)]
    fn push(&mut self, frames: &mut [u64; MAX_FRAMES], is_return: bool) {
        let address = if is_return { self.ip } else { self.ip.wrapping_add(1) };
        let frame = if self.flags & BY_FP != 0 { address | FRAME_BY_FP } else { address };
        // The mask changes nothing, but shows the bound to the verifier.
        frames[self.count as usize & (MAX_FRAMES - 1)] = frame;
        self.count += 1;
        self.hash = mix(self.hash, frame);
    }

    #[inline(always)]
    const fn complete(&self) -> End {
        if self.flags & ANY_BY_FP != 0 { End::Generated } else { End::Complete }
    }

    #[inline(always)]
    fn by_rule(&mut self, rule: &Rule, memory: &mut impl Memory) -> Result<Caller, End> {
        self.flags &= !BY_FP;
        let cfa = match rule.cfa_kind {
            cfa::SP => plus(self.sp, rule.cfa_offset),
            cfa::FP => plus(self.known_fp()?, rule.cfa_offset),
            cfa::PLT => self.plt_cfa(rule.cfa_offset),
            cfa::DEREF_SP => plus(word(memory, plus(self.sp, rule.cfa_offset))?, rule.extra),
            cfa::DEREF_FP => plus(word(memory, plus(self.known_fp()?, rule.cfa_offset))?, rule.extra),
            cfa::SIGNAL => return self.interrupted(memory),
            cfa::END => return Err(self.complete()),
            cfa::REGISTER => plus(self.register(rule.extra)?, rule.cfa_offset),
            cfa::GOROUTINE => return self.on_goroutine(rule, memory),
            _ => return Err(End::Untabled),
        };
        check_cfa(self.sp, cfa, MAX_FRAME_BYTES)?;
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
        // The frame pointer is stored below the return address, so a read of the frame pointer brings both words into the window.
        self.restore_fp(rule, cfa, memory)?;
        Ok(Caller::Call { cfa, return_address: word(memory, source)? })
    }

    /// Returns the CFA in a PLT entry. An instruction in the middle of the entry pushes the index of the entry (System
    /// V ABI, AMD64 supplement, section 5.2).
    #[inline(always)]
    const fn plt_cfa(&self, threshold: i32) -> u64 {
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

    /// Returns the caller of Go's `runtime.asmcgocall`. The caller is on another stack, so its frame can be at any address.
    /// The frame pointer register stays the same: code in C restores it, and `runtime.asmcgocall` does not change it.
    #[inline(always)]
    fn on_goroutine(&self, rule: &Rule, memory: &mut impl Memory) -> Result<Caller, End> {
        let (goroutine, distance) = (plus(self.sp, rule.extra), plus(self.sp, rule.cfa_offset));
        let source = memory.goroutine_sp(goroutine, distance).ok_or(End::Unreadable)?;
        if !source.is_multiple_of(8) {
            return Err(End::BadFrame);
        }
        Ok(Caller::Call { cfa: source.wrapping_add(8), return_address: word(memory, source)? })
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

    /// Returns the end of a walk that finds no caller in code without rows.
    #[inline(always)]
    const fn cut_without_row(&self) -> End {
        if self.flags & WITHOUT_TABLE != 0 {
            End::NoTable
        } else if self.flags & FROM_GAP != 0 {
            End::NoRow
        } else {
            End::GeneratedCut
        }
    }

    /// Finds the caller in code without rows: the frame pointer points to the caller's saved frame pointer, and the
    /// return address is above that.
    ///
    /// The frame pointer register may also have any other value, or still hold the frame pointer of an outer function. Therefore
    /// the frame is accepted only if a call precedes the return address, and this call can lead to code without rows.
    ///
    /// Compilers that write no table for an object may keep no frame pointers either. So a frame that was found from an
    /// object without a table is rejected unless it is outermost, or the next step finds its caller.
    #[inline(always)]
    fn by_frame_pointer(
        &mut self,
        memory: &mut impl Memory,
        table: &mut impl Table,
        kind: Kind,
        end: End,
    ) -> Result<Caller, End> {
        self.flags &= !(BY_FP | FROM_GAP | WITHOUT_TABLE);
        if kind != Kind::Generated {
            self.flags |= if end as u32 == End::NoTable as u32 { WITHOUT_TABLE } else { FROM_GAP };
        }
        let cut = self.cut_without_row();
        let pointer = self.known_fp().map_err(|_| cut)?;
        let cfa = pointer.wrapping_add(16);
        check_cfa(self.sp, cfa, MAX_FRAME_POINTER_BYTES).map_err(|_| cut)?;
        if pointer < self.sp {
            return Err(cut);
        }
        self.fp = memory.word(pointer).ok_or(cut)?;
        let return_address = memory.word(pointer.wrapping_add(8)).filter(|&address| address != 0).ok_or(cut)?;
        // A saved frame pointer does not point into the frame that saves it. Any other value is accepted, because the
        // caller may have rows and use the register for another value.
        if self.fp >= self.sp && self.fp < cfa {
            return Err(cut);
        }
        // If a uretprobe has replaced the return address, the next step restores it.
        if !can_return_to(return_address, memory, table) && table.original_return(pointer.wrapping_add(8)).is_none() {
            return Err(cut);
        }
        self.flags |= BY_FP | ANY_BY_FP;
        if self.flags & WITHOUT_TABLE != 0 {
            self.flags |= UNPROVEN;
        }
        Ok(Caller::Call { cfa, return_address })
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
                // Without `black_box`, the compiler drops the mask as redundant. The bounds check is on another copy of
                // the number, which the verifier of Linux 6.1 does not relate to this one.
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

/// Checks that the caller's frame is above the callee's, aligned and not too far away.
#[inline(always)]
const fn check_cfa(sp: u64, cfa: u64, limit: u64) -> Result<(), End> {
    if cfa > sp && cfa - sp < limit && cfa.is_multiple_of(8) { Ok(()) } else { Err(End::BadFrame) }
}

/// Mixes a word into a hash. The multiplier is from Steele and Vigna, "Computationally easy, spectrally good
/// multipliers" (2021), for 64 bits.
#[inline(always)]
#[must_use]
pub const fn mix(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0xD134_2543_DE82_EF95);
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests;
