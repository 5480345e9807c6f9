//! Evaluation of call frame information by gimli.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianSlice, EvaluationResult, Expression, LittleEndian, Location, Register,
    RegisterRule, UnwindContext, UnwindExpression, UnwindSection as _, UnwindTableRow, Value, X86_64,
};
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, SectionHeader as _};

use crate::frame::{Caller, Frame};

const LE: object::LittleEndian = object::LittleEndian;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Call frame information of a file.
pub(crate) struct Reference<'a> {
    section: EhFrame<Slice<'a>>,
    bases: BaseAddresses,
    /// Address ranges of the FDEs, ordered by address.
    fde_ranges: Vec<(u64, u64)>,
}

/// A row of an FDE.
pub(crate) struct Row<'a> {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// Start of the next FDE. It takes precedence from this address on.
    pub(crate) overridden_from: Option<u64>,
    section: &'a EhFrame<Slice<'a>>,
    row: &'a UnwindTableRow<usize>,
}

impl<'a> Reference<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Self {
        let header = FileHeader64::<object::LittleEndian>::parse(bytes).unwrap();
        let sections = header.sections(LE, bytes).unwrap();
        let named = |name| sections.section_by_name(LE, name).map(|(_, section)| section);
        let section = named(b".eh_frame").unwrap();
        let mut bases = BaseAddresses::default().set_eh_frame(section.sh_addr(LE));
        if let Some(text) = named(b".text") {
            bases = bases.set_text(text.sh_addr(LE));
        }
        let section = EhFrame::new(section.data(LE, bytes).unwrap(), LittleEndian);
        let mut reference = Self { section, bases, fde_ranges: Vec::new() };
        let mut fde_ranges = Vec::new();
        reference.each_fde(|fde| fde_ranges.push((fde.initial_address(), fde.end_address())));
        fde_ranges.sort_unstable();
        reference.fde_ranges = fde_ranges;
        reference
    }

    fn each_fde(&self, mut each: impl FnMut(&gimli::FrameDescriptionEntry<Slice<'a>>)) {
        let mut common = std::collections::HashMap::new();
        let mut entries = self.section.entries(&self.bases);
        while let Some(entry) = entries.next().unwrap() {
            match entry {
                gimli::CieOrFde::Cie(entry) => {
                    common.insert(entry.offset(), entry);
                }
                gimli::CieOrFde::Fde(entry) => {
                    let fde = entry.parse(|_, _, offset| Ok(common[&offset.0].clone())).unwrap();
                    if fde.initial_address() != 0 && fde.len() != 0 {
                        each(&fde);
                    }
                }
            }
        }
    }

    pub(crate) fn each_row(&self, mut each: impl FnMut(&Row<'_>)) {
        let mut context = UnwindContext::new();
        self.each_fde(|fde| {
            let own = fde.initial_address();
            let after = self.fde_ranges.partition_point(|(begin, _)| *begin <= own);
            let overridden_from = self.fde_ranges.get(after).map(|(begin, _)| *begin);
            let mut rows = fde.rows(&self.section, &self.bases, &mut context).unwrap();
            while let Some(row) = rows.next_row().unwrap() {
                let (begin, end) = (row.start_address(), row.end_address().min(fde.end_address()));
                if begin < end {
                    each(&Row { begin, end, overridden_from, section: &self.section, row });
                }
            }
        });
    }

    /// Returns the address ranges between two FDEs that no FDE covers.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = (u64, u64)> {
        self.fde_ranges.windows(2).map(|pair| (pair[0].1, pair[1].0)).filter(|(begin, end)| begin < end)
    }
}

impl Row<'_> {
    /// Unwinds `frame` with gimli.
    pub(crate) fn evaluate(&self, frame: &Frame) -> Caller {
        let cfa = match self.row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => frame.register(register.0).wrapping_add_signed(*offset),
            CfaRule::Expression(expression) => self.expression(*expression, frame, None),
        };
        if self.row.register(X86_64::RA) == Some(RegisterRule::Undefined) {
            return Caller::None;
        }
        let ra = self.register(X86_64::RA, cfa, frame).expect("a return address");
        // Without a rule, the caller's stack pointer is the CFA (DWARF 5, section 6.4.1).
        let sp = self.row.register(X86_64::RSP).and_then(|_| self.register(X86_64::RSP, cfa, frame)).unwrap_or(cfa);
        Caller::Found { cfa, sp, fp: self.register(X86_64::RBP, cfa, frame), ra }
    }

    /// Returns the caller's value of a register (DWARF 5, section 6.4.1).
    fn register(&self, register: Register, cfa: u64, frame: &Frame) -> Option<u64> {
        Some(match self.row.register(register) {
            Some(RegisterRule::Undefined) => return None,
            None | Some(RegisterRule::SameValue) => frame.register(register.0),
            Some(RegisterRule::Offset(offset)) => frame.memory(cfa.wrapping_add_signed(offset)),
            Some(RegisterRule::ValOffset(offset)) => cfa.wrapping_add_signed(offset),
            Some(RegisterRule::Register(other)) => frame.register(other.0),
            Some(RegisterRule::Expression(expression)) => frame.memory(self.expression(expression, frame, Some(cfa))),
            Some(RegisterRule::ValExpression(expression)) => self.expression(expression, frame, Some(cfa)),
            Some(rule) => panic!("{rule:?}"),
        })
    }

    /// Evaluates an expression. The expression of a register starts with the CFA on its stack.
    fn expression(&self, expression: UnwindExpression<usize>, frame: &Frame, cfa: Option<u64>) -> u64 {
        let expression: Expression<Slice<'_>> = expression.get(self.section).unwrap();
        let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
        let mut evaluation = expression.evaluation(encoding);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut result = evaluation.evaluate().unwrap();
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(frame.register(register.0))).unwrap()
                }
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    evaluation.resume_with_memory(Value::Generic(frame.memory(address))).unwrap()
                }
                other => panic!("{other:?}"),
            };
        }
        match evaluation.result().as_slice() {
            [gimli::Piece { location: Location::Address { address }, .. }] => *address,
            other => panic!("{other:?}"),
        }
    }
}
