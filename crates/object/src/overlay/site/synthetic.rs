//! Code of functions for tests.

use crate::elf::Machine;
use crate::probe_site::{ObjectCode, PointerTarget};

/// Address of the first byte.
pub(super) const START: u64 = 0x1000;

/// Hooked function of the object, without code.
pub(super) const HOOKED: u64 = 0x2000;

/// PLT stub for the function at [`HOOKED`].
pub(super) const STUB: u64 = 0x3000;

/// PLT stub for a function of another object.
pub(super) const IMPORT: u64 = 0x3010;

/// Pointer of [`STUB`].
pub(super) const SLOT: u64 = 0x4000;

/// Code from [`START`] on.
#[derive(Clone, Debug)]
pub(super) struct SyntheticCode(pub(super) Vec<u8>);

impl ObjectCode for SyntheticCode {
    fn machine(&self) -> Machine {
        Machine::X86_64
    }

    fn code(&self, address: u64) -> Vec<u8> {
        match address {
            STUB => to(&[0xff, 0x25], STUB, SLOT),
            IMPORT => to(&[0xff, 0x25], IMPORT, SLOT + 8),
            _ => {
                let at = address.checked_sub(START).and_then(|at| usize::try_from(at).ok());
                at.and_then(|at| self.0.get(at..)).unwrap_or_default().to_vec()
            }
        }
    }

    fn function_start(&self, _: u64) -> Option<u64> {
        Some(START)
    }

    fn function_end(&self, _: u64) -> Option<u64> {
        Some(START + self.0.len() as u64)
    }

    fn is_hooked(&self, address: u64) -> bool {
        address == HOOKED
    }

    fn pointer_target(&self, slot: u64) -> PointerTarget {
        if slot == SLOT { PointerTarget::Code(HOOKED) } else { PointerTarget::Unknown }
    }
}

/// Returns the instruction with this opcode at the address `at`, with a 32-bit distance to `target`.
pub(super) fn to(opcode: &[u8], at: u64, target: u64) -> Vec<u8> {
    let end = at + opcode.len() as u64 + 4;
    let distance = i32::try_from(target.cast_signed() - end.cast_signed()).unwrap();
    [opcode, &distance.to_le_bytes()].concat()
}
