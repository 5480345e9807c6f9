//! Registers at the start of a walk.

/// Number of registers with a DWARF number, the instruction pointer aside.
pub(crate) const NUMBERED: usize = 16;

/// Registers at the start of a walk.
pub trait InitialRegisters {
    /// The instruction pointer.
    fn ip(&self) -> u64;
    /// True if the instruction pointer is a return address, as in a return probe; else it is the next instruction.
    fn ip_is_return(&self) -> bool;
    /// Returns a register by its DWARF number, which is below 16; 6 is the frame pointer and 7 the stack pointer.
    fn register(&self, number: usize) -> u64;
}

/// Registers at the start of a walk, as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The instruction pointer.
    pub ip: u64,
    /// True if the instruction pointer is a return address, as in a return probe; else it is the next instruction.
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
