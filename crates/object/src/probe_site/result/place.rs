//! Places that hold a word: registers, and slots of the stack frame.

use std::fmt;

use iced_x86::Register;

/// A place that holds a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    /// A general register except for the stack pointer.
    Register(GeneralRegister),
    /// A slot on the stack, by its distance in bytes from the stack pointer at the entry.
    Slot(i64),
}

/// A general register of x86-64, by its number in machine code: rax is 0, rcx 1, rdx 2, rbx 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GeneralRegister(pub u8);

impl GeneralRegister {
    /// Registers that a called function preserves, without the stack pointer: rbx, rbp, and r12 to r15 (System V ABI,
    /// AMD64 supplement, 3.2.1).
    pub const PRESERVED: [Self; 6] = [Self(3), Self(5), Self(12), Self(13), Self(14), Self(15)];

    /// Returns the DWARF number of the register (System V ABI, AMD64 supplement, figure 3.36).
    pub fn dwarf_number(self) -> u8 {
        const NUMBERS: [u8; 8] = [0, 2, 1, 3, 7, 6, 4, 5];
        NUMBERS.get(usize::from(self.0)).copied().unwrap_or(self.0)
    }

    pub(super) fn is_preserved(self) -> bool {
        Self::PRESERVED.contains(&self)
    }
}

impl fmt::Display for GeneralRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi"];
        match NAMES.get(usize::from(self.0)) {
            Some(name) => f.write_str(name),
            None => write!(f, "r{}", self.0),
        }
    }
}

/// Register of a function's result.
pub(super) const RESULT: Place = Place::Register(GeneralRegister(0));

/// Register with the first argument.
pub(super) const FIRST_ARGUMENT: Place = Place::Register(GeneralRegister(7));

/// Returns the place that contains a general register; `None` for the stack pointer and for other registers.
pub(super) fn containing(register: Register) -> Option<Place> {
    let whole = register.full_register();
    let is_general = register.is_gpr() && whole != Register::RSP;
    is_general.then(|| Place::Register(GeneralRegister(u8::try_from(whole.number()).unwrap_or_default())))
}

/// Returns the place of a 64-bit register.
pub(super) fn whole(register: Register) -> Option<Place> {
    if register.is_gpr64() { containing(register) } else { None }
}
