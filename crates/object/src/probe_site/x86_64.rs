//! Decoder of x86-64 instructions. It knows which of them the kernel emulates.

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction as Decoded,
    InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedRegister,
};
use memtrace_model::JumpCondition;

use super::instruction::{Arguments, Effects, Flow, Instruction, Stack};
use super::site::Cost;

/// Argument registers in order (System V ABI, AMD64 supplement, 3.2.3).
const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];

/// Decodes the first instruction of `code`.
pub(super) fn decode(code: &[u8], address: u64) -> Option<Instruction> {
    let decoded = decoded(code, address)?;
    let bytes = code.get(..decoded.len())?;
    Some(Instruction { length: decoded.len(), flow: flow(&decoded), cost: cost(bytes) })
}

fn decoded(code: &[u8], address: u64) -> Option<Decoded> {
    let decoded = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
    (!decoded.is_invalid()).then_some(decoded)
}

/// Returns the cost of a probe on an instruction (`branch_setup_xol_ops` and `push_setup_xol_ops`,
/// arch/x86/kernel/uprobes.c).
///
/// Only instructions that every kernel emulates count as emulated. Newer kernels emulate prefixed and longer forms of `nop`
/// too; others step them, and some refuse `66 90`. All kernels refuse a branch with the prefix 66.
fn cost(bytes: &[u8]) -> Cost {
    match bytes {
        // nop; jmp; call; short and near conditional jumps; push of any of the 16 registers.
        [0x90]
        | [0xeb, _]
        | [0xe9 | 0xe8, _, _, _, _]
        | [0x70..=0x7f, _]
        | [0x0f, 0x80..=0x8f, _, _, _, _]
        | [0x50..=0x57]
        | [0x41, 0x50..=0x57] => Cost::Emulated,
        _ => Cost::Stepped,
    }
}

/// Returns true for an instruction with a prefix that the kernel refuses: `lock`, or one of the segments es, cs, ss and ds
/// (`is_prefix_bad`, arch/x86/kernel/uprobes.c).
pub(super) fn is_refused(code: &[u8]) -> bool {
    let is_prefix = |byte: &&u8| matches!(**byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    let mut prefixes = code.iter().take_while(is_prefix);
    prefixes.any(|byte| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0xf0))
}

fn flow(decoded: &Decoded) -> Flow {
    let near = matches!(decoded.op0_kind(), OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16)
        .then(|| decoded.near_branch_target());
    match (decoded.flow_control(), near) {
        (FlowControl::Next, _) => Flow::Next,
        (FlowControl::UnconditionalBranch, Some(target)) => Flow::Jump(target),
        // The decoder reports system calls as calls.
        (FlowControl::Call, None) => Flow::Away,
        (FlowControl::Call, target) => Flow::Call(target),
        (FlowControl::IndirectCall, _) => Flow::Call(None),
        // This includes loop instructions, and the start of a transaction, which may branch to its abort handler.
        (FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend, Some(target)) => Flow::Branch(target),
        (FlowControl::Return, _) => Flow::Return,
        (FlowControl::Exception, _) => Flow::Trap,
        (FlowControl::Interrupt | FlowControl::XbeginXabortXend, _) => Flow::Away,
        (FlowControl::IndirectBranch | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch, _) => {
            Flow::Indirect
        }
    }
}

/// Returns the possible effects of the first instruction of `code`.
pub(super) fn effects(code: &[u8]) -> Effects {
    let Some(decoded) = decoded(code, 0) else { return Effects::UNKNOWN };
    let mut effects = Effects { writes: Arguments::default(), stack: Stack::Kept };
    for register in written_registers(&decoded) {
        if register == Register::RSP {
            effects.stack = if decreases_stack_pointer(&decoded) { Stack::Lowered } else { Stack::Lost };
        }
        for (number, _) in (0..).zip(ARGUMENTS).filter(|(_, argument)| *argument == register) {
            effects.writes = effects.writes.with(number);
        }
    }
    effects
}

