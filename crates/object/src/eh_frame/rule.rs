//! Conversion of a row of call frame information to a rule.
//!
//! The few DWARF expressions that compilers and linkers emit have rules of their own. Any other row with an
//! expression becomes [`UNTABLED`].

use gimli::{
    CfaRule, Encoding, EndianSlice, Expression, Format, LittleEndian, Operation, Register, RegisterRule,
    UnwindExpression, UnwindTableRow, X86_64,
};
use memtrace_common::unwind::{Rule, cfa, fp, ra};

use super::machine::{frame_pointer, stack_pointer};
use crate::elf::Machine;

/// Rule of the outermost frame.
pub(super) const END: Rule = of_kind(cfa::END);
/// Rule for call frame information that no other rule can express.
pub(super) const UNTABLED: Rule = of_kind(cfa::UNTABLED);
/// Rule of a signal frame with the layout of the kernel. Other signal frames are [`UNTABLED`].
const SIGNAL: Rule = of_kind(cfa::SIGNAL);

/// Encoding of expressions in 64-bit objects. The version is relevant only to operations that have no rule.
const ENCODING: Encoding = Encoding { address_size: 8, format: Format::Dwarf32, version: 4 };

/// Offsets from the stack pointer in the signal restorer to the saved registers of an interrupted x86-64 program:
/// `uc_mcontext` of `struct ucontext` (arch/x86/include/uapi/asm/ucontext.h and sigcontext.h).
const X86_64_SIGNAL_FRAME: [(Register, i64); 3] = [(X86_64::RSP, 160), (X86_64::RBP, 120), (X86_64::RA, 168)];

/// Returns a rule with this kind of CFA and no offsets.
pub(super) const fn of_kind(cfa_kind: u8) -> Rule {
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

/// Location that an expression computes: a register plus an offset, optionally dereferenced.
struct Location {
    register: Register,
    offset: i32,
    /// Number added to the dereferenced value; `None` if the location is not dereferenced.
    addend: Option<i32>,
}

/// Converter of rows to rules.
pub(super) struct Rules<'data> {
    pub(super) machine: Machine,
    /// Register column of the return address.
    pub(super) return_address: Register,
    /// True if the description is marked as a signal frame.
    pub(super) signal: bool,
    /// Section with the expressions of the rows.
    pub(super) section: &'data [u8],
}

