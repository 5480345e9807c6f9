//! Exits of a function: the instructions at which its calls end.
//!
//! A call ends with a return. A function can also end with a jump to another function, which then returns to the caller (a tail
//! call). If the jump leads to code of the same object, the call ends at a return of the other function, so the analysis follows
//! the jump. Calls also end at returns after the handlers of exceptions. A jump to another object, or by a pointer, is an exit
//! itself: the code that it leads to is not known, or belongs to all users of another object. A jump from another function back
//! to the entry is an exit too, because it begins a call of its own.

use std::collections::BTreeSet;

use memtrace_model::JumpCondition;

use super::instruction::Flow;
use super::paths::{ObjectCode, PointerTarget, is_padding, is_padding_except};

/// Maximum number of instructions that are analysed for one function, with the functions that it jumps to.
const MAX_INSTRUCTIONS: u32 = 8192;

/// Maximum number of instructions in the function around a jump by a pointer.
const MAX_COVERED: u32 = 2 * MAX_INSTRUCTIONS - 1;

/// Maximum number of functions that are analysed for one function. A hostile object has many with a large list of handlers.
const MAX_FUNCTIONS: usize = 256;

/// Maximum number of exits of a function.
const MAX_EXITS: usize = 32;

/// Exits of a function, by their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exits {
    /// Return instructions, of the function and of functions that it jumps to.
    pub(crate) returns: Vec<u64>,
    /// Jumps to code that is not analysed. The condition is `None` for an unconditional jump.
    pub(crate) jumps: Vec<(u64, Option<JumpCondition>)>,
}

impl Exits {
    fn addresses(&self) -> impl Iterator<Item = u64> {
        self.returns.iter().copied().chain(self.jumps.iter().map(|(address, _)| *address))
    }
}

/// Reason that the exits of a function are not known, or cannot be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExitRefusal {
    /// The file cannot be read.
    #[error("its code cannot be read")]
    Unreadable,
    /// A jump may lead to code in the function that was not analysed.
    #[error("the jump at {0:#x} may be that of a jump table, so not all of its returns are known")]
    JumpTable(u64),
    /// A conditional jump of a kind that BPF cannot evaluate leaves the function.
    #[error("the conditional jump at {0:#x} leaves it")]
    Conditional(u64),
    /// A jump in the function leads to its entry. The probe there cannot tell a repetition from a call.
    #[error("the jump at {0:#x} leads back to its first instruction, so its repetitions would count as calls")]
    Repeats(u64),
    /// The list of the handlers of exceptions of the function at this address is damaged, or has an unknown form.
    #[error("the handlers of exceptions of the function at {0:#x} cannot be read, so not all of its returns are known")]
    Handlers(u64),
    /// A system call or a breakpoint may not return.
    #[error("there is a system call or a breakpoint at {0:#x}, so not all of its returns are known")]
    SystemCall(u64),
    /// The bytes at this address are no instruction.
    #[error("the bytes at {0:#x} are no instruction")]
    Undecodable(u64),
    /// The path at this address leads out of the known functions.
    #[error("the end of its code after {0:#x} is not known")]
    NoEnd(u64),
    /// The kernel refuses a probe at the exit at this address.
    #[error("the kernel refuses a probe at its exit at {0:#x}")]
    Unprobeable(u64),
    /// The function has too many instructions.
    #[error("it is too long to analyse")]
    TooLong,
    /// The function has too many exits.
    #[error("it has {0} exits, and at most {max} can be probed", max = MAX_EXITS)]
    TooManyExits(usize),
    /// No path leads to an exit.
    #[error("it does not return")]
    NoExit,
}

/// Facts about the functions of an object that its code does not show.
#[derive(Clone, Copy)]
pub(crate) struct FunctionFacts<'a> {
    /// Returns true for the address of a function that has a name. Code at other addresses may be a part of a function.
    pub(crate) is_named: &'a dyn Fn(u64) -> bool,
    /// Returns the addresses at which an exception enters the function that starts at this address; `None` if they cannot
    /// be read.
    pub(crate) landing_pads: &'a dyn Fn(u64) -> Option<Vec<u64>>,
    /// True if functions start again after a runtime has moved their stack, as functions of Go do.
    pub(crate) may_restart: bool,
}

