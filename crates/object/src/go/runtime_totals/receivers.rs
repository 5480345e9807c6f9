//! Facts in x86-64 code that Go's compiler has made.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

/// Code of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FunctionCode {
    /// Address of the first instruction in the object.
    pub(super) start: u64,
    pub(super) bytes: Vec<u8>,
}

impl FunctionCode {
    fn instructions(&self) -> impl Iterator<Item = Instruction> {
        Decoder::with_ip(64, &self.bytes, self.start, DecoderOptions::NONE).into_iter()
    }

    /// Returns the constant addresses that the function passes as the first argument in calls of `callees`. Since Go 1.17 this
    /// argument is in rax (`Go internal ABI specification`, cmd/compile/abi-internal.md).
    pub(super) fn first_arguments(&self, callees: &[u64]) -> Vec<u64> {
        let mut factory = InstructionInfoFactory::new();
        let mut argument = None;
        let mut arguments = Vec::new();
        for instruction in self.instructions() {
            if instruction.is_call_near() && callees.contains(&instruction.near_branch_target()) {
                arguments.extend(argument);
            }
            if let Some(address) = address_in_rax(&instruction) {
                argument = Some(address);
            } else if instruction.flow_control() != FlowControl::Next || writes_rax(&mut factory, &instruction) {
                argument = None;
            }
        }
        arguments
    }

    /// Returns true if the function multiplies by `size`, and reads 32 bits at `offset` of a structure: it chooses an element
    /// of an array by a variable at the end of the array.
    pub(super) fn chooses_element(&self, size: usize, offset: usize) -> bool {
        let (size, offset) = (size as u64, offset as u64);
        let (mut multiplies, mut reads) = (false, false);
        for instruction in self.instructions() {
            match instruction.mnemonic() {
                Mnemonic::Imul if instruction.op2_kind() == OpKind::Immediate32to64 => {
                    multiplies |= instruction.immediate32to64().cast_unsigned() == size;
                }
                Mnemonic::Mov if instruction.op1_kind() == OpKind::Memory => {
                    let is_index = instruction.op0_register().is_gpr32() && !instruction.is_ip_rel_memory_operand();
                    reads |= is_index && instruction.memory_displacement64() == offset;
                }
                _ => {}
            }
        }
        multiplies && reads
    }
}

/// Returns the address that the instruction loads into rax, if it is a constant.
fn address_in_rax(instruction: &Instruction) -> Option<u64> {
    let is_address = instruction.mnemonic() == Mnemonic::Lea
        && instruction.op0_register() == Register::RAX
        && instruction.is_ip_rel_memory_operand();
    is_address.then(|| instruction.ip_rel_memory_address())
}

fn writes_rax(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    let is_written = |access| {
        matches!(access, OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite)
    };
    let mut used = factory.info(instruction).used_registers().iter();
    used.any(|used| used.register().full_register() == Register::RAX && is_written(used.access()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(start: u64, bytes: &[u8]) -> FunctionCode {
        FunctionCode { start, bytes: bytes.to_vec() }
    }

    /// `lea rax, [rip + distance]`, 7 bytes.
    fn load(distance: i32) -> Vec<u8> {
        [&[0x48, 0x8d, 0x05][..], &distance.to_le_bytes()].concat()
    }

    /// `call`, 5 bytes, at `at` to `target`.
    fn call(at: u64, target: u64) -> Vec<u8> {
        let distance = i32::try_from(target.cast_signed() - at.cast_signed() - 5).unwrap();
        [&[0xe8][..], &distance.to_le_bytes()].concat()
    }

    #[test]
    fn argument_of_a_call_is_found() {
        // From runtime.(*mheap).allocSpan of gofmt, Go 1.19.8: lea 0x239174(%rip),%rax at 0x426f05.
        let code = [load(0x0023_9174), call(0x42_6f0c, 0x42_ecc0)].concat();
        assert_eq!(function(0x42_6f05, &code).first_arguments(&[0x42_ecc0]), [0x66_0080]);
        assert_eq!(function(0x42_6f05, &code).first_arguments(&[0x42_ecc1]), [0_u64; 0]);
    }

    #[test]
    fn instructions_that_keep_the_register_are_allowed() {
        // nop; mov rcx, rax; mov [rsp + 8], rax
        let between = [&[0x90][..], &[0x48, 0x89, 0xc1], &[0x48, 0x89, 0x44, 0x24, 0x08]].concat();
        let code = [load(0x100), between, call(0x1010, 0x2000)].concat();
        assert_eq!(code.len(), 0x10 + 5);
        assert_eq!(function(0x1000, &code).first_arguments(&[0x2000]), [0x1107]);
    }

    #[test]
    fn overwritten_argument_is_not_known() {
        for between in [
            &[0x31, 0xc0][..],               // xor eax, eax
            &[0x48, 0x8b, 0x44, 0x24, 0x08], // mov rax, [rsp + 8]
            &[0x48, 0x8d, 0x40, 0x08],       // lea rax, [rax + 8]
            &[0xb0, 0x01],                   // mov al, 1
            &[0x48, 0x0f, 0x44, 0xc1],       // cmove rax, rcx
            &[0xe8, 0, 0, 0, 0],             // call of another function
            &[0x74, 0x00],                   // je
        ] {
            let at = 0x1000 + 7 + between.len() as u64;
            let code = [&load(0x100)[..], between, &call(at, 0x2000)].concat();
            assert_eq!(function(0x1000, &code).first_arguments(&[0x2000]), [0_u64; 0], "{between:x?}");
        }
    }

    #[test]
    fn choice_of_an_element_needs_stride_and_index() {
        // From runtime.(*consistentHeapStats).acquire of Go 1.26.6: mov 0xdb0(%rax),%ecx; imul $0x490,%rcx,%rcx.
        let index = [0x8b, 0x88, 0xb0, 0x0d, 0, 0];
        let stride = [0x48, 0x69, 0xc9, 0x90, 0x04, 0, 0];
        let code = function(0, &[&index[..], &stride].concat());
        assert!(code.chooses_element(0x490, 0xdb0));
        assert!(!code.chooses_element(0x498, 0xdc8));
        assert!(!code.chooses_element(0x490, 0xdb8));
        assert!(!function(0, &index).chooses_element(0x490, 0xdb0));
        assert!(!function(0, &stride).chooses_element(0x490, 0xdb0));
    }

    #[test]
    fn any_bytes_are_decoded() {
        for byte in 0..=u8::MAX {
            let code = function(u64::MAX - 3, &[byte; 40]);
            assert_eq!(code.first_arguments(&[0x2000]), [0_u64; 0]);
            assert!(!code.chooses_element(0x490, 0xdb0));
        }
    }
}
