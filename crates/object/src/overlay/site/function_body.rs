//! Code of a whole function: its jumps and calls, and the registers that it writes.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Mnemonic};

use super::instruction::{Instruction, Registers};
use super::refusal::SiteRefusal;
use crate::elf::Machine;
use crate::probe_site::{Code, Flow, GeneralRegister, ObjectCode};

/// Maximum number of other functions that are examined for one function.
const MAX_OTHERS: usize = 64;

/// Maximum number of calls in a function, and of jumps that leave it. The largest one of jemalloc has about 100.
const MAX_CALLS: usize = 1024;

/// Look-up of the function that contains an address.
pub(super) type BodyOf<'a> = dyn Fn(u64) -> Result<FunctionBody, SiteRefusal> + 'a;

/// Code of a function, from its entry to the next function.
#[derive(Clone, Debug)]
pub(super) struct FunctionBody {
    pub(super) entry: u64,
    bytes: Vec<u8>,
    /// Address and target of each direct jump and conditional branch.
    pub(super) jumps: Vec<(u64, u64)>,
    /// Address and target of each direct call.
    pub(super) calls: Vec<(u64, u64)>,
    /// Address of each call or jump by a pointer at a constant address, and the address of the pointer.
    pub(super) by_pointer: Vec<(u64, u64)>,
    /// First jump with an unknown target.
    indirect_jump: Option<u64>,
    /// True if a call has an unknown target.
    calls_unknown: bool,
    writes: Registers,
}

impl FunctionBody {
    /// Decodes the code of the function at `entry`.
    pub(super) fn decode(entry: u64, bytes: Vec<u8>) -> Result<Self, SiteRefusal> {
        let mut body = Self {
            entry,
            bytes: Vec::new(),
            jumps: Vec::new(),
            calls: Vec::new(),
            by_pointer: Vec::new(),
            indirect_jump: None,
            calls_unknown: false,
            writes: Registers::default(),
        };
        let inside = entry..entry.saturating_add(bytes.len() as u64);
        let leaves = |target: u64| target == entry || !inside.contains(&target);
        let (mut at, mut leaving) = (0, 0);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let address = entry.wrapping_add(at as u64);
            let instruction = Instruction::first_of(rest, address).ok_or(SiteRefusal::Undecodable(address))?;
            at += instruction.bytes.len();
            body.add(&instruction);
            let is_leaving = matches!(instruction.flow, Flow::Branch(target) | Flow::Jump(target) if leaves(target));
            leaving += usize::from(is_leaving);
            // The target of each call and of each leaving jump is looked up, so their number is limited.
            if body.calls.len() + body.by_pointer.len() + leaving > MAX_CALLS {
                return Err(SiteRefusal::TooMuchCode);
            }
        }
        Ok(Self { bytes, ..body })
    }

    fn add(&mut self, instruction: &Instruction) {
        let at = instruction.at;
        self.writes = self.writes.union(instruction.writes);
        match instruction.flow {
            Flow::Branch(target) | Flow::Jump(target) => self.jumps.push((at, target)),
            Flow::Call(Some(target)) => self.calls.push((at, target)),
            Flow::Call(None) | Flow::Indirect => match Machine::X86_64.pointer_of(&instruction.bytes, at) {
                Some(slot) => self.by_pointer.push((at, slot)),
                None if instruction.flow == Flow::Indirect => {
                    self.indirect_jump.get_or_insert(at);
                }
                None => self.calls_unknown = true,
            },
            Flow::Next | Flow::Return | Flow::Trap | Flow::Away => {}
        }
    }

    /// Returns the addresses of the code.
    pub(super) fn range(&self) -> Range<u64> {
        self.entry..self.entry.saturating_add(self.bytes.len() as u64)
    }

    pub(super) fn code(&self) -> Code<'_> {
        Code { machine: Machine::X86_64, bytes: &self.bytes, entry: self.entry }
    }

    /// Returns the flow of the last instruction before the one at `address`. Instructions without an effect are left out: they
    /// align code. Returns `None` if no instruction of the function begins at `address`, or if none is before it.
    pub(super) fn flow_before(&self, address: u64) -> Option<Flow> {
        let mut decoder = Decoder::with_ip(64, &self.bytes, self.entry, DecoderOptions::NONE);
        let mut last = None;
        while decoder.can_decode() && decoder.ip() < address {
            let instruction = decoder.decode();
            if instruction.mnemonic() != Mnemonic::Nop {
                last = Some(instruction.ip());
            }
        }
        let at = last.filter(|_| decoder.can_decode() && decoder.ip() == address)?;
        let code = self.bytes.get(usize::try_from(at.checked_sub(self.entry)?).ok()?..)?;
        Some(Machine::X86_64.decode(code, at)?.flow)
    }

    /// Returns the targets outside of the function.
    fn targets_outside(&self, jumps: &[(u64, u64)]) -> BTreeSet<u64> {
        jumps.iter().map(|(_, target)| *target).filter(|target| !self.range().contains(target)).collect()
    }

    /// Returns a jump with an unknown target that may lead into the function: a jump of the function itself, or of a
    /// part that the compiler has moved away. The function jumps into the middle of such a part, or the part jumps
    /// back; another function does neither.
    pub(super) fn unknown_jump(
        &self,
        object: &impl ObjectCode,
        body_of: &BodyOf<'_>,
    ) -> Result<Option<u64>, SiteRefusal> {
        if self.indirect_jump.is_some() {
            return Ok(self.indirect_jump);
        }
        let targets = self.targets_outside(&self.jumps);
        if targets.len() > MAX_OTHERS {
            return Err(SiteRefusal::TooMuchCode);
        }
        for target in targets.into_iter().filter(|target| !is_import(object, *target)) {
            let other = body_of(target)?;
            let is_back = |(_, to): &(u64, u64)| *to != self.entry && self.range().contains(to);
            let is_part = other.entry != target || other.jumps.iter().any(is_back);
            if other.indirect_jump.is_some() && is_part {
                return Ok(other.indirect_jump);
            }
        }
        Ok(None)
    }

    /// Returns true if a compiler has to assume that a call of the function changes the register. Compilers keep values in
    /// registers that a function of the same source file leaves alone (`-fipa-ra` of gcc).
    pub(super) fn clobbers(&self, object: &impl ObjectCode, register: GeneralRegister, body_of: &BodyOf<'_>) -> bool {
        let may_write =
            |body: &Self| body.writes.contains(register) || body.calls_unknown || !body.by_pointer.is_empty();
        if may_write(self) {
            return true;
        }
        let others = self.targets_outside(&self.jumps).into_iter().chain(self.targets_outside(&self.calls));
        // Other objects may write all registers that the calling convention does not preserve.
        let may_write_at = |target| is_import(object, target) || body_of(target).is_ok_and(|other| may_write(&other));
        others.take(MAX_OTHERS).any(may_write_at)
    }
}

