//! Assembler for the instructions of the stub (Intel SDM, volume 2).
//!
//! Operands are in the order of GNU syntax: the source, then the destination. Operations are on 64 bits unless their name says
//! otherwise. Displacements and branches always take 32 bits, so the size of the code does not depend on addresses.

use super::error::StubError;
use super::layout::{CODE_SIZE, DRAWS, ROUTINES};
use crate::probe_site::GeneralRegister;

/// A general register, by its number in machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Reg {
    Rax,
    Rcx,
    Rdx,
    Rbx,
    Rsp,
    Rbp,
    Rsi,
    Rdi,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
}

impl Reg {
    const ALL: [Self; 16] = [
        Self::Rax,
        Self::Rcx,
        Self::Rdx,
        Self::Rbx,
        Self::Rsp,
        Self::Rbp,
        Self::Rsi,
        Self::Rdi,
        Self::R8,
        Self::R9,
        Self::R10,
        Self::R11,
        Self::R12,
        Self::R13,
        Self::R14,
        Self::R15,
    ];

    /// Returns the register with this number, if there is one.
    pub(super) fn of(register: GeneralRegister) -> Option<Self> {
        Self::ALL.get(usize::from(register.0)).copied()
    }

    pub(super) const fn number(self) -> u8 {
        self as u8
    }
}

/// Operand in the field `r/m` of an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    Register(Reg),
    /// Memory at an offset from a register.
    Based(Reg, i32),
    /// Memory at `offset + base + (index << scale)`. The index is not the stack pointer.
    Indexed {
        base: Reg,
        index: Reg,
        scale: u8,
        offset: i32,
    },
    /// Memory of the stub, by its offset from the base.
    Stub(u64),
    /// Memory at an offset from the thread pointer.
    Thread(u32),
}

impl Operand {
    /// Returns the memory at an offset in the data of the stub.
    pub(super) const fn data(offset: u64) -> Self {
        Self::Stub(CODE_SIZE + offset)
    }
}

impl From<Reg> for Operand {
    fn from(register: Reg) -> Self {
        Self::Register(register)
    }
}

/// Operation with a source and a destination, by its number in machine code.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum Op {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// Direction of a shift, by its number in machine code.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum Shift {
    Left = 4,
    Right = 5,
}

/// Condition of a branch, by the lowest bits of its opcode.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum Condition {
    Overflow = 0,
    Below = 2,
    AboveOrEqual = 3,
    Equal = 4,
    NotEqual = 5,
    BelowOrEqual = 6,
    Above = 7,
}

/// Place in the code that branches name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// Code of a stub that is mapped at a known base. File offsets are indices of `bytes`.
pub(super) struct Assembler {
    bytes: Vec<u8>,
    base: u64,
    labels: Vec<Option<usize>>,
    /// Places of 32-bit fields with their targets.
    branches: Vec<(usize, Label)>,
    /// Name of the function whose code is written.
    function: String,
    /// Name of the first function that is too far away.
    unreachable: Option<String>,
}

impl Assembler {
    /// Starts with an empty header.
    pub(super) fn new(base: u64) -> Self {
        let bytes = vec![0; ROUTINES as usize];
        Self {
            bytes,
            base,
            labels: Vec::new(),
            branches: Vec::new(),
            function: String::from("its data"),
            unreachable: None,
        }
    }

    /// Starts the code for a function. Its name is for errors.
    pub(super) fn begin(&mut self, function: &str) {
        function.clone_into(&mut self.function);
    }

    /// Returns the file offset of the next instruction.
    pub(super) fn here(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the address of a file offset in the process.
    pub(super) fn address(&self, offset: usize) -> u64 {
        self.base.wrapping_add(offset as u64)
    }

    /// Makes a label that is not bound yet.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Makes labels that are not bound yet.
    pub(super) fn labels<const N: usize>(&mut self) -> [Label; N] {
        std::array::from_fn(|_| self.label())
    }

    /// Binds a label to the next instruction.
    pub(super) fn bind(&mut self, label: Label) {
        let here = self.here();
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(here);
        }
    }

