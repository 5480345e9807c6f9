//! Decoded x86-64 instruction with its effects on registers, flags and memory.

use iced_x86::{
    Decoder, DecoderOptions, Instruction as Decoded, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
    RflagsBits, UsedMemory,
};
use memtrace_model::VirtOffset;

use super::overlay_site::Relative;
use crate::elf::Machine;
use crate::probe_site::{Flow, GeneralRegister, ObjectCode, PointerTarget};

/// The flags that arithmetic instructions set.
const STATUS: u32 = RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::CF | RflagsBits::PF;

pub(super) const RAX: GeneralRegister = GeneralRegister(0);
pub(super) const RSP: GeneralRegister = GeneralRegister(4);

/// Set of general registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Registers(u16);

impl Registers {
    pub(super) const ALL: Self = Self(u16::MAX);

    /// Registers that a called function preserves.
    pub(super) fn preserved() -> Self {
        GeneralRegister::PRESERVED.into_iter().collect()
    }

    pub(super) fn with(self, register: GeneralRegister) -> Self {
        Self(self.0 | 1_u16.checked_shl(register.0.into()).unwrap_or(0))
    }

    pub(super) fn contains(self, register: GeneralRegister) -> bool {
        self.0 >> (register.0 & 15) & 1 == 1
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn iter(self) -> impl Iterator<Item = GeneralRegister> {
        (0..16).map(GeneralRegister).filter(move |register| self.contains(*register))
    }
}

impl FromIterator<GeneralRegister> for Registers {
    fn from_iter<I: IntoIterator<Item = GeneralRegister>>(registers: I) -> Self {
        registers.into_iter().fold(Self::default(), Self::with)
    }
}

/// Memory that an instruction may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryWrite {
    None,
    /// Bytes at a constant distance from the stack pointer before the instruction.
    Stack {
        first: i64,
        size: i64,
    },
    /// A variable of the thread, by the segment fs.
    Thread,
    Other,
}

/// Use of the status flags by an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagUse {
    None,
    /// The instruction reads flags.
    Reads,
    /// The instruction writes some flags, or writes them only for some values of its operands. It reads none.
    Changes,
    /// The instruction writes all flags.
    Overwrites,
}

/// A decoded instruction.
#[derive(Clone, Debug)]
pub(super) struct Instruction {
    pub(super) at: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) flow: Flow,
    pub(super) decoded: Decoded,
    /// Registers that the instruction may read, as a whole or in part.
    pub(super) reads: Registers,
    /// Registers that the instruction may write, as a whole or in part.
    pub(super) writes: Registers,
    /// Registers that the instruction always writes as a whole.
    pub(super) overwrites: Registers,
    pub(super) memory: MemoryWrite,
    /// True if the instruction changes other state, such as the direction flag or the stack of the floating-point unit.
    pub(super) changes_state: bool,
    /// Offset of the 32-bit displacement in the instruction, if it has one.
    displacement: Option<usize>,
}

impl Instruction {
    /// Decodes the instruction at `at`; `None` if there is none.
    pub(super) fn decode(object: &impl ObjectCode, at: u64) -> Option<Self> {
        Self::first_of(&object.code(at), at)
    }

    /// Decodes the first instruction of `code`, which lies at `at`; `None` if there is none.
    pub(super) fn first_of(code: &[u8], at: u64) -> Option<Self> {
        let flow = Machine::X86_64.decode(code, at)?.flow;
        let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
        let decoded = decoder.decode();
        let offsets = decoder.get_constant_offsets(&decoded);
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(&decoded);
        let mut instruction = Self {
            at,
            bytes: code.get(..decoded.len())?.to_vec(),
            flow,
            decoded,
            reads: Registers::default(),
            writes: Registers::default(),
            overwrites: Registers::default(),
            memory: memory_write(info.used_memory()),
            changes_state: decoded.rflags_modified() & !STATUS != 0 || decoded.fpu_stack_increment_info().writes_top(),
            displacement: (offsets.displacement_size() == 4).then(|| offsets.displacement_offset()),
        };
        for used in info.used_registers() {
            instruction.add_register(used.register(), used.access());
        }
        Some(instruction)
    }

