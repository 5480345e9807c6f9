//! The displaced instruction of a site: the one that the jump to the stub replaces.
//!
//! The stub executes it in the place of the original. An operand that is relative to the instruction pointer gets another
//! distance. If the instruction reads flags, the stub first repeats the comparison that sets the flags, because the code of the
//! stub changes them.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::assembler::{Assembler, Reg};
use super::error::StubError;
use super::site::OverlaySite;

/// Checks the description of the displaced instruction with a decoder. `changed`: registers that the stub changes before it
/// executes the instruction.
pub(super) fn check(site: &OverlaySite, changed: &[Reg]) -> Result<(), StubError> {
    let refused = |reason: &str| Err(StubError::Operand(format!("{}: {reason}", site.name)));
    let mut decoder = Decoder::with_ip(64, &site.original, site.virt.0, DecoderOptions::NONE);
    let instruction = decoder.decode();
    let length = instruction.len();
    if instruction.is_invalid() || length != site.original.len() || !(5..=15).contains(&length) {
        return refused("the replaced bytes are not one instruction of 5 to 15 bytes");
    }
    let found = relative_field(&decoder, &instruction);
    let stated = site.relative.as_ref().map(|relative| (usize::from(relative.at), relative.target.0));
    if found != stated || instruction.memory_base() == Register::EIP {
        return refused("the operand relative to rip is another one");
    }
    let is_movable = match instruction.flow_control() {
        FlowControl::Next => !site.is_jump,
        // A branch with a prefix for the operand size is refused, because processors disagree about its length.
        FlowControl::ConditionalBranch => !site.is_jump && found.is_some() && length == 6,
        FlowControl::UnconditionalBranch => site.is_jump && found.is_some() && length == 5,
        _ => false,
    };
    if !is_movable {
        return refused("the replaced instruction cannot be executed in another place");
    }
    if site.replay.is_empty() || is_comparison(&site.replay, changed) {
        Ok(())
    } else {
        refused("the flags cannot be restored")
    }
}

/// Returns the offset of the 32-bit field that is relative to the instruction pointer, and the address that the field leads to.
fn relative_field(decoder: &Decoder<'_>, instruction: &Instruction) -> Option<(usize, u64)> {
    let fields = decoder.get_constant_offsets(instruction);
    if instruction.is_ip_rel_memory_operand() {
        let is_whole = fields.displacement_size() == 4;
        is_whole.then(|| (fields.displacement_offset(), instruction.ip_rel_memory_address()))
    } else {
        let is_branch = instruction.op0_kind() == OpKind::NearBranch64 && fields.immediate_size() == 4;
        is_branch.then(|| (fields.immediate_offset(), instruction.near_branch_target()))
    }
}

/// Returns true if `code` is one comparison of registers and constants that reads none of the registers `changed`.
fn is_comparison(code: &[u8], changed: &[Reg]) -> bool {
    let instruction = Decoder::new(64, code, DecoderOptions::NONE).decode();
    let is_changed = |operand: Register| {
        let number = operand.full_register().number();
        changed.iter().any(|register| usize::from(register.number()) == number)
    };
    let is_fit = |operand: u32| match instruction.op_kind(operand) {
        OpKind::Register => !is_changed(instruction.op_register(operand)),
        OpKind::Memory => false,
        _ => true,
    };
    !instruction.is_invalid()
        && instruction.len() == code.len()
        && matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
        && (0..instruction.op_count()).all(is_fit)
}

/// Writes the comparison that sets the flags, the displaced instruction, and the jump back.
pub(super) fn write(out: &mut Assembler, site: &OverlaySite, bias: u64) {
    out.copy(&site.replay);
    let mut code = site.original.clone();
    if let Some(relative) = &site.relative {
        let distance = out.distance(relative.target.0.wrapping_add(bias), out.here() + code.len());
        let at = usize::from(relative.at);
        if let Some(field) = code.get_mut(at..at + distance.len()) {
            field.copy_from_slice(&distance);
        }
    }
    out.copy(&code);
    if !site.is_jump {
        out.jmp_to(site.virt.0.wrapping_add(bias).wrapping_add(code.len() as u64));
    }
}