    /// Returns the file offset of a label; 0 if it is not bound.
    pub(super) fn offset_of(&self, label: Label) -> u32 {
        let offset = self.labels.get(label.0).copied().flatten();
        offset.and_then(|offset| u32::try_from(offset).ok()).unwrap_or_default()
    }

    /// Pads the code with `int3` to a multiple of 16 bytes.
    pub(super) fn align(&mut self) {
        let length = self.bytes.len().next_multiple_of(16);
        self.bytes.resize(length, 0xcc);
    }

    /// Appends machine code as it is.
    pub(super) fn copy(&mut self, code: &[u8]) {
        self.bytes.extend_from_slice(code);
    }

    /// Returns the header without contents, and the code after it.
    ///
    /// # Errors
    ///
    /// If an operand or a branch does not fit into 32 bits, a label is not bound, or the code is too long.
    pub(super) fn finish(mut self) -> Result<Vec<u8>, StubError> {
        if let Some(function) = self.unreachable {
            return Err(StubError::OutOfReach(function));
        }
        for (at, label) in &self.branches {
            let target = self.labels.get(label.0).copied().flatten();
            let end = at + 4;
            let distance = target.and_then(|target| i32::try_from(target.wrapping_sub(end).cast_signed()).ok());
            let field = self.bytes.get_mut(*at..end);
            let (Some(distance), Some(field)) = (distance, field) else {
                return Err(StubError::Operand(String::from("a branch without a target")));
            };
            field.copy_from_slice(&distance.to_le_bytes());
        }
        if self.bytes.len() as u64 > DRAWS {
            return Err(StubError::CodeTooLong);
        }
        Ok(self.bytes)
    }

    /// Returns the distance from the end of an instruction, at the file offset `end`, to an address in the process.
    pub(super) fn distance(&mut self, address: u64, end: usize) -> [u8; 4] {
        let Ok(distance) = i32::try_from(address.wrapping_sub(self.address(end)).cast_signed()) else {
            self.unreachable.get_or_insert_with(|| self.function.clone());
            return [0; 4];
        };
        distance.to_le_bytes()
    }

    /// Appends an instruction with the fields `reg` and `r/m`. Prefixes are in the order `lock`, segment, REX (Intel SDM, volume 2,
    /// 2.1.1 and 2.2.1). `wide`: the operands have 64 bits.
    fn encode(&mut self, lock: bool, wide: bool, opcode: &[u8], reg: u8, operand: Operand, immediate: &[u8]) {
        let (base, index) = match operand {
            Operand::Register(base) | Operand::Based(base, _) => (base.number(), 0),
            Operand::Indexed { base, index, .. } => (base.number(), index.number()),
            Operand::Stub(_) | Operand::Thread(_) => (0, 0),
        };
        if lock {
            self.bytes.push(0xf0);
        }
        if matches!(operand, Operand::Thread(_)) {
            self.bytes.push(0x64);
        }
        let rex = 0x40 | (u8::from(wide) << 3) | ((reg >> 3) << 2) | ((index >> 3) << 1) | (base >> 3);
        if rex != 0x40 {
            self.bytes.push(rex);
        }
        self.copy(opcode);
        let (reg, index, base) = ((reg & 7) << 3, (index & 7) << 3, base & 7);
        match operand {
            Operand::Register(_) => self.bytes.push(0xc0 | reg | base),
            Operand::Based(_, offset) => {
                self.bytes.push(0x80 | reg | base);
                if base == Reg::Rsp.number() {
                    // The bases rsp and r12 need a SIB byte. In it, the index 4 means that there is no index register.
                    self.bytes.push(0x24);
                }
                self.copy(&offset.to_le_bytes());
            }
            Operand::Indexed { scale, offset, .. } => {
                self.copy(&[0x84 | reg, (scale << 6) | index | base]);
                self.copy(&offset.to_le_bytes());
            }
            Operand::Stub(offset) => {
                self.bytes.push(0x05 | reg);
                let end = self.here() + 4 + immediate.len();
                let distance = self.distance(self.base.wrapping_add(offset), end);
                self.copy(&distance);
            }
            Operand::Thread(offset) => {
                // This SIB byte states that there is neither a base nor an index. Without it, the offset would be
                // relative to rip.
                self.copy(&[0x04 | reg, 0x25]);
                self.copy(&offset.to_le_bytes());
            }
        }
        self.copy(immediate);
    }