    fn add_register(&mut self, register: Register, access: OpAccess) {
        let Some(general) = general(register) else {
            let is_vector = register.is_vector_register() || register.is_k();
            self.changes_state |= is_written(access) && !is_vector;
            return;
        };
        if matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite) {
            self.reads = self.reads.with(general);
        }
        if is_written(access) {
            self.writes = self.writes.with(general);
        }
        // The decoder reports a write of 32 bits, which clears the upper half, as one of the 64-bit register.
        if matches!(access, OpAccess::Write | OpAccess::ReadWrite) && register.is_gpr64() {
            self.overwrites = self.overwrites.with(general);
        }
    }

    /// Returns the address after the instruction.
    pub(super) fn next(&self) -> u64 {
        self.decoded.next_ip()
    }

    pub(super) fn flags(&self) -> FlagUse {
        let decoded = &self.decoded;
        if decoded.rflags_read() & STATUS != 0 {
            return FlagUse::Reads;
        }
        match decoded.rflags_modified() & STATUS {
            0 => FlagUse::None,
            STATUS if !self.may_keep_flags() => FlagUse::Overwrites,
            _ => FlagUse::Changes,
        }
    }

    /// Returns true if the instruction keeps the flags for some values of its operands: a shift by 0 bits, or a string
    /// instruction that is repeated 0 times.
    fn may_keep_flags(&self) -> bool {
        use Mnemonic::{Rcl, Rcr, Rol, Ror, Sal, Sar, Shl, Shld, Shr, Shrd};
        let decoded = &self.decoded;
        let is_shift = matches!(decoded.mnemonic(), Shl | Sal | Shr | Sar | Rol | Ror | Rcl | Rcr | Shld | Shrd);
        // For a shift by a constant, the decoder itself takes into account that the constant can be 0.
        let is_variable = decoded.try_immediate(decoded.op_count().saturating_sub(1)).is_err();
        is_shift && is_variable || decoded.has_rep_prefix() || decoded.has_repne_prefix()
    }

    /// Returns the register if both operands are this 64-bit register.
    pub(super) fn same_operands(&self) -> Option<GeneralRegister> {
        let register = self.register_operand(0)?;
        (self.register_operand(1) == Some(register)).then_some(register)
    }

    /// Returns the register if the operand with this number is a whole 64-bit general register.
    pub(super) fn register_operand(&self, number: u32) -> Option<GeneralRegister> {
        let decoded = &self.decoded;
        if number >= decoded.op_count() || decoded.op_kind(number) != OpKind::Register {
            return None;
        }
        let register = decoded.op_register(number);
        general(register).filter(|_| register.is_gpr64())
    }

    /// Matches `mov` between 64-bit registers. Returns the source and the target.
    pub(super) fn copy(&self) -> Option<(GeneralRegister, GeneralRegister)> {
        if self.decoded.mnemonic() != Mnemonic::Mov {
            return None;
        }
        Some((self.register_operand(1)?, self.register_operand(0)?))
    }

    /// Matches `cmp` and `test` of registers and constants. They have no other effect than to write all status flags.
    pub(super) fn compares_registers(&self) -> bool {
        let decoded = &self.decoded;
        let is_register = |kind: OpKind| kind == OpKind::Register;
        matches!(decoded.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
            && is_register(decoded.op0_kind())
            && (is_register(decoded.op1_kind()) || decoded.try_immediate(1).is_ok())
    }

    /// Returns the number if the instruction sets rax to a constant.
    pub(super) fn result_constant(&self) -> Option<u64> {
        let decoded = &self.decoded;
        let is_rax =
            decoded.op0_kind() == OpKind::Register && matches!(decoded.op0_register(), Register::EAX | Register::RAX);
        match decoded.mnemonic() {
            Mnemonic::Xor
                if is_rax
                    && decoded.op1_kind() == OpKind::Register
                    && decoded.op0_register() == decoded.op1_register() =>
            {
                Some(0)
            }
            Mnemonic::Mov if is_rax => decoded.try_immediate(1).ok(),
            _ => None,
        }
    }

    /// Matches `sub` of a positive constant from the stack pointer. Returns the number of bytes.
    pub(super) fn lowers_stack(&self) -> Option<u32> {
        let decoded = &self.decoded;
        let subtracts =
            decoded.mnemonic() == Mnemonic::Sub && self.register_operand(0) == Some(RSP) && decoded.op_count() == 2;
        let bytes = decoded.try_immediate(1).ok().filter(|_| subtracts)?;
        u32::try_from(bytes.cast_signed()).ok().filter(|bytes| *bytes > 0)
    }

    /// Returns the 32-bit operand that is relative to the address after the instruction, if there is one.
    pub(super) fn relative(&self) -> Option<Relative> {
        let at = match self.bytes[..] {
            [0x0f, 0x80..=0x8f, _, _, _, _] => 2,
            [0xe9, _, _, _, _] => 1,
            _ if self.decoded.memory_base() == Register::RIP => self.displacement?,
            _ => return None,
        };
        let distance = i32::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?);
        let target = self.next().wrapping_add_signed(i64::from(distance));
        Some(Relative { at: u8::try_from(at).ok()?, target: VirtOffset(target) })
    }

    /// Returns true if the instruction has the same effect at another address, after [`Self::relative`] is changed.
    pub(super) fn is_relocatable(&self) -> bool {
        if !self.decoded.is_ip_rel_memory_operand() {
            return true;
        }
        let is_found = |relative: Relative| relative.target.0 == self.decoded.ip_rel_memory_address();
        self.relative().is_some_and(is_found)
    }
}

