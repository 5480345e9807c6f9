//! Go's table of functions (`.gopclntab`). The linker writes it for tracebacks, and stripping does not remove it.

use std::ops::Range;

use super::file_bytes::FileBytes;
use super::module_data::ModuleData;
use super::pc_values::PcValues;
use super::table_header::TableHeader;
use crate::elf::{Elf, ElfError, Source};

/// Number of the table with the indices of inlined calls (`PCDATA_InlTreeIndex`, internal/abi/symtab.go).
const INLINED_CALLS: u64 = 2;
/// Number of the data with the inlined calls (`FUNCDATA_InlTree`).
const INLINE_TREE: u64 = 3;
/// Offset that stands for data that a function does not have.
const NO_DATA: u32 = u32::MAX;

/// Table of functions, as places in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FunctionTable {
    /// Address of the code of Go in the object.
    text: u64,
    /// File offset of the data of functions, if it is known.
    function_data: Option<u64>,
    quantum: u64,
    is_from_1_20: bool,
    count: u64,
    /// File offsets of the parts of the table.
    names: u64,
    units: u64,
    files: u64,
    values: u64,
    functions: u64,
}

/// A function of the table (`_func`, runtime/runtime2.go).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableFunction {
    /// Address of the function in the object.
    pub(super) entry: u64,
    /// File offset of its name.
    pub(super) name: u64,
    /// Kind of function (`FuncID`).
    pub(super) kind: u8,
    /// Offsets of its tables; 0 for none.
    files: u32,
    lines: u32,
    inlined_calls: u32,
    /// Number of its first file.
    first_file: u32,
    /// File offset of its inlined calls.
    inline_tree: Option<u64>,
}

/// An inlined call (`inlinedCall`, runtime/symtabinl.go).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InlinedCall {
    /// File offset of the name of the called function.
    pub(super) name: u64,
    /// Kind of the called function.
    pub(super) kind: u8,
    /// Address of an instruction with the source line of the call.
    pub(super) caller: u64,
}

impl FunctionTable {
    /// Finds the table of an object. `minor`: minor release of the toolchain, if known. Without it, inlined calls are not known.
    pub(super) fn find(elf: &Elf<impl Source>, minor: Option<u32>) -> Result<Option<Self>, ElfError> {
        match TableHeader::find(elf)? {
            Some(header) => Self::with_header(elf, &header, minor),
            None => Ok(None),
        }
    }

    /// Same as [`Self::find`], for a header that is already known. Returns `None` if the address of the code is not
    /// known.
    pub(super) fn with_header(
        elf: &Elf<impl Source>,
        header: &TableHeader,
        minor: Option<u32>,
    ) -> Result<Option<Self>, ElfError> {
        let module = ModuleData::find(elf, header, minor)?;
        let text = module.map(|module| module.text).or((header.text != 0).then_some(header.text));
        let function_data = module.and_then(|module| module.function_data);
        let function_data = function_data.and_then(|data| Some(elf.locate(data).ok()?.0));
        Ok(text.map(|text| Self::new(header, text, function_data)))
    }

    /// `text`: address of the code of Go. `function_data`: file offset of the data of functions.
    pub(super) fn new(header: &TableHeader, text: u64, function_data: Option<u64>) -> Self {
        let [names, units, files, values, functions] = header.parts.map(|part| header.offset.saturating_add(part));
        Self {
            text,
            function_data,
            quantum: header.quantum,
            is_from_1_20: header.is_from_1_20,
            count: header.count,
            names,
            units,
            files,
            values,
            functions,
        }
    }

    /// Returns the number of functions.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the addresses of the code of function `index`.
    pub(super) fn code(&self, bytes: &mut FileBytes<'_, impl Source>, index: u64) -> Option<Range<u64>> {
        let mut address = |index| Some(self.text.saturating_add(self.start(bytes, index)?.into()));
        Some(address(index)?..address(index + 1)?)
    }

    /// Returns the start of function `index`, relative to the code of Go. The start of the function after the last one is the end
    /// of the code.
    fn start(&self, bytes: &mut FileBytes<'_, impl Source>, index: u64) -> Option<u32> {
        bytes.number(self.functions.checked_add(index.checked_mul(8)?)?)
    }

    /// Returns the file offset of the record of function `index`.
    fn record(&self, bytes: &mut FileBytes<'_, impl Source>, index: u64) -> Option<u64> {
        let offset = bytes.number(self.functions.checked_add(index.checked_mul(8)?)?.checked_add(4)?)?;
        self.functions.checked_add(offset.into())
    }

