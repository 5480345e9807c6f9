//! Functions that do not return.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::place::{Place, whole};
use crate::elf::Machine;
use crate::probe_site::instruction::Flow;
use crate::probe_site::paths::{ObjectCode, PointerTarget};

/// Maximum number of instructions that are decoded in the search for callees that do not return, for each examined
/// function.
const MAX_OF_CALLEES: u32 = 1 << 16;

/// Maximum depth of nested callees. `malloc` of glibc calls `abort` through three other functions.
pub(super) const MAX_DEPTH: u32 = 6;

/// Search for called functions that do not return.
pub(super) struct Callees<'a, A> {
    object: &'a A,
    /// Number of instructions that may still be decoded.
    left: Cell<u32>,
    /// Examined callees by address: true if a function never returns.
    known: RefCell<HashMap<u64, bool>>,
}

impl<'a, A: ObjectCode> Callees<'a, A> {
    pub(super) fn new(object: &'a A) -> Self {
        Self { object, left: Cell::new(MAX_OF_CALLEES), known: RefCell::default() }
    }

    /// Begins the examination of another function: resets the number of instructions.
    pub(super) fn begin(&self) {
        self.left.set(MAX_OF_CALLEES);
    }

    /// Returns true if the call at `at` does not return to `after`. An unknown function counts as returning.
    ///
    /// Compilers generate no code that is never executed. So the code after a call that does not return is padding,
    /// another function, or the target of a branch. Only calls before such code are examined.
    pub(super) fn never_returns_to(&self, at: u64, after: u64, bytes: &[u8], flow: Flow, depth: u32) -> bool {
        match flow {
            _ if self.is_last(at, after) => true,
            Flow::Call(Some(target)) => {
                depth > 0 && self.can_end_before(at, after) && self.never_returns(target, depth - 1)
            }
            Flow::Call(None) => {
                let slot = Machine::X86_64.pointer_of(bytes, at);
                slot.is_some_and(|slot| self.object.pointer_target(slot) == PointerTarget::NeverReturns)
            }
            _ => false,
        }
    }

    /// Returns true if the call at `at` does not return to `after`, because its first argument is the number `first`.
    pub(super) fn never_returns_with(&self, at: u64, after: u64, first: u64) -> bool {
        let target = Machine::X86_64.decode(&self.object.code(at), at).and_then(|call| call.flow.target());
        target.is_some_and(|target| {
            self.can_end_before(at, after) && self.ends(target, Constants::of_first_argument(first), MAX_DEPTH)
        })
    }

    /// Returns true if only padding follows the call in its function: the compiler knew that the call does not
    /// return.
    fn is_last(&self, at: u64, after: u64) -> bool {
        let Some(end) = self.object.function_end(at) else { return false };
        let mut address = after;
        while address < end {
            let bytes = self.object.code(address);
            match Machine::X86_64.decode(&bytes, address).filter(|_| self.spend()) {
                Some(instruction) if Machine::X86_64.is_padding(&bytes) => {
                    address = address.wrapping_add(instruction.length as u64);
                }
                _ => return false,
            }
        }
        true
    }

    fn can_end_before(&self, at: u64, after: u64) -> bool {
        let Some(end) = self.object.function_end(at) else { return true };
        after >= end || Machine::X86_64.is_padding(&self.object.code(after)) || self.is_target(at, after, end)
    }

    /// Returns true if a branch in the function that contains `at` leads to `after`.
    fn is_target(&self, at: u64, after: u64, end: u64) -> bool {
        let mut address = self.object.function_start(at).unwrap_or(at);
        while address < end {
            let bytes = self.object.code(address);
            let Some(instruction) = Machine::X86_64.decode(&bytes, address) else { return true };
            if !self.spend() {
                return false;
            }
            if matches!(instruction.flow, Flow::Branch(target) | Flow::Jump(target) if target == after) {
                return true;
            }
            address = address.wrapping_add(instruction.length as u64);
        }
        false
    }

    /// Counts an instruction. Returns false if the limit is reached. From then on, calls count as returning.
    fn spend(&self) -> bool {
        let left = self.left.get().checked_sub(1);
        left.inspect(|left| self.left.set(*left)).is_some()
    }

