//! Calls at an instruction: the inlined calls and the call of the function itself.

use super::file_bytes::FileBytes;
use super::function_table::{FunctionTable, TableFunction};
use crate::elf::{Elf, Source};

/// Maximum number of calls at an instruction. The compiler inlines small functions only, so real programs have less than 30.
const MAX_CALLS: usize = 256;
/// Maximum number of pairs of the tables that are read. A look-up in a large function takes some thousand.
const MAX_STEPS: u32 = 1 << 26;
/// Smallest number for the kind of functions that the compiler generates: method wrappers, and the functions of `go` and `defer`
/// statements (`FuncIDWrapper`, internal/abi/symtab.go). The number is 21 in Go 1.19, and 23 in Go 1.27. The other kinds from 21
/// on are functions in assembly, which are neither inlined nor have inlined calls.
const FIRST_WRAPPER: u8 = 21;
/// Maximum length of a name or a path in bytes. Longer ones are cut. Names of generic functions have some hundred.
const MAX_STRING: usize = 4096;

/// Look-up of calls in the table of an object.
pub(super) struct FunctionCalls<'a, S> {
    table: &'a FunctionTable,
    bytes: FileBytes<'a, S>,
    steps: u32,
}

/// A call of a function at an instruction. The function may be inlined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FunctionCall {
    /// Address whose source line is the line of the instruction in the function.
    pub(super) address: u64,
    /// File offset of the name of the function.
    name: u64,
}

impl<'a, S: Source> FunctionCalls<'a, S> {
    pub(super) fn new(table: &'a FunctionTable, elf: &'a Elf<S>) -> Self {
        Self { table, bytes: FileBytes::new(elf), steps: MAX_STEPS }
    }

    /// Returns the function at an address of the object.
    pub(super) fn function(&mut self, address: u64) -> Option<TableFunction> {
        self.table.at(&mut self.bytes, address)
    }

    /// Returns the calls of `function` at `address`, innermost first. The last call is the call of the function itself,
    /// which is not inlined. Generated callers are left out, as in tracebacks (`tracebackPCs`, runtime/traceback.go).
    pub(super) fn calls(&mut self, function: &TableFunction, mut address: u64) -> Vec<FunctionCall> {
        let mut calls = Vec::new();
        while calls.len() < MAX_CALLS {
            let inlined = self.table.inlined_call(&mut self.bytes, function, address, &mut self.steps);
            let (name, kind) = inlined.map_or((function.name, function.kind), |inlined| (inlined.name, inlined.kind));
            if calls.is_empty() || kind < FIRST_WRAPPER {
                calls.push(FunctionCall { address, name });
            }
            match inlined {
                Some(inlined) if self.steps > 0 => address = inlined.caller,
                _ => break,
            }
        }
        calls
    }

    /// Returns the name of the called function.
    pub(super) fn name(&mut self, call: &FunctionCall) -> Option<String> {
        let name = self.bytes.string(call.name, MAX_STRING)?;
        (!name.is_empty()).then(|| String::from_utf8_lossy(&name).into_owned())
    }

    /// Returns true if the name of the called function begins with one of `prefixes`.
    pub(super) fn has_prefix(&mut self, call: &FunctionCall, prefixes: &[&str]) -> bool {
        prefixes.iter().any(|prefix| self.bytes.is_at(call.name, prefix.as_bytes()))
    }

    /// Returns the path of the source file, and the line, of a call of `function`.
    pub(super) fn source_line(&mut self, function: &TableFunction, call: &FunctionCall) -> Option<(Vec<u8>, u32)> {
        let (path, line) = self.table.source_line(&mut self.bytes, function, call.address, &mut self.steps)?;
        Some((self.bytes.string(path, MAX_STRING)?, line))
    }
}
