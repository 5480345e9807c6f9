//! Control flow analysis of a function: finds its return instructions, or proves that all of its paths call a hooked
//! function.
//!
//! A function needs no probe if all of its paths lead to hooked functions. If an exception may leave a function, the
//! return address must not be replaced, but the return instructions can be probed.

use std::cell::Cell;
use std::collections::HashSet;

use super::instruction::Flow;
use crate::elf::Machine;

/// Maximum number of instructions that are analysed for one function and its callees.
const MAX_INSTRUCTIONS: u32 = 8192;
/// Maximum number of instructions of padding after a function. A hostile object has many calls in front of much padding.
const MAX_PADDING: u32 = 256;
/// Maximum depth of nested callees that are analysed.
const MAX_DEPTH: u32 = 4;

/// Target of a pointer that the dynamic linker fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerTarget {
    /// A hooked function.
    Hooked,
    /// Code of the same object, at this address.
    Code(u64),
    /// A function that does not return, such as `abort`.
    NeverReturns,
    /// A function that returns its first argument, such as `memset`.
    ReturnsFirst,
    /// The target is not known.
    Unknown,
}

/// Code of the object that contains the analysed function.
pub trait ObjectCode {
    /// Returns the architecture of the code.
    fn machine(&self) -> Machine;
    /// Returns the bytes from `address` on: at least one whole instruction, or no bytes if there is no code.
    fn code(&self, address: u64) -> Vec<u8>;
    /// Returns the address of the function that contains `address`; `None` if it is not known.
    fn function_start(&self, address: u64) -> Option<u64>;
    /// Returns the end of the function that contains `address`; `None` if it is not known.
    fn function_end(&self, address: u64) -> Option<u64>;
    /// Returns true if a hooked function starts at `address`.
    fn is_hooked(&self, address: u64) -> bool;
    /// Returns the target of the pointer at the address `slot`.
    fn pointer_target(&self, slot: u64) -> PointerTarget;
}

/// Returns true if every call of the function at `entry` calls a hooked function. `null` is the number of an argument: calls
/// with a null pointer in this argument are exempt.
pub(crate) fn always_calls_hooked(object: &impl ObjectCode, entry: u64, null: Option<u8>) -> bool {
    let left = Cell::new(MAX_INSTRUCTIONS);
    let mut walk = Walk::new(object, &left, true, MAX_DEPTH);
    walk.from(entry, null);
    walk.always_calls_hooked()
}

/// Returns the addresses of the return instructions of the function at `entry` and of its tail-called functions.
/// Returns `None` if some cannot be found, or if there are none.
pub fn return_sites(object: &impl ObjectCode, entry: u64) -> Option<Vec<u64>> {
    let left = Cell::new(MAX_INSTRUCTIONS);
    let mut walk = Walk::new(object, &left, false, 0);
    walk.from(entry, None);
    walk.returns.sort_unstable();
    (!walk.incomplete && !walk.returns.is_empty()).then_some(walk.returns)
}

/// Returns true if all instructions from `first` to before `end` are padding. Returns false for more than
/// [`MAX_PADDING`] instructions.
pub(super) fn is_padding(object: &impl ObjectCode, first: u64, end: u64) -> bool {
    is_padding_except(object, first, end, MAX_PADDING, |_| false)
}

/// Returns true if all instructions from `first` to before `end` are padding, except those at addresses that `is_exempt`
/// accepts. Returns false for more than `most` instructions.
pub(super) fn is_padding_except(
    object: &impl ObjectCode,
    first: u64,
    end: u64,
    most: u32,
    is_exempt: impl Fn(u64) -> bool,
) -> bool {
    let machine = object.machine();
    let mut at = first;
    for _ in 0..most {
        if at >= end {
            return true;
        }
        let code = object.code(at);
        match machine.decode(&code, at) {
            Some(instruction) if is_exempt(at) || machine.is_padding(&code) => {
                at = at.wrapping_add(instruction.length as u64);
            }
            _ => return false,
        }
    }
    at >= end
}

struct Walk<'a, A> {
    object: &'a A,
    /// Number of instructions that may still be analysed.
    left: &'a Cell<u32>,
    /// True if a path ends at a call of a hooked function.
    stops: bool,
    depth: u32,
    seen: HashSet<u64>,
    waiting: Vec<u64>,
    returns: Vec<u64>,
    calls_hooked: bool,
    /// True if there may be unknown paths.
    incomplete: bool,
}

/// Target of a jump or call.
#[derive(Clone, Copy)]
enum Target {
    Hooked,
    Code(u64),
    Unknown,
}

impl<'a, A: ObjectCode> Walk<'a, A> {
    fn new(object: &'a A, left: &'a Cell<u32>, stops: bool, depth: u32) -> Self {
        let (seen, waiting, returns) = (HashSet::new(), Vec::new(), Vec::new());
        Self { object, left, stops, depth, seen, waiting, returns, calls_hooked: false, incomplete: false }
    }

