//! Effect of one x86-64 instruction on symbolic values.

use std::collections::{BTreeSet, HashSet};

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::registers::Registers;
use super::value::{Origin, Value};

/// Size of a word in bytes.
const WORD: usize = 8;

/// Symbolic values that a function computes, and addresses of its memory accesses.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Values that were written to registers.
    pub(super) values: BTreeSet<Value>,
    /// Addresses of words that were read.
    pub(super) reads: BTreeSet<Value>,
    /// Addresses of words that were written.
    pub(super) writes: BTreeSet<Value>,
    /// First arguments of calls.
    pub(super) arguments: BTreeSet<Value>,
}

/// Interpreter of instructions, which collects facts.
pub(super) struct Interpreter<'a> {
    /// Addresses of the GOT slots that hold distances from the thread pointer.
    slots: &'a HashSet<u64>,
    factory: InstructionInfoFactory,
    pub(super) facts: Facts,
}

impl<'a> Interpreter<'a> {
    pub(super) fn new(slots: &'a HashSet<u64>) -> Self {
        Self { slots, factory: InstructionInfoFactory::new(), facts: Facts::default() }
    }

    /// Applies the effect of an instruction to `registers`, and collects its facts.
    pub(super) fn execute(&mut self, instruction: &Instruction, registers: &mut Registers) {
        let before = registers.clone();
        self.note_accesses(instruction, &before);
        self.forget_written(instruction, registers);
        match instruction.mnemonic() {
            Mnemonic::Push => {
                let Some(top) = before.get(Register::RSP) else { return };
                let top = top.plus_number(instruction.stack_pointer_increment().into());
                registers.set(Register::RSP, Some(top));
                registers.store(top, 8, self.operand(instruction, 0, &before));
            }
            Mnemonic::Pop => {
                let Some(top) = before.get(Register::RSP) else { return };
                self.assign(instruction, registers, before.load(top));
                registers.set(Register::RSP, Some(top.plus_number(instruction.stack_pointer_increment().into())));
            }
            _ => {
                if let Some(result) = self.result(instruction, &before) {
                    self.assign(instruction, registers, Some(result));
                }
            }
        }
    }

    /// Returns the value that the instruction writes to its first operand, if it is known.
    fn result(&self, instruction: &Instruction, before: &Registers) -> Option<Value> {
        match instruction.mnemonic() {
            Mnemonic::Mov => self.operand(instruction, 1, before),
            Mnemonic::Lea => address(instruction, before),
            Mnemonic::Add => self.operand(instruction, 0, before)?.plus(self.operand(instruction, 1, before)?),
            Mnemonic::Sub => {
                let subtrahend = self.operand(instruction, 1, before)?;
                let difference = self.operand(instruction, 0, before)?.plus_number(subtrahend.offset.wrapping_neg());
                (subtrahend.origin == Origin::Number).then_some(difference)
            }
            Mnemonic::Xor => {
                let is_zero = instruction.op1_kind() == OpKind::Register
                    && instruction.op0_register() == instruction.op1_register();
                is_zero.then_some(Value::number(0))
            }
            _ => None,
        }
    }

    /// Writes `value` to the first operand, a register or a word on the stack. A write to a 32-bit register clears
    /// its upper half, so only numbers of 32 bits remain known.
    fn assign(&mut self, instruction: &Instruction, registers: &mut Registers, value: Option<Value>) {
        if instruction.op0_kind() == OpKind::Memory {
            if let Some(address) = address(instruction, registers)
                && instruction.memory_size().size() == WORD
            {
                registers.store(address, 8, value);
            }
            return;
        }
        let register = instruction.op0_register();
        let is_whole = register.is_gpr64()
            || (register.is_gpr32()
                && value.is_some_and(|value| value.origin == Origin::Number && u32::try_from(value.offset).is_ok()));
        let value = value.filter(|_| is_whole);
        registers.set(register, value);
        self.facts.values.extend(value);
    }

