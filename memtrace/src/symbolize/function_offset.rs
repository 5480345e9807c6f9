//! Functions by name: the reverse of symbolization.

use std::fs::File;
use std::io;
use std::path::Path;

use super::demangle::demangle;
use crate::elf::{Elf, ElfError, Symbol, SymbolKind};
use crate::model::FileOffset;

/// Reason for which a function is not found.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// The file is no executable or library.
    #[error("the file is damaged, or no executable or library: {0}")]
    NotElf(String),
    /// No symbol has the name.
    #[error("its symbols have no such function")]
    Missing,
    /// The dynamic linker chooses among several functions.
    #[error("the dynamic linker chooses it among several functions; name one of those")]
    Indirect,
    /// The symbol is not in the code of the file.
    #[error("its code is not in the file")]
    NoCode,
}

impl From<ElfError> for FunctionError {
    fn from(error: ElfError) -> Self {
        Self::NotElf(error.to_string())
    }
}

/// Returns the offset of the function `name` in `object`. The name is that of its symbol, or the demangled one.
///
/// # Errors
///
/// The function is not found.
pub fn function_offset(object: &Path, name: &str) -> Result<FileOffset, FunctionError> {
    let file = File::open(object)?;
    let elf = Elf::parse(&file)?;
    let dynamic = elf.definitions(name)?.into_iter().find(|symbol| symbol.kind != SymbolKind::Other);
    let Symbol { kind, virt, size, .. } = match dynamic {
        Some(symbol) => symbol,
        None => {
            let functions = elf.find_functions(|symbol| has_name(symbol, name))?.unwrap_or_default();
            functions.into_iter().next().map(|(_, symbol)| symbol).ok_or(FunctionError::Missing)?
        }
    };
    if kind == SymbolKind::Indirect {
        return Err(FunctionError::Indirect);
    }
    elf.code_offset(virt, size).ok_or(FunctionError::NoCode)
}

fn has_name(symbol: &[u8], name: &str) -> bool {
    symbol == name.as_bytes() || std::str::from_utf8(symbol).is_ok_and(|symbol| demangle(symbol) == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::{GLIBC, Scratch};

    const SOURCE: &str = r#"
        namespace service { __attribute__((noinline)) void handle(int) { __asm__(""); } }
        extern "C" void begin() {}
        int main() { service::handle(1); begin(); }"#;

    #[test]
    fn functions_have_the_name_of_their_symbol_or_the_demangled_one() {
        let scratch = Scratch::new();
        let program = scratch.compile("g++", "program", SOURCE, &["-x", "c++"]);
        let mangled = function_offset(&program, "_ZN7service6handleEi").unwrap();
        assert_eq!(function_offset(&program, "service::handle(int)").unwrap(), mangled);
        assert_ne!(function_offset(&program, "begin").unwrap(), mangled);
        let library = scratch.compile("g++", "library.so", SOURCE, &["-x", "c++", "-shared", "-fPIC", "-s"]);
        assert!(function_offset(&library, "begin").is_ok(), "it is a dynamic symbol");
    }

    #[test]
    fn other_names_and_files_are_refused_with_the_reason() {
        let scratch = Scratch::new();
        let program = scratch.compile("g++", "program", SOURCE, &["-x", "c++"]);
        assert!(matches!(function_offset(&program, "end"), Err(FunctionError::Missing)));
        assert!(matches!(function_offset(Path::new(GLIBC), "strlen"), Err(FunctionError::Indirect)));
        assert!(matches!(function_offset(Path::new("/nowhere"), "begin"), Err(FunctionError::Unreadable(_))));
        assert!(matches!(function_offset(Path::new("/etc/passwd"), "begin"), Err(FunctionError::NotElf(_))));
    }
}