    /// Returns true if no path from `entry` returns, as in `abort`.
    fn never_returns(&self, entry: u64, depth: u32) -> bool {
        if let Some(known) = self.known.borrow().get(&entry) {
            return *known;
        }
        // A function that is being examined counts as returning, because functions can call one another.
        self.known.borrow_mut().insert(entry, false);
        let never = self.ends(entry, Constants::default(), depth);
        self.known.borrow_mut().insert(entry, never);
        never
    }

    fn ends(&self, entry: u64, constants: Constants, depth: u32) -> bool {
        let mut seen = HashSet::new();
        let mut waiting = vec![(entry, constants)];
        while let Some((at, mut constants)) = waiting.pop() {
            if !seen.insert((at, constants.clone())) {
                continue;
            }
            if !self.spend() {
                return false;
            }
            let bytes = self.object.code(at);
            if let Some(slot) = Machine::X86_64.slot(&bytes, at) {
                match self.object.pointer_target(slot) {
                    PointerTarget::NeverReturns => {}
                    PointerTarget::Code(target) => waiting.push((target, constants)),
                    PointerTarget::Hooked | PointerTarget::ReturnsFirst | PointerTarget::Unknown => return false,
                }
                continue;
            }
            let Some(instruction) = Machine::X86_64.decode(&bytes, at) else { return false };
            let after = at.wrapping_add(instruction.length as u64);
            match instruction.flow {
                Flow::Next | Flow::Away => {
                    constants.step(&bytes, at);
                    waiting.push((after, constants));
                }
                Flow::Branch(target) => match (constants.is_zero, Machine::X86_64.taken_if_null(&bytes, at)) {
                    (Some(is_zero), Some(if_zero)) => {
                        waiting.push((if is_zero == if_zero { target } else { after }, constants));
                    }
                    _ => waiting.extend([(target, constants.clone()), (after, constants)]),
                },
                Flow::Jump(target) => waiting.push((target, constants)),
                Flow::Call(_) if self.never_returns_to(at, after, &bytes, instruction.flow, depth) => {}
                Flow::Call(_) => {
                    constants.call();
                    waiting.push((after, constants));
                }
                Flow::Trap => {}
                Flow::Indirect | Flow::Return => return false,
            }
        }
        true
    }
}

/// Registers with known numbers, on one path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Constants {
    numbers: BTreeMap<Register, u64>,
    /// Result of the last comparison with zero, if it is known: true if the number was zero.
    is_zero: Option<bool>,
}

impl Constants {
    fn of_first_argument(number: u64) -> Self {
        Self { numbers: BTreeMap::from([(Register::RDI, number)]), is_zero: None }
    }

    fn number(&self, register: Register) -> Option<u64> {
        let number = *self.numbers.get(&register.full_register())?;
        match register.size() {
            8 => Some(number),
            4 => Some(u64::from(number as u32)),
            _ => None,
        }
    }

    fn step(&mut self, bytes: &[u8], at: u64) {
        let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
        let (target, source) = (instruction.op0_register(), instruction.op1_register());
        let is_immediate = instruction.op_count() == 2 && instruction.try_immediate(1).is_ok();
        let result = match instruction.mnemonic() {
            Mnemonic::Mov if is_immediate => Some(instruction.immediate(1)),
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => self.number(source),
            Mnemonic::And if is_immediate => self.number(target).map(|number| number & instruction.immediate(1)),
            Mnemonic::Xor if target == source && instruction.op1_kind() == OpKind::Register => Some(0),
            _ => None,
        };
        let compared = match instruction.mnemonic() {
            Mnemonic::Test if target == source => self.number(target),
            Mnemonic::And => result,
            _ => None,
        };
        if instruction.rflags_modified() != 0 {
            self.is_zero = compared.map(|number| number == 0);
        }
        let mut factory = InstructionInfoFactory::new();
        let is_written = |access: OpAccess| !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead);
        for used in factory.info(&instruction).used_registers().iter().filter(|used| is_written(used.access())) {
            self.numbers.remove(&used.register().full_register());
        }
        if let Some(number) =
            result.filter(|_| instruction.op0_kind() == OpKind::Register && target.is_gpr() && target.size() >= 4)
        {
            let number = if target.size() == 4 { u64::from(number as u32) } else { number };
            self.numbers.insert(target.full_register(), number);
        }
    }

    /// Forgets the registers and flags that a called function may change.
    fn call(&mut self) {
        self.numbers.retain(
            |register, _| matches!(whole(*register), Some(Place::Register(register)) if register.is_preserved()),
        );
        self.is_zero = None;
    }
}
