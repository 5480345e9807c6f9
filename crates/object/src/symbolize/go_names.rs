//! Names of functions of Go programs, from Go's table of functions.
//!
//! The table is part of the program, so that stripping does not remove it. It has the same names, source lines and inlined calls as
//! the debug information, and as the program's own profiles. A look-up takes a small part of the time and the memory
//! that debug information needs.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt as _;

use memtrace_model::{Location, Name, VirtOffset};

use super::functions::Function;
use crate::elf::Elf;
use crate::go::{GoFunction, GoFunctions};

/// Returns the functions at each of `addresses`; `None` for an address outside of the code of Go. Without `with_lines`, returns
/// only the function that contains the address, without its source line.
pub(super) fn find(object: &File, addresses: &[VirtOffset], with_lines: bool) -> Vec<Option<Vec<Function>>> {
    let none = || vec![None; addresses.len()];
    let Ok(elf) = Elf::parse(object) else { return none() };
    let Some(table) = GoFunctions::find(&elf) else { return none() };
    let addresses: Vec<u64> = addresses.iter().map(|address| address.0).collect();
    let found = table.at(&elf, &addresses).into_iter();
    found.map(|functions| functions.map(|functions| convert(functions, with_lines))).collect()
}

fn convert(functions: Vec<GoFunction>, with_lines: bool) -> Vec<Function> {
    let count = if with_lines { functions.len() } else { 1 };
    let function = |(index, GoFunction { name, source_line }): (usize, GoFunction)| Function {
        name: name.map(Name),
        location: source_line
            .filter(|_| with_lines)
            .map(|(file, line)| Location { file: OsString::from_vec(file).into(), line: (line != 0).then_some(line) }),
        inlined: index > 0,
    };
    functions.into_iter().enumerate().take(count).map(function).collect()
}