fn is_written(access: OpAccess) -> bool {
    !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
}

/// Returns the general register that contains `register`; `None` if `register` is not part of one.
fn general(register: Register) -> Option<GeneralRegister> {
    if !register.is_gpr() {
        return None;
    }
    u8::try_from(register.full_register().number()).ok().map(GeneralRegister)
}

fn memory_write(used: &[UsedMemory]) -> MemoryWrite {
    let mut written = used.iter().filter(|used| is_written(used.access()));
    let Some(first) = written.next() else { return MemoryWrite::None };
    let size = i64::try_from(first.memory_size().size()).unwrap_or(0);
    if written.next().is_some() || size == 0 || first.segment() == Register::GS {
        return MemoryWrite::Other;
    }
    match (first.segment(), first.base(), first.index()) {
        (Register::FS, _, _) => MemoryWrite::Thread,
        (_, Register::RSP, Register::None) => MemoryWrite::Stack { first: first.displacement().cast_signed(), size },
        _ => MemoryWrite::Other,
    }
}

/// Returns the entry of the object's own function that a jump or call to `target` reaches, also by a PLT stub; `None` for a
/// function of another object.
pub(super) fn callee(object: &impl ObjectCode, target: u64) -> Option<u64> {
    match Machine::X86_64.slot(&object.code(target), target) {
        Some(slot) => callee_by_pointer(object, slot),
        None => Some(target),
    }
}

