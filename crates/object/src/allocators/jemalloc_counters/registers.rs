//! Symbolic values of the registers and the stack at an instruction.

use std::collections::BTreeMap;

use iced_x86::Register;

use super::value::{Origin, Value};

/// Registers that a called function may change (System V ABI, AMD64 supplement, 3.2.1).
const CHANGED_BY_CALLS: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

/// Maximum number of stack slots with a known value.
const MAX_SLOTS: usize = 512;

/// Values at an instruction. A missing value is unknown.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    registers: [Option<Value>; 16],
    /// Known words on the stack, by their distance in bytes from the stack pointer at the entry.
    stack: BTreeMap<i64, Value>,
}

impl Registers {
    /// Returns the values at the entry of a function.
    pub(super) fn at_entry() -> Self {
        let mut at_entry = Self { registers: [None; 16], stack: BTreeMap::new() };
        at_entry.set(Register::RDI, Some(Value::new(Origin::Argument, 0)));
        at_entry.set(Register::RSP, Some(Value::new(Origin::Stack, 0)));
        at_entry
    }

    /// Returns the value of a 64-bit register.
    pub(super) fn get(&self, register: Register) -> Option<Value> {
        register.is_gpr64().then(|| self.registers[register.number()]).flatten()
    }

    /// Sets the 64-bit register that contains `register`, if `register` is a general-purpose one.
    pub(super) fn set(&mut self, register: Register, value: Option<Value>) {
        if register.is_gpr() {
            self.registers[register.full_register().number()] = value;
        }
    }

    /// Returns the word at `address` if it is on the stack and known.
    pub(super) fn load(&self, address: Value) -> Option<Value> {
        (address.origin == Origin::Stack).then(|| self.stack.get(&address.offset).copied()).flatten()
    }

    /// Stores a value of `size` bytes at `address`, if the address is on the stack. Overwritten words become unknown.
    pub(super) fn store(&mut self, address: Value, size: i64, value: Option<Value>) {
        if address.origin != Origin::Stack {
            return;
        }
        let (first, end) = (address.offset.saturating_sub(7), address.offset.saturating_add(size.max(1)));
        self.stack.retain(|place, _| *place < first || *place >= end);
        if let Some(value) = value
            && self.stack.len() < MAX_SLOTS
        {
            self.stack.insert(address.offset, value);
        }
    }

    /// Forgets the registers that a called function may change.
    pub(super) fn after_call(&mut self) {
        for register in CHANGED_BY_CALLS {
            self.set(register, None);
        }
    }
}
