//! Code of one site: it counts the size, executes the displaced instruction, and jumps back.
//!
//! The hot path changes only scratch registers and flags that are dead at the site. It leads to the cold path if the countdown is
//! too small for the size, or if the freed block may be a sampled one. The cold path saves all registers that a called function
//! may change. It then restores the registers and continues in the hot path, or it drops the frame of the interrupted call, calls
//! the function again, and returns the result to the caller.
//!
//! The cold path must not use the red zone: a function without calls keeps data there. After the call of the function,
//! it returns with all registers as the function has left them: a compiler knows which registers a function of the same
//! object keeps, and callers there rely on it.

use super::assembler::Reg::{R8, R9, R10, R11, Rax, Rcx, Rdi, Rdx, Rsi, Rsp};
use super::assembler::{Assembler, Condition, Label, Op, Operand, Reg, Shift};
use super::displaced;
use super::error::StubError;
use super::layout::{AT_BLOCK, AT_INTERVAL, AT_SIZE, COUNTDOWN, FILTER, IN_COLD};
use super::routines::{LARGE_BITS, LAST_COUNT, Routines};
use super::site::{OverlaySite, SiteKind};
use crate::probe_site::GeneralRegister;

/// Registers that a called function may change, in the order that the cold path pushes them (System V ABI, AMD64
/// supplement, 3.2.1).
const SAVED: [Reg; 9] = [Rax, Rcx, Rdx, Rsi, Rdi, R8, R9, R10, R11];
/// Size of the pushed registers.
const SAVED_SIZE: i32 = 72;
/// Registers of the first six arguments.
const ARGUMENTS: [Reg; 6] = [Rdi, Rsi, Rdx, Rcx, R8, R9];
/// Size of the red zone (System V ABI, AMD64 supplement, 3.2.2).
const RED_ZONE: i32 = 128;
/// Maximum distance of the stack pointer at the site from the return address.
const MAX_LOWERED: u32 = 1024;
/// Maximum distance of the slot of a saved register from the return address. The words for the probe are below it.
const MAX_SLOT: u32 = 96;

/// Local words of the cold path, by their offset from the stack pointer.
const SIZE: Operand = Operand::Based(Rsp, 0);
const INTERVAL: Operand = Operand::Based(Rsp, 8);
const BLOCK: Operand = Operand::Based(Rsp, 24);
const FLAGS: Operand = Operand::Based(Rsp, 32);
const OUT: Operand = Operand::Based(Rsp, 40);
/// Flag: the block that is allocated is to be sampled. It is the result of the routine that draws.
const IS_DRAWN: i32 = 1;
/// Flag: the block that is reallocated was sampled.
const WAS_SAMPLED: i32 = 2;

/// Registers of a site, checked.
struct Site<'a> {
    site: &'a OverlaySite,
    kind: Kind,
    /// Slots of saved registers, by their distance from the return address.
    slots: Vec<(Reg, i32)>,
    /// Registers with arguments, and the registers where the function expects them.
    arguments: Vec<(Reg, Reg)>,
}

/// Kind of a site with its registers.
enum Kind {
    Alloc { size: Reg },
    Product { count: Reg, size: Reg, scratch: Reg },
    AllocOut { out: Reg, size: Reg },
    Realloc { old: Reg, size: Reg, null_forwards: bool, scratch: [Reg; 2] },
    Free { block: Reg, scratch: [Reg; 2] },
}