/// Returns the exits of the function at `entry`. If the exits of functions that it jumps to are not known, the jumps to
/// them are exits.
pub(crate) fn exits(object: &impl ObjectCode, entry: u64, facts: FunctionFacts<'_>) -> Result<Exits, ExitRefusal> {
    let followed = Walk::new(object, facts, &|_: u64| false, entry).run();
    followed.or_else(|_| Walk::new(object, facts, facts.is_named, entry).run())
}

struct Walk<'a, A> {
    object: &'a A,
    facts: FunctionFacts<'a>,
    /// Returns true if a jump to this address is an exit.
    is_outside: &'a dyn Fn(u64) -> bool,
    entry: u64,
    /// Starts of the functions with known landing pads.
    entered: BTreeSet<u64>,
    /// Number of instructions that may still be analysed.
    left: u32,
    seen: BTreeSet<u64>,
    waiting: Vec<u64>,
    exits: Exits,
    /// Jumps by a pointer in a register or in memory at a register.
    by_pointer: Vec<u64>,
}

/// Target of a jump.
#[derive(Clone, Copy)]
enum Target {
    Code(u64),
    /// Code that is not analysed.
    Outside,
    NeverReturns,
}

impl<'a, A: ObjectCode> Walk<'a, A> {
    fn new(object: &'a A, facts: FunctionFacts<'a>, is_outside: &'a dyn Fn(u64) -> bool, entry: u64) -> Self {
        let (entered, seen, left) = (BTreeSet::new(), BTreeSet::new(), MAX_INSTRUCTIONS);
        let (waiting, exits, by_pointer) = (vec![entry], Exits::default(), Vec::new());
        Self { object, facts, is_outside, entry, entered, left, seen, waiting, exits, by_pointer }
    }

    fn run(mut self) -> Result<Exits, ExitRefusal> {
        while let Some(at) = self.waiting.pop() {
            if self.seen.insert(at) {
                self.left = self.left.checked_sub(1).ok_or(ExitRefusal::TooLong)?;
                self.add_landing_pads(at)?;
                self.step(at)?;
            }
        }
        match self.exits.addresses().count() + self.by_pointer.len() {
            0 => return Err(ExitRefusal::NoExit),
            1..=MAX_EXITS => {}
            count => return Err(ExitRefusal::TooManyExits(count)),
        }
        // If all code of the function was reached by other paths, a jump by a pointer leads to no unknown return.
        if let Some(&at) = self.by_pointer.iter().find(|at| !self.reaches_all_around(**at)) {
            return Err(ExitRefusal::JumpTable(at));
        }
        let Self { object, mut exits, by_pointer, .. } = self;
        exits.jumps.extend(by_pointer.into_iter().map(|at| (at, None)));
        exits.returns.sort_unstable();
        exits.jumps.sort_unstable();
        let unprobeable = exits.addresses().find(|at| object.machine().is_refused(&object.code(*at)));
        match unprobeable {
            Some(at) => Err(ExitRefusal::Unprobeable(at)),
            None => Ok(exits),
        }
    }

    /// Adds the paths on which the function that contains `at` continues after an exception.
    fn add_landing_pads(&mut self, at: u64) -> Result<(), ExitRefusal> {
        let (Some(start), Some(end)) = (self.object.function_start(at), self.object.function_end(at)) else {
            return Ok(());
        };
        if self.entered.insert(start) {
            if self.entered.len() > MAX_FUNCTIONS {
                return Err(ExitRefusal::TooLong);
            }
            let pads = (self.facts.landing_pads)(start).ok_or(ExitRefusal::Handlers(start))?;
            self.waiting.extend(pads.into_iter().filter(|pad| (start..end).contains(pad)));
        }
        Ok(())
    }