    /// Returns the value of the operand `number`, if it is known.
    fn operand(&self, instruction: &Instruction, number: u32, before: &Registers) -> Option<Value> {
        match instruction.op_kind(number) {
            OpKind::Register => before.get(instruction.op_register(number)),
            OpKind::Memory => self.load(instruction, before),
            OpKind::Immediate8to64
            | OpKind::Immediate32to64
            | OpKind::Immediate64
            | OpKind::Immediate32
            | OpKind::Immediate8 => Some(Value::number(instruction.immediate(number).cast_signed())),
            _ => None,
        }
    }

    fn load(&self, instruction: &Instruction, before: &Registers) -> Option<Value> {
        let address = address(instruction, before).filter(|_| instruction.memory_size().size() == WORD)?;
        match address.origin {
            // The first word of the thread control block is the address of this control block (ELF Handling For
            // Thread-Local Storage, 3.4.6).
            Origin::ThreadPointer if address.offset == 0 => Some(address),
            Origin::Number => {
                let slot = address.offset.cast_unsigned();
                self.slots.contains(&slot).then_some(Value::new(Origin::Slot(slot), 0))
            }
            _ => before.load(address),
        }
    }

    fn note_accesses(&mut self, instruction: &Instruction, before: &Registers) {
        if matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop) || instruction.memory_size().size() != WORD {
            return;
        }
        let Some(number) = (0..instruction.op_count()).find(|number| instruction.op_kind(*number) == OpKind::Memory)
        else {
            return;
        };
        let Some(address) = address(instruction, before) else { return };
        let access = self.factory.info(instruction).op_access(number);
        if matches!(access, OpAccess::Read | OpAccess::ReadWrite | OpAccess::CondRead | OpAccess::ReadCondWrite) {
            self.facts.reads.insert(address);
        }
        if matches!(access, OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite) {
            self.facts.writes.insert(address);
        }
    }

    /// Marks the registers and stack words that the instruction writes as unknown.
    fn forget_written(&mut self, instruction: &Instruction, registers: &mut Registers) {
        let written = |access: OpAccess| !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead);
        let target = address(instruction, registers);
        let info = self.factory.info(instruction);
        for used in info.used_memory().iter().filter(|used| written(used.access())) {
            if let Some(address) = target {
                registers.store(address, i64::try_from(used.memory_size().size()).unwrap_or(i64::MAX), None);
            }
        }
        for used in info.used_registers().iter().filter(|used| written(used.access())) {
            registers.set(used.register(), None);
        }
    }
}