/// Writes the code of a site. `bias`: difference between an address in the process and in the object.
///
/// # Errors
///
/// If the description of the site contradicts itself.
pub(super) fn write(
    out: &mut Assembler,
    routines: &Routines,
    site: &OverlaySite,
    bias: u64,
) -> Result<Label, StubError> {
    let site = Site::check(site)?;
    out.begin(&site.site.name);
    out.align();
    let [hot, resume, cold] = out.labels();
    out.bind(hot);
    let entry = site.site.function.0.wrapping_add(bias);
    let lowered = site.site.lowered.cast_signed();
    // The return address is at a multiple of 16 plus 8, and the call in the cold path needs a stack pointer that is a multiple of 16.
    let locals = if lowered % 16 == 0 { 64 } else { 56 };
    let mut writer = Writer { out, routines, site: &site, entry, lowered, locals, resume };
    match site.kind {
        Kind::Alloc { size } => {
            writer.count(size, cold);
            writer.resumed(bias);
            writer.cold_alloc(cold, None, |out| out.mov(size, R10));
        }
        Kind::AllocOut { out: pointer, size } => {
            writer.count(size, cold);
            writer.resumed(bias);
            writer.cold_alloc(cold, Some(pointer), |out| out.mov(size, R10));
        }
        Kind::Product { count, size, scratch } => {
            writer.out.mov(count, scratch);
            writer.out.imul(size, scratch);
            // After a signed overflow, the function refuses the product, so nothing counts. There is no signed overflow if both
            // factors are negative and their product is small. Such a call counts, although the function returns null.
            writer.out.branch(Condition::Overflow, resume);
            writer.count(scratch, cold);
            writer.resumed(bias);
            // Either factor may be in r10.
            let (first, second) = if size == R10 { (size, count) } else { (count, size) };
            writer.cold_alloc(cold, None, |out| {
                out.mov(first, R10);
                out.imul(second, R10);
            });
        }
        Kind::Realloc { old, size, null_forwards, scratch } => {
            let cold_old = writer.out.label();
            if null_forwards {
                // The function continues as malloc, whose site counts.
                writer.out.test(old);
                writer.out.branch(Condition::Equal, resume);
            }
            writer.count(size, cold);
            writer.filter(old, scratch, cold_old);
            writer.resumed(bias);
            writer.cold_realloc(cold, cold_old, old, size);
        }
        Kind::Free { block, scratch } => {
            writer.filter(block, scratch, cold);
            writer.resumed(bias);
            writer.cold_free(cold, block);
        }
    }
    Ok(hot)
}

struct Writer<'a> {
    out: &'a mut Assembler,
    routines: &'a Routines,
    site: &'a Site<'a>,
    /// Address of the function in the process.
    entry: u64,
    /// Distance of the stack pointer at the site from the return address.
    lowered: i32,
    /// Size of the local words.
    locals: i32,
    /// The displaced instruction.
    resume: Label,
}