impl Rules<'_> {
    /// Returns the rule for `row`; [`UNTABLED`] if no rule can express it.
    pub(super) fn convert(&self, row: &UnwindTableRow<usize>) -> Rule {
        if self.signal {
            return if self.is_kernel_signal_frame(row) { SIGNAL } else { UNTABLED };
        }
        if matches!(row.register(self.return_address), Some(RegisterRule::Undefined)) {
            return END;
        }
        // By convention, the caller's stack pointer is the CFA. Code that switches stacks deviates from this.
        if !matches!(row.register(stack_pointer(self.machine)), None | Some(RegisterRule::ValOffset(0))) {
            return UNTABLED;
        }
        let rule = self.cfa(row.cfa()).and_then(|rule| self.with_return_address(rule, row));
        rule.map_or(UNTABLED, |rule| self.with_frame_pointer(rule, row))
    }

    /// Returns true if a row marked as a signal frame describes the kernel's frame layout. Some programs mark their
    /// own frames, which have another layout.
    fn is_kernel_signal_frame(&self, row: &UnwindTableRow<usize>) -> bool {
        if self.machine == Machine::Aarch64 {
            return true;
        }
        X86_64_SIGNAL_FRAME.into_iter().all(|(register, offset)| {
            let location = match (row.cfa(), row.register(register)) {
                (CfaRule::Expression(expression), _) if register == X86_64::RSP => {
                    return self.dereference(*expression).is_some_and(|location| {
                        location.register == X86_64::RSP
                            && i64::from(location.offset) == offset
                            && location.addend == Some(0)
                    });
                }
                (_, Some(RegisterRule::Expression(expression))) => self.sum(expression),
                _ => None,
            };
            location.is_some_and(|location| location.register == X86_64::RSP && i64::from(location.offset) == offset)
        })
    }

    /// Returns a rule with the CFA only.
    fn cfa(&self, cfa: &CfaRule<usize>) -> Option<Rule> {
        match cfa {
            CfaRule::RegisterAndOffset { register, offset } => {
                let cfa_offset = i32::try_from(*offset).ok()?;
                let (cfa_kind, extra) = match *register {
                    register if register == stack_pointer(self.machine) => (cfa::SP, 0),
                    register if register == frame_pointer(self.machine) => (cfa::FP, 0),
                    Register(number) => (cfa::REGISTER, number.into()),
                };
                Some(Rule { cfa_offset, extra, ..of_kind(cfa_kind) })
            }
            CfaRule::Expression(expression) => {
                if let Some(threshold) = self.plt_threshold(*expression) {
                    return Some(Rule { cfa_offset: threshold, ..of_kind(cfa::PLT) });
                }
                let location = self.dereference(*expression)?;
                let cfa_kind = match location.register {
                    register if register == stack_pointer(self.machine) => cfa::DEREF_SP,
                    register if register == frame_pointer(self.machine) => cfa::DEREF_FP,
                    _ => return None,
                };
                Some(Rule { cfa_offset: location.offset, extra: location.addend?, ..of_kind(cfa_kind) })
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
        // The CFA and the return address would both use the field `extra`.
        let taken = matches!(rule.cfa_kind, cfa::REGISTER | cfa::DEREF_SP | cfa::DEREF_FP);
        (!taken).then_some(Rule { ra_kind, extra, ..rule })
    }

    /// Adds the rule of the frame pointer. A frame pointer without a rule is undefined, which does not end a walk:
    /// few callers need it.
    fn with_frame_pointer(&self, rule: Rule, row: &UnwindTableRow<usize>) -> Rule {
        let found = match row.register(frame_pointer(self.machine)) {
            None | Some(RegisterRule::SameValue) => Some((fp::SAME, 0)),
            Some(RegisterRule::Offset(offset)) => i32::try_from(offset).ok().map(|offset| (fp::AT_CFA, offset)),
            Some(RegisterRule::Expression(expression)) => {
                let location = self.sum(expression).filter(|location| location.register == frame_pointer(self.machine));
                location.map(|location| (fp::AT_FP, location.offset))
            }
            _ => None,
        };
        let (fp_kind, fp_offset) = found.unwrap_or((fp::UNDEFINED, 0));
        Rule { fp_kind, fp_offset, ..rule }
    }

    /// Matches `*(register + offset) + addend`.
    fn dereference(&self, expression: UnwindExpression<usize>) -> Option<Location> {
        match self.operations(expression)? {
            [Some(Operation::RegisterOffset { register, offset, .. }), Some(deref), None, ..] => {
                Some(Location { addend: Some(0), ..location(register, offset).filter(|_| is_deref(&deref))? })
            }
            [
                Some(Operation::RegisterOffset { register, offset, .. }),
                Some(deref),
                Some(Operation::PlusConstant { value }),
                None,
            ] => {
                let addend = Some(i32::try_from(value).ok()?);
                Some(Location { addend, ..location(register, offset).filter(|_| is_deref(&deref))? })
            }
            _ => None,
        }
    }

    /// Matches `register + offset`.
    fn sum(&self, expression: UnwindExpression<usize>) -> Option<Location> {
        match self.operations(expression)? {
            [Some(Operation::RegisterOffset { register, offset, .. }), None, ..] => location(register, offset),
            _ => None,
        }
    }

    fn expression(
        &self,
        UnwindExpression { offset, length }: UnwindExpression<usize>,
    ) -> Option<Expression<EndianSlice<'_, LittleEndian>>> {
        let bytes = self.section.get(offset..offset.checked_add(length)?)?;
        Some(Expression(EndianSlice::new(bytes, LittleEndian)))
    }

    /// Decodes up to four operations from the start of an expression; `None` if they are malformed.
    fn operations(
        &self,
        expression: UnwindExpression<usize>,
    ) -> Option<[Option<Operation<EndianSlice<'_, LittleEndian>>>; 4]> {
        let mut operations = self.expression(expression)?.operations(ENCODING);
        let mut first = [const { None }; 4];
        for slot in &mut first {
            *slot = operations.next().ok()?;
        }
        Some(first)
    }

    /// Returns the threshold if `expression` is the expression that linkers write for `.plt`:
    /// `rsp + 8 + ((rip & 15) >= threshold) * 8` (binutils, bfd/elfxx-x86.c, `_bfd_x86_elf_late_size_sections`; the
    /// bytes are in bfd/elf64-x86-64.c, `elf_x86_64_eh_frame_lazy_plt`). The threshold is the offset after the push in
    /// a PLT entry of 16 bytes.
    fn plt_threshold(&self, expression: UnwindExpression<usize>) -> Option<i32> {
        use gimli::constants::{
            DW_OP_and, DW_OP_breg7, DW_OP_breg16, DW_OP_ge, DW_OP_lit0, DW_OP_lit3, DW_OP_lit15, DW_OP_plus, DW_OP_shl,
        };
        let expression = self.expression(expression)?;
        let [breg7, 8, breg16, 0, lit15, and, literal, ge, lit3, shl, plus] = *expression.0.slice() else {
            return None;
        };
        let found = [breg7, breg16, lit15, and, ge, lit3, shl, plus];
        let written = [DW_OP_breg7, DW_OP_breg16, DW_OP_lit15, DW_OP_and, DW_OP_ge, DW_OP_lit3, DW_OP_shl, DW_OP_plus];
        let threshold = literal.checked_sub(DW_OP_lit0.0).filter(|&threshold| threshold < 16)?;
        (self.machine == Machine::X86_64 && found == written.map(|operation| operation.0)).then_some(threshold.into())
    }
}

fn location(register: Register, offset: i64) -> Option<Location> {
    Some(Location { register, offset: i32::try_from(offset).ok()?, addend: None })
}

/// Returns true for a dereference of eight bytes.
fn is_deref(operation: &Operation<EndianSlice<'_, LittleEndian>>) -> bool {
    matches!(operation, Operation::Deref { size: 8, space: false, base_type } if base_type.0 == 0)
}

#[cfg(test)]
mod tests;