    pub(super) fn mov(&mut self, source: Reg, to: impl Into<Operand>) {
        self.encode(false, true, &[0x89], source.number(), to.into(), &[]);
    }

    pub(super) fn load(&mut self, source: Operand, to: Reg) {
        self.encode(false, true, &[0x8b], to.number(), source, &[]);
    }

    /// Loads a byte, and clears the other bits.
    pub(super) fn load_byte(&mut self, source: Operand, to: Reg) {
        self.encode(false, false, &[0x0f, 0xb6], to.number(), source, &[]);
    }

    /// Sets a register to a constant of 32 bits, and clears the other bits. The flags stay.
    pub(super) fn set(&mut self, value: u32, to: Reg) {
        if to.number() > 7 {
            self.bytes.push(0x41);
        }
        self.bytes.push(0xb8 | (to.number() & 7));
        self.copy(&value.to_le_bytes());
    }

    /// Sets a register to a constant of 64 bits.
    pub(super) fn movabs(&mut self, value: u64, to: Reg) {
        self.copy(&[0x48 | (to.number() >> 3), 0xb8 | (to.number() & 7)]);
        self.copy(&value.to_le_bytes());
    }

    /// Stores a constant, which is sign-extended.
    pub(super) fn store(&mut self, value: i32, to: Operand) {
        self.encode(false, true, &[0xc7], 0, to, &value.to_le_bytes());
    }

    pub(super) fn lea(&mut self, source: Operand, to: Reg) {
        self.encode(false, true, &[0x8d], to.number(), source, &[]);
    }

    pub(super) fn op(&mut self, op: Op, source: Reg, to: impl Into<Operand>) {
        self.encode(false, true, &[((op as u8) << 3) | 1], source.number(), to.into(), &[]);
    }

    pub(super) fn op_load(&mut self, op: Op, source: Operand, to: Reg) {
        self.encode(false, true, &[((op as u8) << 3) | 3], to.number(), source, &[]);
    }

    /// Appends `op` with a constant as the source. The processor sign-extends the constant.
    pub(super) fn op_constant(&mut self, op: Op, value: i32, to: impl Into<Operand>) {
        self.encode(false, true, &[0x81], op as u8, to.into(), &value.to_le_bytes());
    }

    /// Compares a byte in memory with a constant.
    pub(super) fn compare_byte(&mut self, value: u8, with: Operand) {
        self.encode(false, false, &[0x80], Op::Cmp as u8, with, &[value]);
    }

    /// Tests bits in memory. The constant is sign-extended.
    pub(super) fn test_constant(&mut self, value: i32, with: Operand) {
        self.encode(false, true, &[0xf7], 0, with, &value.to_le_bytes());
    }

    /// Sets the flags for a register.
    pub(super) fn test(&mut self, register: Reg) {
        self.encode(false, true, &[0x85], register.number(), register.into(), &[]);
    }

    /// Sets the flags for the lower 32 bits of a register.
    pub(super) fn test_32(&mut self, register: Reg) {
        self.encode(false, false, &[0x85], register.number(), register.into(), &[]);
    }

    pub(super) fn imul(&mut self, source: Reg, to: Reg) {
        self.encode(false, true, &[0x0f, 0xaf], to.number(), source.into(), &[]);
    }

    /// Multiplies rax by a register, without signs. The product is in rdx and rax.
    pub(super) fn mul(&mut self, by: Reg) {
        self.encode(false, true, &[0xf7], 4, by.into(), &[]);
    }

    pub(super) fn shift(&mut self, direction: Shift, count: u8, register: Reg) {
        self.encode(false, true, &[0xc1], direction as u8, register.into(), &[count]);
    }

    /// Shifts by the lower 6 bits of cl. The flags stay if these bits are 0.
    pub(super) fn shift_by_cl(&mut self, direction: Shift, register: Reg) {
        self.encode(false, true, &[0xd3], direction as u8, register.into(), &[]);
    }