/// Returns the arguments with registers that the first instruction of `code` may read. An instruction such as `xor` of a
/// register with itself reads nothing.
pub(super) fn reads(code: &[u8]) -> Option<Arguments> {
    let decoded = decoded(code, 0)?;
    // The result depends on the carry flag only. LLVM writes this instruction for a register without a value
    // (`SETB_C32r`, llvm/lib/Target/X86/X86InstrCompiler.td).
    let is_carry = decoded.mnemonic() == Mnemonic::Sbb
        && decoded.op1_kind() == OpKind::Register
        && decoded.op0_register() == decoded.op1_register();
    if is_carry {
        return Some(Arguments::NONE);
    }
    let is_read = |used: &&UsedRegister| {
        matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
    };
    let mut factory = InstructionInfoFactory::new();
    Some(arguments(factory.info(&decoded).used_registers().iter().filter(is_read)))
}

/// Returns the arguments with registers that the first instruction of `code` always writes completely.
pub(super) fn overwrites(code: &[u8]) -> Arguments {
    let Some(decoded) = decoded(code, 0) else { return Arguments::NONE };
    // The decoder reports a write of 32 bits, which clears the upper half, as one of the 64-bit register.
    let is_whole = |used: &&UsedRegister| {
        matches!(used.access(), OpAccess::Write | OpAccess::ReadWrite) && used.register().is_gpr64()
    };
    let mut factory = InstructionInfoFactory::new();
    arguments(factory.info(&decoded).used_registers().iter().filter(is_whole))
}

/// Returns the arguments with these registers.
fn arguments<'a>(used: impl Iterator<Item = &'a UsedRegister>) -> Arguments {
    let number =
        |used: &UsedRegister| ARGUMENTS.iter().position(|argument| *argument == used.register().full_register());
    let numbers = used.filter_map(number).filter_map(|number| u32::try_from(number).ok());
    numbers.fold(Arguments::default(), Arguments::with)
}