impl Writer<'_> {
    /// Counts a size. A borrow means that the size is greater than the countdown, even if it is greater than 2^63.
    fn count(&mut self, size: Reg, cold: Label) {
        self.out.op(Op::Sub, size, Operand::Thread(COUNTDOWN));
        self.out.branch(Condition::Below, cold);
    }

    /// Looks up a block in the filter.
    fn filter(&mut self, block: Reg, [index, filter]: [Reg; 2], found: Label) {
        self.out.mov(block, index);
        self.out.shift(Shift::Right, 4, index);
        self.out.op_constant(Op::And, LAST_COUNT, index);
        self.out.lea(Operand::data(FILTER), filter);
        self.out.compare_byte(0, Operand::Indexed { base: filter, index, scale: 0, offset: 0 });
        self.out.branch(Condition::NotEqual, found);
    }

    fn resumed(&mut self, bias: u64) {
        self.out.bind(self.resume);
        displaced::write(self.out, self.site.site, bias);
    }

    fn enter(&mut self, cold: Label) {
        self.out.bind(cold);
        self.out.lea(Operand::Based(Rsp, -RED_ZONE), Rsp);
        for register in SAVED {
            self.out.push(register);
        }
        self.out.op_constant(Op::Sub, self.locals, Rsp);
        self.out.lock_inc(Operand::data(IN_COLD));
    }

    /// Restores the saved registers, and raises the stack pointer above the red zone and `more` bytes.
    fn restore(&mut self, more: i32) {
        self.out.op_constant(Op::Add, self.locals, Rsp);
        for register in SAVED.into_iter().rev() {
            self.out.pop(register);
        }
        self.out.lea(Operand::Based(Rsp, RED_ZONE + more), Rsp);
    }

    /// Leaves the cold path for the displaced instruction.
    fn leave(&mut self) {
        self.out.lock_dec(Operand::data(IN_COLD));
        self.restore(0);
        self.out.jmp(self.resume);
    }

    /// Restores the registers that the caller of the function had. Afterwards, the stack pointer points to the return address.
    fn restore_for_caller(&mut self) {
        for &(register, slot) in &self.site.slots {
            self.out.load(self.at_return_address(-i64::from(slot)), register);
        }
        self.restore(self.lowered);
    }

    /// Returns to the caller of the function.
    fn end(&mut self) {
        self.out.lock_dec(Operand::data(IN_COLD));
        self.restore_for_caller();
        self.out.ret();
    }

    /// Returns the memory at an offset from the address of the return address.
    fn at_return_address(&self, offset: i64) -> Operand {
        let frame = self.locals + SAVED_SIZE + RED_ZONE + self.lowered;
        Operand::Based(Rsp, frame + offset as i32)
    }

    /// Returns the memory with a saved register.
    fn saved(&self, register: Reg) -> Option<Operand> {
        let place = SAVED.iter().rev().zip((self.locals..).step_by(8)).find(|(saved, _)| **saved == register);
        place.map(|(_, offset)| Operand::Based(Rsp, offset))
    }

    /// Writes the cold path of a function that allocates. `pointer`: register with the place for the address of the block, if the
    /// function returns an error code. `size` loads the size into r10.
    fn cold_alloc(&mut self, cold: Label, pointer: Option<Reg>, size: impl FnOnce(&mut Assembler)) {
        let [leave, end] = self.out.labels();
        self.enter(cold);
        if let Some(pointer) = pointer {
            self.out.mov(pointer, OUT);
        }
        size(self.out);
        self.out.mov(R10, SIZE);
        self.give_back();
        self.draw();
        self.out.test(Rax);
        self.out.branch(Condition::Equal, leave);
        self.call_function();
        if pointer.is_some() {
            self.out.test_32(Rax);
            self.out.branch(Condition::NotEqual, end);
            self.out.load(OUT, Rcx);
            self.out.load(Operand::Based(Rcx, 0), Rax);
        }
        self.out.test(Rax);
        self.out.branch(Condition::Equal, end);
        self.report(end);
        self.out.bind(end);
        self.end();
        self.out.bind(leave);
        self.leave();
    }

    /// Adds the size in r10 to the countdown again. So a signal handler that does not return leaves a countdown that ends, and the
    /// function can subtract the size once more.
    fn give_back(&mut self) {
        self.out.op(Op::Add, R10, Operand::Thread(COUNTDOWN));
    }

    fn draw(&mut self) {
        self.out.call(self.routines.draw);
        self.out.mov(R9, INTERVAL);
    }

    /// Writes the cold path of a function that reallocates. `cold_old` is its start if the countdown has not ended.
    ///
    /// The free of the old block is reported before the call, because another thread may get the address at once. If the call
    /// fails, the report is undone.
    fn cold_realloc(&mut self, cold: Label, cold_old: Label, old: Reg, size: Reg) {
        let [leave, not_taken, counted, call, call_again] = self.out.labels();
        let [end, failed] = self.out.labels();
        self.enter(cold);
        self.out.mov(old, BLOCK);
        self.out.mov(size, R10);
        self.out.mov(R10, SIZE);
        self.give_back();
        self.out.store(0, FLAGS);
        self.out.load(BLOCK, Rdi);
        self.out.test(Rdi);
        self.out.branch(Condition::Equal, counted);
        self.out.call(self.routines.take);
        self.out.branch(Condition::AboveOrEqual, not_taken);
        self.out.store(WAS_SAMPLED, FLAGS);
        self.out.call(self.routines.tentative_probe);
        self.out.bind(not_taken);
        self.out.load(SIZE, R10);
        self.out.bind(counted);
        self.draw();
        self.out.op(Op::Or, Rax, FLAGS);
        self.out.test_constant(IS_DRAWN, FLAGS);
        self.out.branch(Condition::NotEqual, call);
        self.out.test_constant(WAS_SAMPLED, FLAGS);
        self.out.branch(Condition::Equal, leave);
        // The routine has subtracted the size, unless the size is too large to be counted.
        self.out.load(SIZE, R10);
        self.out.mov(R10, Rax);
        self.out.shift(Shift::Right, LARGE_BITS, Rax);
        self.out.branch(Condition::NotEqual, call);
        self.out.bind(call_again);
        self.give_back();

        self.out.bind(call);
        self.call_function();
        self.out.test(Rax);
        self.out.branch(Condition::Equal, failed);
        self.out.test_constant(IS_DRAWN, FLAGS);
        self.out.branch(Condition::Equal, end);
        self.report(end);
        self.out.bind(end);
        self.end();

        // A reallocation to size 0 may free the block and return null. In this case, the report of the free remains.
        self.out.bind(failed);
        self.out.test_constant(WAS_SAMPLED, FLAGS);
        self.out.branch(Condition::Equal, end);
        self.out.op_constant(Op::Cmp, 0, SIZE);
        self.out.branch(Condition::Equal, end);
        self.out.load(BLOCK, Rax);
        self.out.call(self.routines.insert);
        self.out.load(BLOCK, Rdi);
        self.out.call(self.routines.undo_probe);
        self.out.jmp(end);

        // The size is already subtracted. It is given back only before a further call of the function, which subtracts it again.
        self.enter(cold_old);
        self.out.mov(old, BLOCK);
        self.out.mov(size, R10);
        self.out.mov(R10, SIZE);
        self.out.load(BLOCK, Rdi);
        self.out.call(self.routines.take);
        self.out.branch(Condition::AboveOrEqual, leave);
        self.out.store(WAS_SAMPLED, FLAGS);
        self.out.call(self.routines.tentative_probe);
        self.out.load(SIZE, R10);
        self.out.jmp(call_again);
        self.out.bind(leave);
        self.leave();
    }

    /// Writes the cold path of a function that frees.
    fn cold_free(&mut self, cold: Label, block: Reg) {
        let leave = self.out.label();
        self.enter(cold);
        self.out.mov(block, Rdi);
        self.out.call(self.routines.take);
        self.out.branch(Condition::AboveOrEqual, leave);
        self.out.call(self.routines.free_probe);
        self.out.bind(leave);
        self.leave();
    }

    /// Calls the function with the registers of the site, but with each argument where the function expects it. Saves the registers
    /// as the function leaves them.
    fn call_function(&mut self) {
        for register in SAVED {
            let moved = self.site.arguments.iter().find(|(_, to)| *to == register);
            let source = moved.map_or(register, |(source, _)| *source);
            // No source is overwritten before it is needed: it is in memory, or in a register that this loop does not write.
            match self.saved(source) {
                Some(place) => self.out.load(place, register),
                None => self.out.mov(source, register),
            }
        }
        self.out.call_to(self.entry);
        for register in SAVED {
            if let Some(place) = self.saved(register) {
                self.out.mov(register, place);
            }
        }
    }

    /// Inserts the block in rax, and returns to the caller through the probe. Goes to `end` if there is no room.
    fn report(&mut self, end: Label) {
        self.out.call(self.routines.insert);
        self.out.branch(Condition::Below, end);
        self.out.lock_dec(Operand::data(IN_COLD));
        self.out.mov(Rax, self.at_return_address(AT_BLOCK));
        self.out.load(SIZE, Rdx);
        self.out.mov(Rdx, self.at_return_address(AT_SIZE));
        self.out.shift(Shift::Left, 56, R8);
        self.out.op_load(Op::Or, INTERVAL, R8);
        self.out.mov(R8, self.at_return_address(AT_INTERVAL));
        self.restore_for_caller();
        self.out.jmp(self.routines.alloc_probe);
    }
}