    fn step(&mut self, at: u64) -> Result<(), ExitRefusal> {
        let machine = self.object.machine();
        let code = self.object.code(at);
        let instruction = machine.decode(&code, at).ok_or(ExitRefusal::Undecodable(at))?;
        let next = at.wrapping_add(instruction.length as u64);
        match instruction.flow {
            Flow::Next => self.go_on(at, next, false)?,
            Flow::Branch(target) => {
                match self.target(at, target)? {
                    Target::Code(address) => self.waiting.push(address),
                    Target::Outside => {
                        let condition = machine.jump_condition(&code).ok_or(ExitRefusal::Conditional(at))?;
                        self.exits.jumps.push((at, Some(condition)));
                    }
                    Target::NeverReturns => {}
                }
                self.go_on(at, next, false)?;
            }
            Flow::Jump(target) => {
                let target = self.target(at, target)?;
                self.jump(at, target);
            }
            Flow::Indirect => match machine.pointer_of(&code, at) {
                Some(slot) => self.jump(at, self.target_of_slot(slot)),
                None if machine.jumps_by_table(&code) => return Err(ExitRefusal::JumpTable(at)),
                None => self.by_pointer.push(at),
            },
            Flow::Call(target) => {
                let slot = match target {
                    Some(target) => machine.slot(&self.object.code(target), target),
                    None => machine.pointer_of(&code, at),
                };
                // Code after a call that does not return belongs to another path, or is data.
                if slot.is_none_or(|slot| !matches!(self.target_of_slot(slot), Target::NeverReturns)) {
                    self.go_on(at, next, true)?;
                }
            }
            Flow::Return => self.exits.returns.push(at),
            Flow::Trap => {}
            Flow::Away => return Err(ExitRefusal::SystemCall(at)),
        }
        Ok(())
    }

    fn go_on(&mut self, at: u64, next: u64, after_call: bool) -> Result<(), ExitRefusal> {
        match self.object.function_end(at) {
            // The last instruction of a function may be a call that does not return, followed by padding.
            Some(end) if after_call && is_padding(self.object, next, end) => {}
            Some(end) if next < end => self.waiting.push(next),
            _ => return Err(ExitRefusal::NoEnd(at)),
        }
        Ok(())
    }

    fn jump(&mut self, at: u64, target: Target) {
        match target {
            Target::Code(address) => self.waiting.push(address),
            Target::Outside => self.exits.jumps.push((at, None)),
            Target::NeverReturns => {}
        }
    }

    /// Returns the target of the direct jump at `at`. If `target` is a PLT stub, this is the target of the stub.
    fn target(&self, at: u64, target: u64) -> Result<Target, ExitRefusal> {
        if target == self.entry {
            let is_inside = self.object.function_start(at) == self.object.function_start(target);
            if is_inside && !self.facts.may_restart {
                return Err(ExitRefusal::Repeats(at));
            }
            return Ok(if is_inside { Target::Code(target) } else { Target::Outside });
        }
        Ok(match self.object.machine().slot(&self.object.code(target), target) {
            Some(slot) => self.target_of_slot(slot),
            None if (self.is_outside)(target) => Target::Outside,
            None => Target::Code(target),
        })
    }

    /// Returns the target of a jump by a pointer that the dynamic linker fills. A definition in another object can take
    /// precedence over the object's own one, so the code of the own one is not followed.
    fn target_of_slot(&self, slot: u64) -> Target {
        match self.object.pointer_target(slot) {
            PointerTarget::NeverReturns => Target::NeverReturns,
            PointerTarget::Hooked | PointerTarget::Code(_) | PointerTarget::ReturnsFirst | PointerTarget::Unknown => {
                Target::Outside
            }
        }
    }

    /// Returns true if the walk has reached all instructions of the function that contains `at`, except padding.
    fn reaches_all_around(&self, at: u64) -> bool {
        let (Some(start), Some(end)) = (self.object.function_start(at), self.object.function_end(at)) else {
            return false;
        };
        is_padding_except(self.object, start, end, MAX_COVERED, |address| self.seen.contains(&address))
    }
}

#[cfg(test)]
mod tests;