/// Returns the registers that an instruction may write, as full 64-bit registers.
fn written_registers(decoded: &Decoded) -> Vec<Register> {
    let writes = |used: &&UsedRegister| {
        !matches!(used.access(), OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
    };
    let mut factory = InstructionInfoFactory::new();
    let written = factory.info(decoded).used_registers().iter().filter(writes);
    written.map(|used| used.register().full_register()).collect()
}

/// Returns true if an instruction that writes the stack pointer only decreases it.
fn decreases_stack_pointer(decoded: &Decoded) -> bool {
    let immediate = matches!(decoded.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
    let subtracts = decoded.mnemonic() == Mnemonic::Sub
        && decoded.op0_register() == Register::RSP
        && immediate
        && decoded.immediate(1).cast_signed() > 0;
    subtracts || decoded.stack_pointer_increment() < 0
}

/// General registers by their DWARF numbers (System V ABI, AMD64 supplement, figure 3.36).
const BY_DWARF_NUMBER: [Register; 16] = [
    Register::RAX,
    Register::RDX,
    Register::RCX,
    Register::RBX,
    Register::RSI,
    Register::RDI,
    Register::RBP,
    Register::RSP,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Matches `mov -8(ARGUMENT),REGISTER`. Returns the DWARF number of the register.
pub(super) fn loads_word_before(code: &[u8], argument: u8) -> Option<u8> {
    let found = decoded(code, 0)?;
    let base = ARGUMENTS.get(usize::from(argument)).copied()?;
    let loads = found.mnemonic() == Mnemonic::Mov
        && found.op0_kind() == OpKind::Register
        && found.op1_kind() == OpKind::Memory
        && found.segment_prefix() == Register::None
        && (found.memory_base(), found.memory_index()) == (base, Register::None)
        && found.memory_displacement64().cast_signed() == -8;
    let number = BY_DWARF_NUMBER.iter().position(|register| *register == found.op0_register());
    number.filter(|_| loads).and_then(|number| u8::try_from(number).ok())
}

pub(super) fn may_write(code: &[u8], register: u8) -> bool {
    let (Some(found), Some(register)) = (decoded(code, 0), BY_DWARF_NUMBER.get(usize::from(register))) else {
        return true;
    };
    written_registers(&found).contains(register)
}

/// Matches `push`, and `sub` of a constant from the stack pointer. Returns the number of bytes.
pub(super) fn stack_decrease(code: &[u8]) -> Option<u8> {
    let found = decoded(code, 0)?;
    let bytes = match found.mnemonic() {
        Mnemonic::Push => -i64::from(found.stack_pointer_increment()),
        Mnemonic::Sub if decreases_stack_pointer(&found) => found.immediate(1).cast_signed(),
        _ => return None,
    };
    u8::try_from(bytes).ok()
}

/// Disassembles the first instruction of `code` in GNU syntax.
pub(super) fn text(code: &[u8], address: u64) -> String {
    let Some(decoded) = decoded(code, address) else { return String::from("(bad)") };
    let mut formatter = GasFormatter::new();
    formatter.options_mut().set_uppercase_hex(false);
    formatter.options_mut().set_branch_leading_zeros(false);
    let mut text = String::new();
    formatter.format(&decoded, &mut text);
    text
}

/// Matches `jmp *slot(%rip)`, optionally after `endbr64`. Returns the address of the slot.
pub(super) fn slot(code: &[u8], address: u64) -> Option<u64> {
    let first = decoded(code, address)?;
    let jump = if first.mnemonic() == Mnemonic::Endbr64 {
        decoded(code.get(first.len()..)?, address.wrapping_add(first.len() as u64))?
    } else {
        first
    };
    let jumps = jump.flow_control() == FlowControl::IndirectBranch && jump.is_ip_rel_memory_operand();
    jumps.then(|| jump.ip_rel_memory_address())
}

/// Matches `jmp *pointer(%rip)` or `call *pointer(%rip)`. Returns the address of the pointer.
pub(super) fn pointer_of(code: &[u8], address: u64) -> Option<u64> {
    let found = decoded(code, address)?;
    let leads = matches!(found.flow_control(), FlowControl::IndirectBranch | FlowControl::IndirectCall);
    (leads && found.is_ip_rel_memory_operand()).then(|| found.ip_rel_memory_address())
}

/// Matches `test` of an argument with itself.
pub(super) fn tests_for_null(code: &[u8], argument: u8) -> bool {
    let Some(found) = decoded(code, 0) else { return false };
    let register = ARGUMENTS.get(usize::from(argument)).copied().unwrap_or(Register::None);
    found.mnemonic() == Mnemonic::Test && found.op0_register() == register && found.op1_register() == register
}

/// Matches `nop` of any length and `int3`.
pub(super) fn is_padding(code: &[u8]) -> bool {
    decoded(code, 0).is_some_and(|found| matches!(found.mnemonic(), Mnemonic::Nop | Mnemonic::Int3))
}

/// Matches a conditional jump without a prefix, other than `jrcxz` and `loop`.
pub(super) fn jump_condition(code: &[u8]) -> Option<JumpCondition> {
    match code {
        [opcode @ 0x70..=0x7f, ..] | [0x0f, opcode @ 0x80..=0x8f, ..] => Some(JumpCondition(opcode & 0xf)),
        _ => None,
    }
}

/// Matches an indirect jump with an index register, such as `jmp *table(,%rax,8)`, or with the prefix `notrack`, which
/// compilers write for jump tables only.
pub(super) fn jumps_by_table(code: &[u8]) -> bool {
    decoded(code, 0).is_some_and(|found| {
        found.flow_control() == FlowControl::IndirectBranch
            && (found.memory_index() != Register::None || is_refused(code))
    })
}

/// Returns true for `je`, false for `jne`, and `None` for any other instruction.
pub(super) fn taken_if_null(code: &[u8], address: u64) -> Option<bool> {
    match decoded(code, address)?.condition_code() {
        ConditionCode::e => Some(true),
        ConditionCode::ne => Some(false),
        _ => None,
    }
}

/// Finds all sequences of 5 or 6 bytes that encode a direct jump, call or conditional jump with a 32-bit distance, at
/// any byte.
pub(super) fn branches(code: &[u8], address: u64, mut on_branch: impl FnMut(u64, u64)) {
    for (at, window) in code.windows(5).enumerate() {
        let start = match window[0] {
            0xe8 | 0xe9 => at,
            0x80..=0x8f if at > 0 && code[at - 1] == 0x0f => at - 1,
            _ => continue,
        };
        let distance = i32::from_le_bytes([window[1], window[2], window[3], window[4]]);
        let end = address.wrapping_add(at as u64 + 5);
        on_branch(address.wrapping_add(start as u64), end.wrapping_add_signed(i64::from(distance)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulated_instructions_are_recognized_by_their_bytes() {
        let emulated: &[&[u8]] = &[
            &[0x90],
            &[0xeb, 0x10],
            &[0xe9, 0, 0, 0, 0],
            &[0xe8, 0, 0, 0, 0],
            &[0x74, 0x05],
            &[0x0f, 0x84, 0xbf, 0, 0, 0],
            &[0x55],
            &[0x41, 0x54],
        ];
        for bytes in emulated {
            assert_eq!(decode(bytes, 0).map(|found| (found.length, found.cost)), Some((bytes.len(), Cost::Emulated)));
        }
        let stepped: &[&[u8]] = &[
            &[0xf3, 0x0f, 0x1e, 0xfa],             // endbr64
            &[0x66, 0x90],                         // xchg %ax,%ax
            &[0xf3, 0x90],                         // pause
            &[0x41, 0x90],                         // xchg %r8d,%eax
            &[0x0f, 0x1f, 0x44, 0, 0],             // nopl 0(%rax,%rax)
            &[0x48, 0x85, 0xff],                   // test %rdi,%rdi
            &[0x40, 0x55],                         // push %rbp with a needless prefix
            &[0x66, 0x55],                         // push %bp
            &[0x6a, 0x01],                         // push $1
            &[0xff, 0xe0],                         // jmp *%rax
            &[0xe3, 0x05],                         // jrcxz
            &[0x3e, 0x74, 0x05],                   // je with a hint
            &[0xf2, 0xe9, 0, 0, 0, 0],             // bnd jmp
            &[0xff, 0x25, 0, 0, 0, 0],             // jmp *0(%rip)
            &[0xc3],                               // ret
            &[0x48, 0x83, 0xec, 0x18],             // sub $0x18,%rsp
            &[0x80, 0x3d, 0x46, 0x1b, 0x14, 0, 0], // cmpb $0,x(%rip)
        ];
        for bytes in stepped {
            assert_eq!(
                decode(bytes, 0).map(|found| (found.length, found.cost)),
                Some((bytes.len(), Cost::Stepped)),
                "{bytes:x?}"
            );
        }
    }

    #[test]
    fn control_flow_is_decoded() {
        let flow = |bytes: &[u8]| decode(bytes, 0x1000).unwrap().flow;
        assert_eq!(flow(&[0x74, 0x05]), Flow::Branch(0x1007));
        assert_eq!(flow(&[0xe3, 0xfe]), Flow::Branch(0x1000));
        assert_eq!(flow(&[0xeb, 0x10]), Flow::Jump(0x1012));
        assert_eq!(flow(&[0xe8, 0, 0, 0, 0]), Flow::Call(Some(0x1005)));
        assert_eq!(flow(&[0xff, 0xd0]), Flow::Call(None));
        assert_eq!(flow(&[0x3e, 0xff, 0xe0]), Flow::Indirect);
        assert_eq!(flow(&[0xc7, 0xf8, 1, 0, 0, 0]), Flow::Branch(0x1007)); // xbegin
        for away in [&[0xc3][..], &[0x0f, 0x05], &[0x0f, 0x0b], &[0xcc], &[0xf4]] {
            assert!(matches!(flow(away), Flow::Return | Flow::Away | Flow::Trap | Flow::Next), "{away:x?}");
        }
        assert_eq!([flow(&[0x0f, 0x05]), flow(&[0xcc]), flow(&[0x0f, 0x0b])], [Flow::Away, Flow::Away, Flow::Trap]);
        assert_eq!([flow(&[0xc3]), flow(&[0xc2, 8, 0])], [Flow::Return; 2]);
        assert_eq!(decode(&[0x06], 0), None);
        assert_eq!(decode(&[0xe9, 0, 0], 0), None);
    }

    #[test]
    fn writes_of_arguments_and_stack_pointer_are_found() {
        let none = Arguments::default();
        let kept = |writes| Effects { writes, stack: Stack::Kept };
        let moved = |stack| Effects { writes: none, stack };
        let cases: &[(&[u8], Effects)] = &[
            (&[0x48, 0x85, 0xff], kept(none)),                                // test %rdi,%rdi
            (&[0x48, 0x89, 0xf8], kept(none)),                                // mov %rdi,%rax
            (&[0x48, 0x89, 0xf7], kept(Arguments::from_numbers(&[0]))),       // mov %rsi,%rdi
            (&[0x31, 0xf6], kept(Arguments::from_numbers(&[1]))),             // xor %esi,%esi
            (&[0xb2, 0x01], kept(Arguments::from_numbers(&[2]))),             // mov $1,%dl
            (&[0x48, 0xf7, 0xe6], kept(Arguments::from_numbers(&[2]))),       // mul %rsi writes %rdx
            (&[0xf3, 0x48, 0xab], kept(Arguments::from_numbers(&[0, 3]))),    // rep stos moves %rdi and %rcx
            (&[0x48, 0x0f, 0x44, 0xf8], kept(Arguments::from_numbers(&[0]))), // cmove %rax,%rdi
            (&[0x48, 0x87, 0xfe], kept(Arguments::from_numbers(&[0, 1]))),    // xchg %rdi,%rsi
            (&[0x48, 0x83, 0xec, 0x18], moved(Stack::Lowered)),               // sub $0x18,%rsp
            (&[0x48, 0x81, 0xec, 0, 0x10, 0, 0], moved(Stack::Lowered)),      // sub $0x1000,%rsp
            (&[0x6a, 0x01], moved(Stack::Lowered)),                           // push $1
            (&[0x48, 0x83, 0xec, 0xf8], moved(Stack::Lost)),                  // sub $-8,%rsp
            (&[0x48, 0x83, 0xc4, 0x18], moved(Stack::Lost)),                  // add $0x18,%rsp
            (&[0x48, 0x83, 0xe4, 0xf0], moved(Stack::Lost)),                  // and $-16,%rsp
            (&[0x5d], moved(Stack::Lost)),                                    // pop %rbp
        ];
        for (bytes, expected) in cases {
            assert_eq!(effects(bytes), *expected, "{bytes:x?}");
        }
        assert_eq!(effects(&[0x06]), Effects::UNKNOWN);
    }

    #[test]
    fn far_branches_are_found_at_any_byte() {
        // The code has a jump hidden in an immediate, a call, and a conditional jump.
        let code =
            [0xb8, 0xe9, 0x01, 0, 0, 0, 0x90, 0xe8, 0xf4, 0xff, 0xff, 0xff, 0x0f, 0x85, 0xf0, 0xff, 0xff, 0xff, 0x90];
        let mut found = Vec::new();
        branches(&code, 0x1000, |at, target| found.push((at, target)));
        assert_eq!(found, [(0x1001, 0x1007), (0x1007, 0x1000), (0x100c, 0x1002)]);
    }

    #[test]
    fn the_slot_of_a_plt_stub_is_found() {
        let stub = [0xff, 0x25, 0x0a, 0xec, 0x1b, 0x00, 0x66, 0x90];
        assert_eq!(slot(&stub, 0x283d8), Some(0x1e6fe8));
        let marked = [&[0xf3, 0x0f, 0x1e, 0xfa], &stub[..]].concat();
        assert_eq!(slot(&marked, 0x283d4), Some(0x1e6fe8));
        assert_eq!(slot(&[0xff, 0xe0], 0), None); // jmp *%rax
        assert_eq!(slot(&[0xe9, 0, 0, 0, 0], 0), None);
    }

    #[test]
    fn disassembly_equals_objdump() {
        assert_eq!(text(&[0x41, 0x54], 0), "push %r12");
        assert_eq!(text(&[0x0f, 0x84, 0xbf, 0, 0, 0], 0x98ef3), "je 0x98fb8");
        assert_eq!(text(&[0x48, 0x83, 0xec, 0x18], 0), "sub $0x18,%rsp");
        assert_eq!(text(&[0x06], 0), "(bad)");
    }
}