impl<'a> Site<'a> {
    fn check(site: &'a OverlaySite) -> Result<Self, StubError> {
        let refused = |reason: String| StubError::Operand(format!("{}: {reason}", site.name));
        let register = |register: GeneralRegister| {
            let found = Reg::of(register).filter(|register| *register != Rsp);
            found.ok_or_else(|| refused(format!("register {} is no operand", register.0)))
        };
        if !site.lowered.is_multiple_of(8) || site.lowered > MAX_LOWERED {
            return Err(refused(format!("the stack pointer is lowered by {} bytes", site.lowered)));
        }
        let mut slots: Vec<(Reg, i32)> = Vec::new();
        for &(saved, slot) in &site.saved {
            let name = register(saved)?;
            let is_slot = slot.is_multiple_of(8) && (8..=MAX_SLOT).contains(&slot);
            let is_twice = slots.iter().any(|(other, at)| *other == name || *at == slot.cast_signed());
            if !GeneralRegister::PRESERVED.contains(&saved) || !is_slot || is_twice {
                return Err(refused(format!("{saved} is not saved {slot} bytes below the return address")));
            }
            slots.push((name, slot.cast_signed()));
        }
        let mut arguments: Vec<(Reg, Reg)> = Vec::new();
        for &(number, source) in &site.arguments {
            let to = ARGUMENTS.get(usize::from(number)).copied();
            let to = to.filter(|to| arguments.iter().all(|(_, other)| other != to));
            let to = to.ok_or_else(|| refused(format!("argument {number} is in two registers, or in none")))?;
            arguments.push((register(source)?, to));
        }
        let mut kept: Vec<Reg> = arguments.iter().map(|(source, _)| *source).collect();
        let mut scratch: Vec<Reg> = Vec::new();
        let (reads, needed) = match site.kind {
            SiteKind::Alloc { size } => (vec![size], 0),
            SiteKind::Product { count, size } => (vec![count, size], 1),
            SiteKind::AllocOut { out, size } => (vec![out, size], 0),
            SiteKind::Realloc { old, size, .. } => (vec![old, size], 2),
            SiteKind::Free { block } => (vec![block], 2),
        };
        for operand in reads {
            kept.push(register(operand)?);
        }
        for &dead in site.scratch.iter().take(needed) {
            let dead = register(dead)?;
            if !SAVED.contains(&dead) || kept.contains(&dead) || scratch.contains(&dead) {
                return Err(refused(String::from("a scratch register has a value")));
            }
            scratch.push(dead);
        }
        displaced::check(site, &scratch)?;
        let scarce = || refused(String::from("there are too few scratch registers"));
        let kind = match site.kind {
            SiteKind::Alloc { size } => Kind::Alloc { size: register(size)? },
            SiteKind::AllocOut { out, size } => Kind::AllocOut { out: register(out)?, size: register(size)? },
            SiteKind::Product { count, size } => {
                let scratch = scratch.first().copied().ok_or_else(scarce)?;
                Kind::Product { count: register(count)?, size: register(size)?, scratch }
            }
            SiteKind::Realloc { old, size, null_forwards } => {
                let scratch: [Reg; 2] = scratch.try_into().map_err(|_| scarce())?;
                Kind::Realloc { old: register(old)?, size: register(size)?, null_forwards, scratch }
            }
            SiteKind::Free { block } => {
                let scratch: [Reg; 2] = scratch.try_into().map_err(|_| scarce())?;
                Kind::Free { block: register(block)?, scratch }
            }
        };
        Ok(Self { site, kind, slots, arguments })
    }
}