/// Returns the entry of the object's own function that the pointer at `slot` leads to, unless another object defines a
/// function of this name.
pub(super) fn callee_by_pointer(object: &impl ObjectCode, slot: u64) -> Option<u64> {
    match object.pointer_target(slot) {
        PointerTarget::Code(address) => Some(address),
        PointerTarget::Hooked | PointerTarget::NeverReturns | PointerTarget::ReturnsFirst | PointerTarget::Unknown => {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(bytes: &[u8]) -> Instruction {
        let found = Instruction::first_of(bytes, 0x1000).unwrap();
        assert_eq!(found.bytes, bytes);
        found
    }

    fn registers(numbers: &[u8]) -> Registers {
        numbers.iter().copied().map(GeneralRegister).collect()
    }

    #[test]
    fn registers_are_read_written_and_overwritten() {
        let effects = |bytes: &[u8]| {
            let found = instruction(bytes);
            (found.reads, found.writes, found.overwrites)
        };
        let none = Registers::default();
        // mov %rdi,%rax; mov %edi,%eax; mov $1,%dl; xor %ecx,%ecx
        assert_eq!(effects(&[0x48, 0x89, 0xf8]), (registers(&[7]), registers(&[0]), registers(&[0])));
        assert_eq!(effects(&[0x89, 0xf8]), (registers(&[7]), registers(&[0]), registers(&[0])));
        assert_eq!(effects(&[0xb2, 0x01]), (none, registers(&[2]), none));
        assert_eq!(effects(&[0x31, 0xc9]), (none, registers(&[1]), registers(&[1])));
        // mul %rsi; cmove %rax,%rdi; push %rbx
        assert_eq!(effects(&[0x48, 0xf7, 0xe6]), (registers(&[0, 6]), registers(&[0, 2]), registers(&[0, 2])));
        let (reads, writes, overwrites) = effects(&[0x48, 0x0f, 0x44, 0xf8]);
        assert!(reads.contains(RAX) && writes == registers(&[7]) && overwrites == none);
        assert_eq!(effects(&[0x53]), (registers(&[3, 4]), registers(&[4]), registers(&[4])));
        // mov %r12,0x8(%rsp,%r10,1)
        assert_eq!(effects(&[0x4e, 0x89, 0x64, 0x14, 0x08]), (registers(&[4, 10, 12]), none, none));
    }

    #[test]
    fn flags_are_overwritten_only_if_all_are_written() {
        let uses = |bytes: &[u8]| instruction(bytes).flags();
        let overwrites: [&[u8]; 4] = [
            &[0x80, 0x3d, 0, 0, 0, 0, 0], // cmpb $0,0(%rip)
            &[0x48, 0x83, 0xec, 0x18],    // sub $0x18,%rsp
            &[0x48, 0xc1, 0xe8, 0x1a],    // shr $0x1a,%rax
            &[0xa8, 0x02],                // test $2,%al
        ];
        let reads: [&[u8]; 3] = [
            &[0x74, 0x00],             // je
            &[0x48, 0x11, 0xd8],       // adc %rbx,%rax
            &[0x48, 0x0f, 0x44, 0xf8], // cmove %rax,%rdi
        ];
        let changes: [&[u8]; 4] = [
            &[0x48, 0xff, 0xc0],       // inc %rax keeps the carry flag
            &[0x48, 0xd3, 0xe8],       // shr %cl,%rax
            &[0x48, 0xc1, 0xc0, 0x03], // rol $3,%rax
            &[0xf3, 0xa6],             // repe cmpsb
        ];
        let none: [&[u8]; 3] = [&[0x48, 0x89, 0xf8], &[0x53], &[0x48, 0x8d, 0x77, 0xf0]];
        assert!(overwrites.iter().all(|bytes| uses(bytes) == FlagUse::Overwrites), "{:?}", overwrites.map(uses));
        assert!(reads.iter().all(|bytes| uses(bytes) == FlagUse::Reads), "{:?}", reads.map(uses));
        assert!(changes.iter().all(|bytes| uses(bytes) == FlagUse::Changes), "{:?}", changes.map(uses));
        assert!(none.iter().all(|bytes| uses(bytes) == FlagUse::None), "{:?}", none.map(uses));
    }

    #[test]
    fn written_memory_is_that_of_the_frame_the_thread_or_other() {
        let written = |bytes: &[u8]| instruction(bytes).memory;
        assert_eq!(written(&[0x48, 0x89, 0xf8]), MemoryWrite::None);
        assert_eq!(written(&[0x80, 0x3d, 0, 0, 0, 0, 0]), MemoryWrite::None);
        // mov %rsi,0x8(%rsp); mov %ecx,-0x10(%rsp); push %rbx
        assert_eq!(written(&[0x48, 0x89, 0x74, 0x24, 0x08]), MemoryWrite::Stack { first: 8, size: 8 });
        assert_eq!(written(&[0x89, 0x4c, 0x24, 0xf0]), MemoryWrite::Stack { first: -16, size: 4 });
        assert_eq!(written(&[0x53]), MemoryWrite::Stack { first: -8, size: 8 });
        // movl $12,%fs:(%rax)
        assert_eq!(written(&[0x64, 0xc7, 0x00, 0x0c, 0, 0, 0]), MemoryWrite::Thread);
        // movb $1,0(%rip); rep stos; mov %eax,(%rsp,%rcx,4); mov %rax,-8(%rbp)
        let others: [&[u8]; 4] =
            [&[0xc6, 0x05, 0, 0, 0, 0, 1], &[0xf3, 0x48, 0xab], &[0x89, 0x04, 0x8c], &[0x48, 0x89, 0x45, 0xf8]];
        assert_eq!(others.map(written), [MemoryWrite::Other; 4]);
    }

    #[test]
    fn operands_relative_to_the_instruction_are_located() {
        let relative = |bytes: &[u8]| instruction(bytes).relative().map(|found| (found.at, found.target.0));
        // cmpb $0,0x10(%rip); mov -0x10(%rip),%rbx; ja +0x20; jmp -5
        assert_eq!(relative(&[0x80, 0x3d, 0x10, 0, 0, 0, 0]), Some((2, 0x1017)));
        assert_eq!(relative(&[0x48, 0x8b, 0x1d, 0xf0, 0xff, 0xff, 0xff]), Some((3, 0xff7)));
        assert_eq!(relative(&[0x0f, 0x87, 0x20, 0, 0, 0]), Some((2, 0x1026)));
        assert_eq!(relative(&[0xe9, 0xfb, 0xff, 0xff, 0xff]), Some((1, 0x1000)));
        // mov %fs:0,%rbx; sub $0x88,%rsp
        assert_eq!(relative(&[0x64, 0x48, 0x8b, 0x1c, 0x25, 0, 0, 0, 0]), None);
        assert_eq!(relative(&[0x48, 0x81, 0xec, 0x88, 0, 0, 0]), None);
        // mov 0x10(%eip),%ebx
        assert!(!instruction(&[0x67, 0x8b, 0x1d, 0x10, 0, 0, 0]).is_relocatable());
        assert!(instruction(&[0x80, 0x3d, 0x10, 0, 0, 0, 0]).is_relocatable());
    }

    #[test]
    fn constants_in_rax_and_the_stack_pointer_are_found() {
        // xor %eax,%eax; mov $0x16,%eax; mov $-1,%rax; xor %ecx,%ecx; mov %rdi,%rax
        let constants: [&[u8]; 5] = [
            &[0x31, 0xc0],
            &[0xb8, 0x16, 0, 0, 0],
            &[0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff],
            &[0x31, 0xc9],
            &[0x48, 0x89, 0xf8],
        ];
        let found = constants.map(|bytes| instruction(bytes).result_constant());
        assert_eq!(found, [Some(0), Some(0x16), Some(u64::MAX), None, None]);
        // sub $0x88,%rsp; sub $0x18,%rsp; sub $-8,%rsp; add $8,%rsp; sub %rax,%rsp
        let moves: [&[u8]; 5] = [
            &[0x48, 0x81, 0xec, 0x88, 0, 0, 0],
            &[0x48, 0x83, 0xec, 0x18],
            &[0x48, 0x83, 0xec, 0xf8],
            &[0x48, 0x83, 0xc4, 0x08],
            &[0x48, 0x29, 0xc4],
        ];
        assert_eq!(moves.map(|bytes| instruction(bytes).lowers_stack()), [Some(0x88), Some(0x18), None, None, None]);
    }

    #[test]
    fn state_beyond_registers_and_flags_is_seen() {
        // cld; fld1; movq %rax,%mm0; movq %rax,%xmm0; mov %rdi,%rax
        let cases: [(&[u8], bool); 5] = [
            (&[0xfc], true),
            (&[0xd9, 0xe8], true),
            (&[0x48, 0x0f, 0x6e, 0xc0], true),
            (&[0x66, 0x48, 0x0f, 0x6e, 0xc0], false),
            (&[0x48, 0x89, 0xf8], false),
        ];
        for (bytes, expected) in cases {
            assert_eq!(instruction(bytes).changes_state, expected, "{bytes:x?}");
        }
    }
}
