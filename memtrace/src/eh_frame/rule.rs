//! A row of call frame information to a rule.
//!
//! The few DWARF expressions that compilers and linkers write have rules of their own; what else there is cannot be put
//! into a table, and says so.

use gimli::{
    CfaRule, EhFrame, Encoding, EndianSlice, Format, LittleEndian, Operation, Register, RegisterRule, UnwindExpression,
    UnwindTableRow, X86_64,
};
use memtrace_common::unwind::{Rule, cfa, fp, ra};

use crate::elf::Machine;

/// The call frame information that rows are of: expressions lie in it.
pub(super) type Section<'data> = EhFrame<EndianSlice<'data, LittleEndian>>;

/// The outermost frame.
pub(super) const END: Rule = of_kind(cfa::END);
/// There is information, but no rule says it.
pub(super) const UNTABLED: Rule = of_kind(cfa::UNTABLED);
/// A signal frame.
const SIGNAL: Rule = of_kind(cfa::SIGNAL);

/// How expressions in 64-bit objects are encoded. The version only matters to operations that no rule says.
const ENCODING: Encoding = Encoding { address_size: 8, format: Format::Dwarf32, version: 4 };

/// Where the kernel puts the registers of an interrupted x86-64 program, from the stack pointer in the handler's
/// restorer on: `uc_mcontext` of `struct ucontext` (arch/x86/include/uapi/asm/ucontext.h and sigcontext.h).
const X86_64_SIGNAL_FRAME: [(Register, i64); 3] = [(X86_64::RSP, 160), (X86_64::RBP, 120), (X86_64::RA, 168)];

const fn of_kind(cfa_kind: u8) -> Rule {
    Rule {
        cfa_kind,
        fp_kind: fp::SAME,
        ra_kind: ra::AT_CFA_MINUS_8,
        reserved: 0,
        cfa_offset: 0,
        fp_offset: 0,
        extra: 0,
    }
}

/// A value that is a register plus an offset, or lies where that points.
struct Place {
    register: Register,
    offset: i32,
    /// Added to what lies there.
    behind: Option<i32>,
}

/// What turns an object's rows into rules.
pub(super) struct Rules<'data> {
    pub(super) machine: Machine,
    /// The register that stands for the return address.
    pub(super) return_address: Register,
    /// Whether the frames are signal frames.
    pub(super) signal: bool,
    pub(super) section: &'data Section<'data>,
}