    /// Shifts `to` to the right, and fills its upper bits with the lower bits of `source`.
    pub(super) fn shrd(&mut self, count: u8, source: Reg, to: Reg) {
        self.encode(false, true, &[0x0f, 0xac], source.number(), to.into(), &[count]);
    }

    /// Sets the bit with this number.
    pub(super) fn bts(&mut self, bit: u8, to: Reg) {
        self.encode(false, true, &[0x0f, 0xba], 5, to.into(), &[bit]);
    }

    /// Sets a bit of `to`. Its number is the content of the register `bit`, modulo 64.
    pub(super) fn bts_of(&mut self, bit: Reg, to: Reg) {
        self.encode(false, true, &[0x0f, 0xab], bit.number(), to.into(), &[]);
    }

    /// Finds the lowest bit that is set.
    pub(super) fn bsf(&mut self, source: Reg, to: Reg) {
        self.encode(false, true, &[0x0f, 0xbc], to.number(), source.into(), &[]);
    }

    pub(super) fn lock_inc(&mut self, to: Operand) {
        self.encode(true, true, &[0xff], 0, to, &[]);
    }

    pub(super) fn lock_dec(&mut self, to: Operand) {
        self.encode(true, true, &[0xff], 1, to, &[]);
    }

    pub(super) fn lock_add(&mut self, source: Reg, to: Operand) {
        self.encode(true, true, &[0x01], source.number(), to, &[]);
    }

    pub(super) fn lock_xadd(&mut self, source: Reg, to: Operand) {
        self.encode(true, true, &[0x0f, 0xc1], source.number(), to, &[]);
    }

    pub(super) fn lock_cmpxchg(&mut self, source: Reg, to: Operand) {
        self.encode(true, true, &[0x0f, 0xb1], source.number(), to, &[]);
    }

    /// Compares al with a byte in memory. If they are equal, stores cl in memory, else loads the byte into al.
    pub(super) fn lock_cmpxchg_cl(&mut self, to: Operand) {
        self.encode(true, false, &[0x0f, 0xb0], Reg::Rcx.number(), to, &[]);
    }

    pub(super) fn push(&mut self, register: Reg) {
        self.push_or_pop(0x50, register);
    }

    pub(super) fn pop(&mut self, register: Reg) {
        self.push_or_pop(0x58, register);
    }

    fn push_or_pop(&mut self, opcode: u8, register: Reg) {
        if register.number() > 7 {
            self.bytes.push(0x41);
        }
        self.bytes.push(opcode | (register.number() & 7));
    }

    /// Appends a conditional branch.
    pub(super) fn branch(&mut self, condition: Condition, to: Label) {
        self.branch_with(&[0x0f, 0x80 | condition as u8], to);
    }

    pub(super) fn jmp(&mut self, to: Label) {
        self.branch_with(&[0xe9], to);
    }

    pub(super) fn call(&mut self, to: Label) {
        self.branch_with(&[0xe8], to);
    }

    fn branch_with(&mut self, opcode: &[u8], to: Label) {
        self.copy(opcode);
        let field = self.here();
        self.branches.push((field, to));
        self.copy(&[0; 4]);
    }

    /// Appends a jump to an address in the process.
    pub(super) fn jmp_to(&mut self, address: u64) {
        let distance = self.distance(address, self.here() + 5);
        self.bytes.push(0xe9);
        self.copy(&distance);
    }

    /// Appends a call of an address in the process.
    pub(super) fn call_to(&mut self, address: u64) {
        let distance = self.distance(address, self.here() + 5);
        self.bytes.push(0xe8);
        self.copy(&distance);
    }

    pub(super) fn ret(&mut self) {
        self.bytes.push(0xc3);
    }

    pub(super) fn nop(&mut self) {
        self.bytes.push(0x90);
    }

    /// Clears the carry flag.
    pub(super) fn clc(&mut self) {
        self.bytes.push(0xf8);
    }

    /// Sets the carry flag.
    pub(super) fn stc(&mut self) {
        self.bytes.push(0xf9);
    }
}
