//! Look-up of a function by its name.

use std::io;

use memtrace_model::{Bytes, FileOffset, VirtOffset};

use super::demangle::demangle;
use crate::elf::{Elf, ElfError, Source, Symbol, SymbolKind, dynamic_symbols, symbol_table};

/// Reason that a function is not found.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// The file cannot be opened.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The file is damaged, or is no executable or library.
    #[error("the file is damaged, or no executable or library: {0}")]
    NotElf(String),
    /// No symbol has the name.
    #[error("its symbols have no such function")]
    Missing,
    /// The file has no USDT note of the provider.
    #[error("no probe of memtrace.h was found")]
    NoProbe,
    /// The symbol is an indirect function: the dynamic linker chooses among several functions.
    #[error("the dynamic linker chooses it among several functions; name one of those")]
    Indirect,
    /// The address of the symbol is not in the code of the file.
    #[error("its code is not in the file")]
    NoCode,
}

impl From<ElfError> for FunctionError {
    fn from(error: ElfError) -> Self {
        Self::NotElf(error.to_string())
    }
}

/// Location of a function in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionPlace {
    /// Address of the function in the object, as its symbols state it.
    pub virt: VirtOffset,
    /// Length of the function; 0 if it is not known.
    pub size: Bytes,
    /// File offset of the function.
    pub offset: FileOffset,
}

/// Finds a function in the file `source`. `name` is the name of its symbol, or the demangled name.
///
/// # Errors
///
/// The reason that the function is not found.
pub fn find_function<S: Source>(source: S, name: &str) -> Result<FunctionPlace, FunctionError> {
    let elf = Elf::parse(source)?;
    let dynamic = dynamic_symbols::definitions(&elf, name)?.into_iter().find(|symbol| symbol.kind != SymbolKind::Other);
    let Symbol { kind, virt, size, .. } = match dynamic {
        Some(symbol) => symbol,
        None => {
            let has_name = |symbol: &[u8]| has_name(symbol, name);
            let all = symbol_table::find_functions(&elf, has_name)?.into_iter().flatten();
            let dynamic = symbol_table::find_dynamic_functions(&elf, has_name)?.into_iter().flatten();
            all.chain(dynamic).next().map(|(_, symbol)| symbol).ok_or(FunctionError::Missing)?
        }
    };
    if kind == SymbolKind::Indirect {
        return Err(FunctionError::Indirect);
    }
    let offset = elf.code_offset(virt, size).ok_or(FunctionError::NoCode)?;
    Ok(FunctionPlace { virt, size: Bytes(size), offset })
}

fn has_name(symbol: &[u8], name: &str) -> bool {
    let is_demangled = |symbol| {
        let demangled = demangle(symbol);
        // The parentheses of a function without parameters may be left out.
        demangled == name || demangled.strip_suffix("()") == Some(name)
    };
    symbol == name.as_bytes() || std::str::from_utf8(symbol).is_ok_and(is_demangled)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use harness::Scratch;
    use harness::fixtures::GLIBC;

    use super::*;

    const SOURCE: &str = r#"
        namespace service { __attribute__((noinline)) void handle(int) { __asm__(""); } void reset() {} }
        extern "C" void begin() {}
        int main() { service::handle(1); begin(); }"#;

    fn find(object: impl AsRef<Path>, name: &str) -> Result<FunctionPlace, FunctionError> {
        find_function(&File::open(object).unwrap(), name)
    }

    #[test]
    fn functions_have_the_name_of_their_symbol_or_the_demangled_one() {
        let scratch = Scratch::new();
        let program = scratch.compile("g++", "program", SOURCE, &["-x", "c++"]);
        let mangled = find(&program, "_ZN7service6handleEi").unwrap();
        assert_eq!(find(&program, "service::handle(int)").unwrap(), mangled);
        assert_ne!(find(&program, "begin").unwrap(), mangled);
        let reset = find(&program, "service::reset()").unwrap();
        assert_eq!(find(&program, "service::reset").unwrap(), reset);
        assert_eq!(find(&program, "_ZN7service5resetEv").unwrap(), reset);
        let library = scratch.compile("g++", "library.so", SOURCE, &["-x", "c++", "-shared", "-fPIC", "-s"]);
        assert!(find(&library, "begin").is_ok(), "it is a dynamic symbol");
        assert!(find(&library, "service::handle(int)").is_ok(), "it is a dynamic symbol");
    }

    #[test]
    fn other_names_and_files_are_refused_with_the_reason() {
        let scratch = Scratch::new();
        let program = scratch.compile("g++", "program", SOURCE, &["-x", "c++"]);
        assert!(matches!(find(&program, "end"), Err(FunctionError::Missing)));
        assert!(matches!(find(GLIBC, "strlen"), Err(FunctionError::Indirect)));
        assert!(matches!(find("/etc/passwd", "begin"), Err(FunctionError::NotElf(_))));
    }
}
