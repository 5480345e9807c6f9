//! The ways through a function: whether all of them pass it on to functions that are followed, and where they return.
//!
//! A function that has no ways of its own need not be probed. And one that an exception may leave must not have its return
//! address exchanged, but can be probed at its return instructions.

use std::cell::Cell;
use std::collections::HashSet;

use super::instruction::Flow;
use crate::elf::Machine;

/// The most instructions that are looked at for one function, and what it calls.
const MOST: u32 = 8192;
/// How many calls deep it is looked whether a function only passes its calls on.
const DEPTH: u32 = 4;

/// Where a pointer leads that the dynamic linker fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lead {
    /// To a function that is followed.
    Followed,
    /// To code of the same object.
    Code(u64),
    /// It is not known.
    Unknown,
}

/// What is known of the code around.
pub(crate) trait Surroundings {
    /// The machine that the code is for.
    fn machine(&self) -> Machine;
    /// The code at `address`, at least one instruction of it; empty where there is none.
    fn code(&self, address: u64) -> Vec<u8>;
    /// Where the function that has the code at `address` ends; `None` where it is not known.
    fn end(&self, address: u64) -> Option<u64>;
    /// Whether a function that is followed begins at `address`.
    fn is_followed(&self, address: u64) -> bool;
    /// Where the pointer at `slot` leads.
    fn lead(&self, slot: u64) -> Lead;
}

/// Whether every call of the function at `entry`, but for those with a null pointer in the argument `null`, goes through
/// a function that is followed.
pub(crate) fn passes_on(around: &impl Surroundings, entry: u64, null: Option<u8>) -> bool {
    let left = Cell::new(MOST);
    let mut walk = Walk::new(around, &left, true, DEPTH);
    walk.from(entry, null);
    walk.passes_on()
}

/// The return instructions by which the function at `entry` can be left, those of the functions that it jumps to at its
/// end included; `None` where not all of them can be known.
pub(crate) fn returns(around: &impl Surroundings, entry: u64) -> Option<Vec<u64>> {
    let left = Cell::new(MOST);
    let mut walk = Walk::new(around, &left, false, 0);
    walk.from(entry, None);
    walk.returns.sort_unstable();
    (!walk.open && !walk.returns.is_empty()).then_some(walk.returns)
}

struct Walk<'a, A> {
    around: &'a A,
    /// How many instructions may still be looked at.
    left: &'a Cell<u32>,
    /// Whether a way ends where it is passed on to a function that is followed.
    stops: bool,
    depth: u32,
    seen: HashSet<u64>,
    waiting: Vec<u64>,
    returns: Vec<u64>,
    passed_on: bool,
    /// Whether there may be ways that are not known.
    open: bool,
}

/// Where a jump or a call leads.
#[derive(Clone, Copy)]
enum Target {
    Followed,
    Code(u64),
    Unknown,
}

impl<'a, A: Surroundings> Walk<'a, A> {
    fn new(around: &'a A, left: &'a Cell<u32>, stops: bool, depth: u32) -> Self {
        let (seen, waiting, returns) = (HashSet::new(), Vec::new(), Vec::new());
        Self { around, left, stops, depth, seen, waiting, returns, passed_on: false, open: false }
    }

    fn from(&mut self, entry: u64, null: Option<u8>) {
        let entry = null.and_then(|argument| self.behind_null_test(entry, argument)).unwrap_or(entry);
        self.waiting.push(entry);
        while let Some(at) = self.waiting.pop() {
            // Where it is only asked whether all ways are passed on, the first that is not answers.
            if self.open || self.stops && !self.returns.is_empty() {
                return;
            }
            if self.seen.insert(at) {
                match self.left.get().checked_sub(1) {
                    Some(left) => self.left.set(left),
                    None => self.open = true,
                }
                self.step(at);
            }
        }
    }

    fn passes_on(&self) -> bool {
        self.passed_on && !self.open && self.returns.is_empty()
    }

    /// Where a function goes on that looks first of all whether its argument is null, when it is not.
    fn behind_null_test(&self, entry: u64, argument: u8) -> Option<u64> {
        let machine = self.around.machine();
        let test = self.around.code(entry);
        let at = entry.wrapping_add(machine.decode(&test, entry)?.length as u64);
        if !machine.tests_for_null(&test, argument) {
            return None;
        }
        let code = self.around.code(at);
        let branch = machine.decode(&code, at)?;
        match (branch.flow, machine.taken_if_null(&code, at)?) {
            (Flow::Branch(_), true) => Some(at.wrapping_add(branch.length as u64)),
            (Flow::Branch(target), false) => Some(target),
            _ => None,
        }
    }

    fn step(&mut self, at: u64) {
        let machine = self.around.machine();
        let code = self.around.code(at);
        let Some(instruction) = machine.decode(&code, at) else {
            self.open = true;
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
                let target = self.pointed(&code, at);
                self.jump(target);
            }
            Flow::Call(target) => {
                let target = match target {
                    Some(target) => self.resolve(target),
                    None => self.pointed(&code, at),
                };
                if self.stops && self.is_passed_on(target) {
                    self.passed_on = true;
                } else {
                    self.go_on(at, next, true);
                }
            }
            Flow::Return => self.returns.push(at),
            Flow::Trap => {}
            // A system call may return, and may not.
            Flow::Away => self.open = true,
        }
    }

    fn go_on(&mut self, at: u64, next: u64, behind_call: bool) {
        match self.around.end(at) {
            // A call that does not return may be the last instruction of a function, but for what fills the gap to the next.
            Some(end) if behind_call && self.is_padding(next, end) => {}
            Some(end) if next < end => self.waiting.push(next),
            _ => self.open = true,
        }
    }

    fn is_padding(&self, first: u64, end: u64) -> bool {
        let machine = self.around.machine();
        let mut at = first;
        while at < end {
            let code = self.around.code(at);
            match machine.decode(&code, at) {
                Some(instruction) if machine.is_padding(&code) => at = at.wrapping_add(instruction.length as u64),
                _ => return false,
            }
        }
        true
    }

    fn jump(&mut self, target: Target) {
        match target {
            Target::Followed if self.stops => self.passed_on = true,
            Target::Code(address) => self.waiting.push(address),
            Target::Followed | Target::Unknown => self.open = true,
        }
    }

    fn is_passed_on(&self, target: Target) -> bool {
        match target {
            Target::Followed => true,
            Target::Code(address) if self.depth > 0 => {
                let mut walk = Walk::new(self.around, self.left, true, self.depth - 1);
                walk.from(address, None);
                walk.passes_on()
            }
            Target::Code(_) | Target::Unknown => false,
        }
    }

    /// Sees through the stubs by which an object calls what another may replace.
    fn resolve(&self, target: u64) -> Target {
        if self.around.is_followed(target) {
            return if self.stops { Target::Followed } else { Target::Code(target) };
        }
        match self.around.machine().slot(&self.around.code(target), target) {
            Some(slot) => self.led(slot),
            None => Target::Code(target),
        }
    }

    fn pointed(&self, code: &[u8], at: u64) -> Target {
        self.around.machine().pointed_by(code, at).map_or(Target::Unknown, |slot| self.led(slot))
    }

    fn led(&self, slot: u64) -> Target {
        match self.around.lead(slot) {
            Lead::Followed => Target::Followed,
            Lead::Code(address) if self.around.is_followed(address) && self.stops => Target::Followed,
            Lead::Code(address) => Target::Code(address),
            Lead::Unknown => Target::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