    /// Returns the file offset of the name of function `index`.
    pub(super) fn name(&self, bytes: &mut FileBytes<'_, impl Source>, index: u64) -> Option<u64> {
        let record = self.record(bytes, index)?;
        self.name_at(bytes, record.checked_add(4)?)
    }

    /// Returns the file offset of the name whose offset in the names is stored at `place`.
    fn name_at(&self, bytes: &mut FileBytes<'_, impl Source>, place: u64) -> Option<u64> {
        self.names.checked_add(bytes.number(place)?.into())
    }

    /// Returns the function at an address of the object.
    pub(super) fn at(&self, bytes: &mut FileBytes<'_, impl Source>, address: u64) -> Option<TableFunction> {
        let offset = u32::try_from(address.checked_sub(self.text)?).ok()?;
        // The first function after the address.
        let (mut low, mut high) = (0, self.count + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.start(bytes, middle)? <= offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let index = low.checked_sub(1).filter(|&index| index < self.count)?;
        let entry = self.text.checked_add(self.start(bytes, index)?.into())?;
        let record = self.record(bytes, index)?;
        self.function(bytes, entry, record)
    }

    fn function(&self, bytes: &mut FileBytes<'_, impl Source>, entry: u64, record: u64) -> Option<TableFunction> {
        // The record has eleven words from Go 1.20 on, and ten before. The offsets of tables and of data follow it.
        let size: u64 = if self.is_from_1_20 { 44 } else { 40 };
        let mut number = |word: u64| bytes.number(record.checked_add(4 * word)?);
        let (files, lines, tables, first_file) = (number(5)?, number(6)?, number(7)?, number(8)?);
        let [kind, _, _, data] = number(size / 4 - 1)?.to_le_bytes();
        let inlined_calls = if u64::from(tables) > INLINED_CALLS { number(size / 4 + INLINED_CALLS)? } else { 0 };
        let has_tree = u64::from(data) > INLINE_TREE && inlined_calls != 0;
        let tree = if has_tree { number(size / 4 + u64::from(tables) + INLINE_TREE)? } else { NO_DATA };
        Some(TableFunction {
            entry,
            name: self.name_at(bytes, record.checked_add(4)?)?,
            kind,
            files,
            lines,
            inlined_calls,
            first_file,
            inline_tree: self.function_data.filter(|_| tree != NO_DATA).and_then(|data| data.checked_add(tree.into())),
        })
    }

    /// Returns the table at an offset of the function; `None` for the offset 0.
    fn values(&self, function: &TableFunction, offset: u32) -> Option<PcValues> {
        let place = self.values.checked_add(offset.into()).filter(|_| offset != 0)?;
        Some(PcValues { offset: place, entry: function.entry, quantum: self.quantum })
    }

    /// Returns the inlined call that contains the instruction at `address`; `None` if the instruction belongs to the function
    /// itself. `steps`: see [`PcValues::find`].
    pub(super) fn inlined_call(
        &self,
        bytes: &mut FileBytes<'_, impl Source>,
        function: &TableFunction,
        address: u64,
        steps: &mut u32,
    ) -> Option<InlinedCall> {
        let tree = function.inline_tree?;
        let index = self.values(function, function.inlined_calls)?.find(bytes, address, steps)?;
        let index = u64::try_from(index).ok()?;
        // Go 1.19: index of the caller (16 bits), kind, file, line, name, caller. From Go 1.20 on: kind, name, caller, line.
        let (size, kind, name, caller) = if self.is_from_1_20 { (16, 0, 4, 8) } else { (20, 2, 12, 16) };
        let call = tree.checked_add(index.checked_mul(size)?)?;
        let distance = bytes.number(call.checked_add(caller)?)?.cast_signed();
        Some(InlinedCall {
            name: self.name_at(bytes, call.checked_add(name)?)?,
            kind: bytes.byte(call.checked_add(kind)?)?,
            caller: function.entry.checked_add_signed(distance.into())?,
        })
    }

    /// Returns the file offset of the path of the source file, and the line, of the instruction at `address`.
    pub(super) fn source_line(
        &self,
        bytes: &mut FileBytes<'_, impl Source>,
        function: &TableFunction,
        address: u64,
        steps: &mut u32,
    ) -> Option<(u64, u32)> {
        let file = self.values(function, function.files)?.find(bytes, address, steps)?;
        let line = self.values(function, function.lines)?.find(bytes, address, steps)?;
        let number = u64::from(function.first_file).checked_add(u64::try_from(file).ok()?)?;
        let path = bytes.number(self.units.checked_add(number.checked_mul(4)?)?).filter(|&path| path != NO_DATA)?;
        Some((self.files.checked_add(path.into())?, u32::try_from(line).ok()?))
    }
}