    fn from(&mut self, entry: u64, null: Option<u8>) {
        let entry = null.and_then(|argument| self.after_null_test(entry, argument)).unwrap_or(entry);
        self.waiting.push(entry);
        while let Some(at) = self.waiting.pop() {
            // A single path without a hooked function decides the result.
            if self.incomplete || self.stops && !self.returns.is_empty() {
                return;
            }
            if self.seen.insert(at) {
                match self.left.get().checked_sub(1) {
                    Some(left) => self.left.set(left),
                    None => self.incomplete = true,
                }
                self.step(at);
            }
        }
    }

    fn always_calls_hooked(&self) -> bool {
        self.calls_hooked && !self.incomplete && self.returns.is_empty()
    }

    /// If the function starts with a null test of this argument, returns the address of the path for other values.
    fn after_null_test(&self, entry: u64, argument: u8) -> Option<u64> {
        let machine = self.object.machine();
        let test = self.object.code(entry);
        let at = entry.wrapping_add(machine.decode(&test, entry)?.length as u64);
        if !machine.tests_for_null(&test, argument) {
            return None;
        }
        let code = self.object.code(at);
        let branch = machine.decode(&code, at)?;
        match (branch.flow, machine.taken_if_null(&code, at)?) {
            (Flow::Branch(_), true) => Some(at.wrapping_add(branch.length as u64)),
            (Flow::Branch(target), false) => Some(target),
            _ => None,
        }
    }

    fn step(&mut self, at: u64) {
        let machine = self.object.machine();
        let code = self.object.code(at);
        let Some(instruction) = machine.decode(&code, at) else {
            self.incomplete = true;
            return;
        };
        let next = at.wrapping_add(instruction.length as u64);
        match instruction.flow {
            Flow::Next => self.go_on(at, next, false),
            Flow::Branch(target) => {
                self.waiting.push(target);
                self.go_on(at, next, false);
            }
            Flow::Jump(target) => {
                let target = self.resolve(target);
                self.jump(target);
            }
            Flow::Indirect => {
                let target = self.indirect_target(&code, at);
                self.jump(target);
            }
            Flow::Call(target) => {
                let target = match target {
                    Some(target) => self.resolve(target),
                    None => self.indirect_target(&code, at),
                };
                if self.stops && self.calls_hooked_function(target) {
                    self.calls_hooked = true;
                } else {
                    self.go_on(at, next, true);
                }
            }
            Flow::Return => self.returns.push(at),
            Flow::Trap => {}
            // A system call may not return.
            Flow::Away => self.incomplete = true,
        }
    }

    fn go_on(&mut self, at: u64, next: u64, after_call: bool) {
        match self.object.function_end(at) {
            // The last instruction of a function may be a call that does not return, followed by padding.
            Some(end) if after_call && is_padding(self.object, next, end) => {}
            Some(end) if next < end => self.waiting.push(next),
            _ => self.incomplete = true,
        }
    }

    fn jump(&mut self, target: Target) {
        match target {
            Target::Hooked if self.stops => self.calls_hooked = true,
            Target::Code(address) => self.waiting.push(address),
            Target::Hooked | Target::Unknown => self.incomplete = true,
        }
    }

    fn calls_hooked_function(&self, target: Target) -> bool {
        match target {
            Target::Hooked => true,
            Target::Code(address) if self.depth > 0 => {
                let mut walk = Walk::new(self.object, self.left, true, self.depth - 1);
                walk.from(address, None);
                walk.always_calls_hooked()
            }
            Target::Code(_) | Target::Unknown => false,
        }
    }

    /// Returns the target of a direct jump or call. If `target` is a PLT stub, this is the target of the stub.
    fn resolve(&self, target: u64) -> Target {
        if self.object.is_hooked(target) {
            return if self.stops { Target::Hooked } else { Target::Code(target) };
        }
        match self.object.machine().slot(&self.object.code(target), target) {
            Some(slot) => self.target_of_slot(slot),
            None => Target::Code(target),
        }
    }

    fn indirect_target(&self, code: &[u8], at: u64) -> Target {
        self.object.machine().pointer_of(code, at).map_or(Target::Unknown, |slot| self.target_of_slot(slot))
    }

    fn target_of_slot(&self, slot: u64) -> Target {
        match self.object.pointer_target(slot) {
            PointerTarget::Hooked => Target::Hooked,
            PointerTarget::Code(address) if self.object.is_hooked(address) && self.stops => Target::Hooked,
            PointerTarget::Code(address) => Target::Code(address),
            PointerTarget::NeverReturns | PointerTarget::ReturnsFirst | PointerTarget::Unknown => Target::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