impl Rules<'_> {
    /// The rule that says what `row` says; [`UNTABLED`] where none does.
    pub(super) fn of(&self, row: &UnwindTableRow<usize>) -> Rule {
        if self.signal {
            return if self.is_kernels_signal_frame(row) { SIGNAL } else { UNTABLED };
        }
        if matches!(row.register(self.return_address), Some(RegisterRule::Undefined)) {
            return END;
        }
        // That the caller's stack pointer is the CFA is a convention, which code that changes stacks does not keep.
        if !matches!(row.register(self.machine.stack_pointer()), None | Some(RegisterRule::ValOffset(0))) {
            return UNTABLED;
        }
        let rule = self.cfa(row.cfa()).and_then(|rule| self.with_return_address(rule, row));
        rule.map_or(UNTABLED, |rule| self.with_frame_pointer(rule, row))
    }

    /// Whether a row that is marked as a signal frame means the frame that the kernel makes. Some programs mark frames of
    /// their own so, which hold registers elsewhere.
    fn is_kernels_signal_frame(&self, row: &UnwindTableRow<usize>) -> bool {
        if self.machine == Machine::Aarch64 {
            return true;
        }
        X86_64_SIGNAL_FRAME.into_iter().all(|(register, offset)| {
            let place = match (row.cfa(), row.register(register)) {
                (CfaRule::Expression(expression), _) if register == X86_64::RSP => {
                    return self.dereference(*expression).is_some_and(|place| {
                        place.register == X86_64::RSP && i64::from(place.offset) == offset && place.behind == Some(0)
                    });
                }
                (_, Some(RegisterRule::Expression(expression))) => self.sum(expression),
                _ => None,
            };
            place.is_some_and(|place| place.register == X86_64::RSP && i64::from(place.offset) == offset)
        })
    }

    /// A rule that says the CFA alone.
    fn cfa(&self, cfa: &CfaRule<usize>) -> Option<Rule> {
        match cfa {
            CfaRule::RegisterAndOffset { register, offset } => {
                let cfa_offset = i32::try_from(*offset).ok()?;
                let (cfa_kind, extra) = match *register {
                    register if register == self.machine.stack_pointer() => (cfa::SP, 0),
                    register if register == self.machine.frame_pointer() => (cfa::FP, 0),
                    Register(number) => (cfa::REGISTER, number.into()),
                };
                Some(Rule { cfa_offset, extra, ..of_kind(cfa_kind) })
            }
            CfaRule::Expression(expression) => {
                if let Some(threshold) = self.plt_threshold(*expression) {
                    return Some(Rule { cfa_offset: threshold, ..of_kind(cfa::PLT) });
                }
                let place = self.dereference(*expression)?;
                let cfa_kind = match place.register {
                    register if register == self.machine.stack_pointer() => cfa::DEREF_SP,
                    register if register == self.machine.frame_pointer() => cfa::DEREF_FP,
                    _ => return None,
                };
                Some(Rule { cfa_offset: place.offset, extra: place.behind?, ..of_kind(cfa_kind) })
            }
        }
    }

    fn with_return_address(&self, rule: Rule, row: &UnwindTableRow<usize>) -> Option<Rule> {
        let (ra_kind, extra) = match (self.machine, row.register(self.return_address)) {
            (Machine::X86_64, Some(RegisterRule::Offset(-8))) => return Some(rule),
            (_, Some(RegisterRule::Offset(offset))) => (ra::AT_CFA, i32::try_from(offset).ok()?),
            (Machine::Aarch64, None | Some(RegisterRule::SameValue)) => {
                return Some(Rule { ra_kind: ra::LINK_REGISTER, ..rule });
            }
            (_, Some(RegisterRule::Register(Register(number)))) => (ra::REGISTER, number.into()),
            _ => return None,
        };
        // There is one place for both.
        let taken = matches!(rule.cfa_kind, cfa::REGISTER | cfa::DEREF_SP | cfa::DEREF_FP);
        (!taken).then_some(Rule { ra_kind, extra, ..rule })
    }

    /// A frame pointer that no rule finds is no reason to end here: few callers need it.
    fn with_frame_pointer(&self, rule: Rule, row: &UnwindTableRow<usize>) -> Rule {
        let found = match row.register(self.machine.frame_pointer()) {
            None | Some(RegisterRule::SameValue) => Some((fp::SAME, 0)),
            Some(RegisterRule::Offset(offset)) => i32::try_from(offset).ok().map(|offset| (fp::AT_CFA, offset)),
            Some(RegisterRule::Expression(expression)) => {
                let place = self.sum(expression).filter(|place| place.register == self.machine.frame_pointer());
                place.map(|place| (fp::AT_FP, place.offset))
            }
            _ => None,
        };
        let (fp_kind, fp_offset) = found.unwrap_or((fp::UNDEFINED, 0));
        Rule { fp_kind, fp_offset, ..rule }
    }

    /// `*(register + offset) + behind`.
    fn dereference(&self, expression: UnwindExpression<usize>) -> Option<Place> {
        match self.operations(expression)? {
            [Some(Operation::RegisterOffset { register, offset, .. }), Some(deref), None, ..] => {
                Some(Place { behind: Some(0), ..place(register, offset).filter(|_| is_deref(&deref))? })
            }
            [
                Some(Operation::RegisterOffset { register, offset, .. }),
                Some(deref),
                Some(Operation::PlusConstant { value }),
                None,
            ] => {
                let behind = Some(i32::try_from(value).ok()?);
                Some(Place { behind, ..place(register, offset).filter(|_| is_deref(&deref))? })
            }
            _ => None,
        }
    }

    /// `register + offset`.
    fn sum(&self, expression: UnwindExpression<usize>) -> Option<Place> {
        match self.operations(expression)? {
            [Some(Operation::RegisterOffset { register, offset, .. }), None, ..] => place(register, offset),
            _ => None,
        }
    }

    /// The first operations; `None` where they cannot be read.
    fn operations(
        &self,
        expression: UnwindExpression<usize>,
    ) -> Option<[Option<Operation<EndianSlice<'_, LittleEndian>>>; 4]> {
        let mut operations = expression.get(self.section).ok()?.operations(ENCODING);
        let mut first = [const { None }; 4];
        for slot in &mut first {
            *slot = operations.next().ok()?;
        }
        Some(first)
    }

    /// Where in a PLT entry of 16 bytes the second push is done, if `expression` is what linkers write for `.plt`:
    /// `rsp + 8 + ((rip & 15) >= threshold) * 8` (binutils, bfd/elfxx-x86.c, `_bfd_x86_elf_late_size_sections`; the bytes
    /// in bfd/elf64-x86-64.c, `elf_x86_64_eh_frame_lazy_plt`).
    fn plt_threshold(&self, expression: UnwindExpression<usize>) -> Option<i32> {
        use gimli::constants::{
            DW_OP_and, DW_OP_breg7, DW_OP_breg16, DW_OP_ge, DW_OP_lit0, DW_OP_lit3, DW_OP_lit15, DW_OP_plus, DW_OP_shl,
        };
        let expression = expression.get(self.section).ok()?;
        let [breg7, 8, breg16, 0, lit15, and, literal, ge, lit3, shl, plus] = *expression.0.slice() else {
            return None;
        };
        let found = [breg7, breg16, lit15, and, ge, lit3, shl, plus];
        let written = [DW_OP_breg7, DW_OP_breg16, DW_OP_lit15, DW_OP_and, DW_OP_ge, DW_OP_lit3, DW_OP_shl, DW_OP_plus];
        let threshold = literal.checked_sub(DW_OP_lit0.0).filter(|&threshold| threshold < 16)?;
        (self.machine == Machine::X86_64 && found == written.map(|operation| operation.0)).then_some(threshold.into())
    }
}

fn place(register: Register, offset: i64) -> Option<Place> {
    Some(Place { register, offset: i32::try_from(offset).ok()?, behind: None })
}

/// Whether eight bytes are read.
fn is_deref(operation: &Operation<EndianSlice<'_, LittleEndian>>) -> bool {
    matches!(operation, Operation::Deref { size: 8, space: false, base_type } if base_type.0 == 0)
}

#[cfg(test)]
mod tests;
