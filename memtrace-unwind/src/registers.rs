//! Registers at the start of a walk.

/// Number of registers with a DWARF number, without the instruction pointer.
pub(crate) const NUMBERED: usize = 16;

/// Access to the registers at the start of a walk.
pub trait InitialRegisters {
    /// Returns the instruction pointer.
    fn ip(&self) -> u64;
    /// Returns true if the instruction pointer is a return address, as in a return probe. Otherwise it is the address
    /// of the next instruction.
    fn ip_is_return(&self) -> bool;
    /// Returns a register by its DWARF number, which is below 16; 6 is the frame pointer and 7 the stack pointer.
    fn register(&self, number: usize) -> u64;
}

/// Registers at the start of a walk, as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// True if the instruction pointer is a return address, as in a return probe. Otherwise it is the address of the
    /// next instruction.
    pub ip_is_return: bool,
    /// Registers by DWARF number; 6 is the frame pointer and 7 the stack pointer.
    pub numbered: [u64; NUMBERED],
}

impl InitialRegisters for Registers {
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
