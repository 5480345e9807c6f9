//! Names of functions at addresses of a Go program.

use super::build_info;
use super::function_calls::FunctionCalls;
use super::function_table::FunctionTable;
use super::loaded_size;
use super::table_header::TableHeader;
use crate::elf::{Elf, Source};

/// Functions of a Go program.
#[derive(Debug)]
pub(crate) struct GoFunctions(FunctionTable);

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoFunction {
    /// Name with the import path of its package, and without type arguments, as the runtime prints it:
    /// `example.com/server/cache.(*Store[...]).Add`.
    pub(crate) name: Option<String>,
    /// Path of the source file, as the compiler has recorded it, and line.
    pub(crate) source_line: Option<(Vec<u8>, u32)>,
}

impl GoFunctions {
    /// Finds the functions of an object; `None` if it is no Go program, or its table is damaged.
    pub(crate) fn find(elf: &Elf<impl Source>) -> Option<Self> {
        loaded_size::check(elf).ok()?;
        let header = TableHeader::find(elf).ok()??;
        let version = build_info::version(elf).ok().flatten();
        FunctionTable::with_header(elf, &header, version.and_then(|version| version.minor())).ok()?.map(Self)
    }

    /// Returns the functions at each of `addresses`, which belong to call instructions: the function that contains the address,
    /// then the inlined functions, outermost first. Returns `None` for an address outside of the code of Go.
    pub(crate) fn at<S: Source>(&self, elf: &Elf<S>, addresses: &[u64]) -> Vec<Option<Vec<GoFunction>>> {
        let mut calls = FunctionCalls::new(&self.0, elf);
        addresses.iter().map(|&address| functions_at(&mut calls, address)).collect()
    }
}

fn functions_at<S: Source>(calls: &mut FunctionCalls<'_, S>, address: u64) -> Option<Vec<GoFunction>> {
    let function = calls.function(address)?;
    let found = calls.calls(&function, address);
    let functions = found.iter().rev().map(|call| GoFunction {
        name: calls.name(call).map(printed),
        source_line: calls.source_line(&function, call),
    });
    Some(functions.collect())
}

/// Returns the name that the runtime prints: `[...]` in place of type arguments (`funcNameForPrint`). The compiler shares the code
/// of several instances, so the arguments in the table are only their shapes, such as `go.shape.int`.
fn printed(name: String) -> String {
    match (name.find('['), name.rfind(']')) {
        (Some(start), Some(end)) if start < end => format!("{}[...]{}", &name[..start], &name[end + 1..]),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_arguments_are_left_out() {
        let names = [
            ("main.main", "main.main"),
            ("sync.(*Map[go.shape.interface {},go.shape.[]uint8]).load", "sync.(*Map[...]).load"),
            ("main.f[go.shape.int].func1", "main.f[...].func1"),
            ("main.f[", "main.f["),
            ("main.f]x[", "main.f]x["),
        ];
        for (name, expected) in names {
            assert_eq!(printed(name.to_owned()), expected);
        }
    }
}