/// Returns true for the PLT stub of a function that another object may define.
fn is_import(object: &impl ObjectCode, target: u64) -> bool {
    Machine::X86_64.slot(&object.code(target), target).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::site::synthetic::{IMPORT, SyntheticCode, to};

    const NO_CODE: SyntheticCode = SyntheticCode(Vec::new());

    fn no_other(at: u64) -> Result<FunctionBody, SiteRefusal> {
        Err(SiteRefusal::JumpTarget(at))
    }

    #[test]
    fn jumps_and_calls_are_listed_by_kind() {
        // je +2; call *8(%rip); jmp *%rax; call 0x1010; ret
        let code = [0x74, 0x02, 0xff, 0x15, 0x08, 0, 0, 0, 0xff, 0xe0, 0xe8, 0x01, 0, 0, 0, 0xc3];
        let body = FunctionBody::decode(0x1000, code.to_vec()).unwrap();
        assert_eq!(body.jumps, [(0x1000, 0x1004)]);
        assert_eq!(body.by_pointer, [(0x1002, 0x1010)]);
        assert_eq!(body.calls, [(0x100a, 0x1010)]);
        assert_eq!(body.unknown_jump(&NO_CODE, &no_other), Ok(Some(0x1008)));
        assert_eq!(body.range(), 0x1000..0x1010);
        let damaged = FunctionBody::decode(0x1000, vec![0x90, 0x06]).map(|body| body.entry);
        assert_eq!(damaged, Err(SiteRefusal::Undecodable(0x1001)));
    }

    #[test]
    fn instruction_before_an_address_has_a_flow() {
        // je +1; ret; nopl 0(%rax); mov %rdi,%rax; call 0x1010; ret
        let code = [0x74, 0x01, 0xc3, 0x0f, 0x1f, 0x40, 0x00, 0x48, 0x89, 0xf8, 0xe8, 0x01, 0, 0, 0, 0xc3];
        let body = FunctionBody::decode(0x1000, code.to_vec()).unwrap();
        let before = |offset: u64| body.flow_before(0x1000 + offset);
        assert_eq!((before(2), before(3)), (Some(Flow::Branch(0x1003)), Some(Flow::Return)));
        // The instruction that aligns the next one is left out.
        assert_eq!((before(7), before(10)), (Some(Flow::Return), Some(Flow::Next)));
        assert_eq!(before(15), Some(Flow::Call(Some(0x1010))));
        // The entry, the middle of an instruction, and the end.
        assert_eq!([0, 4, 16, 99].map(before), [None; 4]);
    }

    #[test]
    fn jumps_out_of_a_function_are_limited() {
        let jumps = |number: usize| {
            FunctionBody::decode(0x1000, [0xe9_u8, 0, 0, 0, 0x10].repeat(number)).map(|body| body.entry)
        };
        assert_eq!(jumps(MAX_CALLS), Ok(0x1000));
        assert_eq!(jumps(MAX_CALLS + 1), Err(SiteRefusal::TooMuchCode));
        // Jumps within the function are not limited: jmp to the next instruction.
        let inside = [&[0xeb_u8, 0].repeat(MAX_CALLS + 1)[..], &[0xc3]].concat();
        assert_eq!(FunctionBody::decode(0x1000, inside).map(|body| body.entry), Ok(0x1000));
    }

    #[test]
    fn jump_tables_of_moved_parts_are_found() {
        // jmp 0x2000; ret
        let body = FunctionBody::decode(0x1000, vec![0xe9, 0xfb, 0x0f, 0, 0, 0xc3]).unwrap();
        let part = |code: &[u8]| {
            let part = FunctionBody::decode(0x2000, code.to_vec());
            body.unknown_jump(&NO_CODE, &move |_| part.clone())
        };
        let back = (0x1005_i32 - 0x2007).to_le_bytes();
        // jmp *%rax; jmp 0x1005
        assert_eq!(part(&[&[0xff, 0xe0, 0xe9][..], &back].concat()), Ok(Some(0x2000)));
        // Another function with a jump table does not jump back: jmp *%rax; ret
        assert_eq!(part(&[0xff, 0xe0, 0xc3]), Ok(None));
        // The jump leads into the middle of a part that returns by its jump table only: the part begins at 0x1fff with a nop.
        let part = FunctionBody::decode(0x1fff, vec![0x90, 0xff, 0xe0]).unwrap();
        assert_eq!(body.unknown_jump(&NO_CODE, &move |_| Ok(part.clone())), Ok(Some(0x2000)));
        assert_eq!(body.unknown_jump(&NO_CODE, &no_other), Err(SiteRefusal::JumpTarget(0x2000)));
    }

    #[test]
    fn clobbered_registers_are_those_that_the_code_may_write() {
        let clobbers = |code: &[u8], other: &[u8]| {
            let body = FunctionBody::decode(0x1000, code.to_vec()).unwrap();
            let other = FunctionBody::decode(0x5000, other.to_vec());
            body.clobbers(&NO_CODE, GeneralRegister(11), &move |_| other.clone())
        };
        // mov %rdi,%r11; mov %rdi,%r10; call *%rax; jmp *0(%rip)
        let (ret, r11, r10): (&[u8], &[u8], &[u8]) = (&[0xc3], &[0x49, 0x89, 0xfb], &[0x49, 0x89, 0xfa]);
        assert!(clobbers(r11, ret));
        assert!(!clobbers(r10, ret));
        assert!(clobbers(&[0xff, 0xd0], ret));
        assert!(clobbers(&[0xff, 0x25, 0, 0, 0, 0], ret));
        // A call and a jump of another function of the object, and of another object.
        for opcode in [0xe8, 0xe9] {
            assert!(clobbers(&to(&[opcode], 0x1000, 0x5000), r11));
            assert!(!clobbers(&to(&[opcode], 0x1000, 0x5000), r10));
            assert!(clobbers(&to(&[opcode], 0x1000, IMPORT), ret));
        }
    }
}