/// Returns the address of the memory operand.
fn address(instruction: &Instruction, before: &Registers) -> Option<Value> {
    let displacement = Value::number(instruction.memory_displacement64().cast_signed());
    let base = match instruction.memory_base() {
        // For RIP-relative operands, the decoder returns the absolute address as the displacement.
        Register::None | Register::RIP => displacement,
        base => before.get(base)?.plus(displacement)?,
    };
    let indexed = match instruction.memory_index() {
        Register::None => base,
        index => {
            let index = before.get(index)?;
            let scale = i64::from(instruction.memory_index_scale());
            let is_scalable = scale == 1 || index.origin == Origin::Number;
            base.plus(Value::new(index.origin, index.offset.wrapping_mul(scale))).filter(|_| is_scalable)?
        }
    };
    match instruction.memory_segment() {
        Register::FS if instruction.mnemonic() != Mnemonic::Lea => indexed.plus(Value::new(Origin::ThreadPointer, 0)),
        Register::GS => None,
        _ => Some(indexed),
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    const SLOT: u64 = 0x2000;

    /// Interprets instructions at 0x1000. Returns the registers and the facts.
    fn execute(code: &[u8]) -> (Registers, Facts) {
        let slots = HashSet::from([SLOT]);
        let (mut interpreter, mut registers) = (Interpreter::new(&slots), Registers::at_entry());
        for instruction in Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE) {
            assert!(!instruction.is_invalid());
            interpreter.execute(&instruction, &mut registers);
        }
        (registers, interpreter.facts)
    }

    #[test]
    fn fields_of_the_argument_are_addressed() {
        let field = Value::new(Origin::Argument, 0x348);
        // mov 0x348(%rdi),%rdx
        let (registers, facts) = execute(&[0x48, 0x8b, 0x97, 0x48, 3, 0, 0]);
        assert_eq!((facts.reads, facts.writes), (BTreeSet::from([field]), BTreeSet::new()));
        assert_eq!(registers.get(Register::RDX), None);
        // add $0x348,%rdi; lea 0x348(%rdi),%rax
        for code in [[0x48, 0x81, 0xc7, 0x48, 3, 0, 0], [0x48, 0x8d, 0x87, 0x48, 3, 0, 0]] {
            assert_eq!(execute(&code).1.values, BTreeSet::from([field]));
        }
        // movzbl 0x30(%rdi),%eax: not a word
        assert_eq!(execute(&[0x0f, 0xb6, 0x47, 0x30]).1.reads, BTreeSet::new());
    }

    #[test]
    fn values_survive_on_the_stack_until_overwritten() {
        // push %rbp; mov %rsp,%rbp; sub $0x70,%rsp; mov %rdi,-0x48(%rbp)
        let spill = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x70, 0x48, 0x89, 0x7d, 0xb8];
        // mov -0x48(%rbp),%rax
        let reload = [0x48, 0x8b, 0x45, 0xb8];
        let after = |between: &[u8]| execute(&[&spill, between, &reload].concat()).0.get(Register::RAX);
        assert_eq!(after(&[]), Some(Value::new(Origin::Argument, 0)));
        // movb $0,-0x47(%rbp) overwrites a part of the word; movb $0,-0x40(%rbp) overwrites the next one.
        assert_eq!(after(&[0xc6, 0x45, 0xb9, 0]), None);
        assert_eq!(after(&[0xc6, 0x45, 0xc0, 0]), Some(Value::new(Origin::Argument, 0)));
    }

    #[test]
    fn thread_local_variables_are_addressed_through_their_slot() {
        let field = Value::new(Origin::ThreadSlot(SLOT), 0x338);
        // mov 0xff9(%rip),%rcx; mov %rdx,%fs:0x338(%rcx)
        let slot = [0x48, 0x8b, 0x0d, 0xf9, 0x0f, 0, 0];
        let (_, facts) = execute(&[&slot[..], &[0x64, 0x48, 0x89, 0x91, 0x38, 3, 0, 0]].concat());
        assert_eq!(facts.writes, BTreeSet::from([field]));
        // add %fs:0x0,%rcx; add %rdx,0x338(%rcx)
        let through_register = [0x64, 0x48, 0x03, 0x0c, 0x25, 0, 0, 0, 0, 0x48, 0x01, 0x91, 0x38, 3, 0, 0];
        let (_, facts) = execute(&[&slot[..], &through_register].concat());
        assert!(facts.reads.contains(&field));
        assert_eq!(facts.writes, BTreeSet::from([field]));
        // mov 0x1ff9(%rip),%rcx: another word of the object
        assert_eq!(execute(&[0x48, 0x8b, 0x0d, 0xf9, 0x1f, 0, 0]).0.get(Register::RCX), None);
    }

    #[test]
    fn unknown_results_replace_known_values() {
        // shl $3,%rdi; imul %rsi,%rdi; mov %esi,%edi; xchg %rsi,%rdi; mov %gs:0,%rdi
        let codes: [&[u8]; 5] = [
            &[0x48, 0xc1, 0xe7, 3],
            &[0x48, 0x0f, 0xaf, 0xfe],
            &[0x89, 0xf7],
            &[0x48, 0x87, 0xfe],
            &[0x65, 0x48, 0x8b, 0x3c, 0x25, 0, 0, 0, 0],
        ];
        for code in codes {
            assert_eq!(execute(code).0.get(Register::RDI), None, "{code:x?}");
        }
        // xor %edi,%edi; lea (%rdi,%rdi,8),%rdi
        assert_eq!(execute(&[0x31, 0xff]).0.get(Register::RDI), Some(Value::number(0)));
        assert_eq!(execute(&[0x48, 0x8d, 0x3c, 0xff]).0.get(Register::RDI), None);
    }
}
