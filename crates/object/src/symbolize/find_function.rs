//! Look-up of functions by a name.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

use memtrace_model::{Bytes, FileOffset, VirtOffset};

use super::demangle::demangle;
use super::function_name::FunctionName;
use crate::elf::{Elf, ElfError, Source, Symbol, SymbolKind, dynamic_symbols, symbol_table};

/// Maximum number of functions that a part of a name or a pattern may match.
const MAX_FUNCTIONS: usize = 64;

/// Maximum number of matching symbols that are kept. Several symbols can have the same address.
const MAX_SYMBOLS: usize = 1024;

/// Maximum number of similar names.
const MAX_SIMILAR: usize = 3;

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
    /// No symbol has the name, ends with it or matches it.
    #[error("its symbols have no such function")]
    Unmatched {
        /// Similar names, the most similar first.
        similar: Vec<String>,
    },
    /// Too many functions match a part of a name or a pattern.
    #[error("{0} functions match, and at most {max} can be traced", max = MAX_FUNCTIONS)]
    TooMany(usize),
    /// The compiler has copied the function and may have changed the order of its arguments.
    #[error("the compiler has copied it with other arguments, so its calls cannot have a label")]
    Cloned,
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

/// A function with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFunction {
    /// Name as the user has written it, or the complete name of a function that matches a part of a name or a pattern.
    pub name: String,
    /// True if the compiler has copied the function, as in `f.constprop.0`. Its arguments can differ from the arguments
    /// of the function with the name.
    pub is_clone: bool,
    /// Location of the function.
    pub place: FunctionPlace,
}

/// Finds a function in the file `source`. `name` is the name of its symbol, or the demangled name.
///
/// # Errors
///
/// The reason that the function is not found.
pub fn find_function<S: Source>(source: S, name: &str) -> Result<FunctionPlace, FunctionError> {
    let elf = Elf::parse(source)?;
    match find_exported(&elf, name)? {
        Some(place) => Ok(place),
        None => place_of(&elf, symbols_named(&elf, name)?.first().ok_or(FunctionError::Missing)?),
    }
}

/// Finds all functions in the file `source` that have a name or match it: the functions with the symbol or the demangled name
/// `name`, else the functions whose names end with the components of `name`, else, if `name` contains `*`, the functions that it
/// matches. Functions are ordered by address.
///
/// # Errors
///
/// The reason that no function is found, or that too many match.
pub fn find_functions<S: Source>(source: S, name: &str) -> Result<Vec<NamedFunction>, FunctionError> {
    let elf = Elf::parse(source)?;
    let exported = find_exported(&elf, name)?;
    let symbols = symbols_named(&elf, name)?;
    let first = match (exported, symbols.first()) {
        (Some(place), _) => place,
        (None, Some(symbol)) => place_of(&elf, symbol)?,
        (None, None) => return find_matching(&elf, name),
    };
    // Functions that are local to their source files, and the variants of a destructor, have the same name.
    let mut places = BTreeMap::from([(first.virt, first)]);
    for place in symbols.iter().filter_map(|symbol| place_of(&elf, symbol).ok()) {
        places.entry(place.virt).or_insert(place);
    }
    if places.len() > MAX_FUNCTIONS {
        return Err(FunctionError::TooMany(places.len()));
    }
    let named = |place| NamedFunction { name: name.to_owned(), is_clone: false, place };
    Ok(places.into_values().map(named).collect())
}

/// Finds the function with this name in the hash table of the dynamic symbols.
fn find_exported<S: Source>(elf: &Elf<S>, name: &str) -> Result<Option<FunctionPlace>, FunctionError> {
    let definitions = dynamic_symbols::definitions(elf, name)?;
    let function = definitions.iter().find(|symbol| symbol.kind != SymbolKind::Other);
    function.map(|symbol| place_of(elf, symbol)).transpose()
}

/// Returns the symbols of all functions with this name, symbols of the symbol table first.
fn symbols_named<S: Source>(elf: &Elf<S>, name: &str) -> Result<Vec<Symbol>, ElfError> {
    let has_name = |symbol: &[u8]| has_name(symbol, name);
    let all = symbol_table::find_functions(elf, has_name)?.into_iter().flatten();
    let dynamic = symbol_table::find_dynamic_functions(elf, has_name)?.into_iter().flatten();
    Ok(all.chain(dynamic).map(|(_, symbol)| symbol).collect())
}

/// Returns the location of the function with this symbol.
fn place_of<S: Source>(elf: &Elf<S>, symbol: &Symbol) -> Result<FunctionPlace, FunctionError> {
    let &Symbol { kind, virt, size, .. } = symbol;
    if kind == SymbolKind::Indirect {
        return Err(FunctionError::Indirect);
    }
    let offset = elf.code_offset(virt, size).ok_or(FunctionError::NoCode)?;
    Ok(FunctionPlace { virt, size: Bytes(size), offset })
}

/// Finds the functions whose names end with `wanted`. If there are none and `wanted` contains `*`, finds the functions
/// that match it.
fn find_matching<S: Source>(elf: &Elf<S>, wanted: &str) -> Result<Vec<NamedFunction>, FunctionError> {
    let matching = Cell::new(0);
    let is_kept = |symbol: &[u8]| {
        let name = std::str::from_utf8(symbol).ok().and_then(FunctionName::parse);
        let is_match = |name: FunctionName<'_>| name.ends_with(wanted) || wanted.contains('*') && name.matches(wanted);
        if !name.is_some_and(is_match) {
            return false;
        }
        matching.set(matching.get() + 1);
        matching.get() <= MAX_SYMBOLS
    };
    // The symbol table has the dynamic symbols too.
    let mut symbols = match symbol_table::find_functions(elf, is_kept)? {
        Some(symbols) => symbols,
        None => symbol_table::find_dynamic_functions(elf, is_kept)?.unwrap_or_default(),
    };
    if symbols.is_empty() {
        return Err(FunctionError::Unmatched { similar: find_similar(elf, wanted)? });
    }
    // The asterisk may belong to a pointer type, as in `handle(char*)`.
    let is_end = |symbol: &str| FunctionName::parse(symbol).is_some_and(|name| name.ends_with(wanted));
    if symbols.iter().any(|(symbol, _)| is_end(symbol)) {
        symbols.retain(|(symbol, _)| is_end(symbol));
    }
    let mut functions = BTreeMap::new();
    let mut reason = FunctionError::NoCode;
    for (name, symbol) in symbols {
        match place_of(elf, &symbol) {
            Ok(place) => {
                let is_clone = [".constprop.", ".isra."].iter().any(|clone| name.contains(clone));
                let function = NamedFunction { name: demangle(&name).into_owned(), is_clone, place };
                functions.entry(place.virt).or_insert(function);
            }
            Err(FunctionError::Indirect) => reason = FunctionError::Indirect,
            Err(_) => {}
        }
    }
    if functions.is_empty() {
        return Err(reason);
    }
    let count = if matching.get() > MAX_SYMBOLS { matching.get() } else { functions.len() };
    if count > MAX_FUNCTIONS { Err(FunctionError::TooMany(count)) } else { Ok(functions.into_values().collect()) }
}

/// Returns the qualified names of functions that are similar to `wanted`, the most similar first.
fn find_similar<S: Source>(elf: &Elf<S>, wanted: &str) -> Result<Vec<String>, FunctionError> {
    let wanted = wanted.split('(').next().unwrap_or_default().replace('*', "").to_ascii_lowercase();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    // Ordered by distance and length.
    let similar: RefCell<BTreeSet<(usize, usize, String)>> = RefCell::default();
    let consider = |symbol: &[u8]| {
        let name = std::str::from_utf8(symbol).ok().and_then(FunctionName::parse);
        if let Some((name, distance)) = name.and_then(|name| name.distance(&wanted).map(|distance| (name, distance))) {
            let name = name.qualified();
            let mut similar = similar.borrow_mut();
            similar.insert((distance, name.len(), name.to_owned()));
            if similar.len() > MAX_SIMILAR {
                similar.pop_last();
            }
        }
        false
    };
    if symbol_table::find_functions(elf, consider)?.is_none() {
        symbol_table::find_dynamic_functions(elf, consider)?;
    }
    Ok(similar.into_inner().into_iter().map(|(.., name)| name).collect())
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
    fn parts_of_names_match_all_functions_with_them() {
        fn names(object: &Path, name: &str) -> Vec<String> {
            let found = find_functions(&File::open(object).unwrap(), name).unwrap();
            let mut names: Vec<_> = found.into_iter().map(|function| function.name).collect();
            names.sort_unstable();
            names
        }

        let source = r#"
            namespace one { void handle(int) {} void reset() {} }
            namespace two { struct Server { void handle(int) const; void handle(long); }; }
            void two::Server::handle(int) const {}
            void two::Server::handle(long) {}
            template <class T> __attribute__((noinline)) void fill(T) { __asm__(""); }
            struct Text { virtual ~Text(); void set(char *); void set(char const *); };
            Text::~Text() {}
            void Text::set(char *) {}
            void Text::set(char const *) {}
            extern "C" void begin() {}
            int main() { fill(1); fill('a'); }"#;
        let scratch = Scratch::new();
        let program = scratch.compile("g++", "program", source, &[]);
        assert_eq!(names(&program, "begin"), ["begin"]);
        assert_eq!(names(&program, "one::reset"), ["one::reset"], "the user has written the whole name");
        assert_eq!(names(&program, "Text::~Text"), ["Text::~Text"; 2], "one of them frees the object");
        assert_eq!(names(&program, "set(char*)"), ["Text::set(char*)"], "no pattern");
        assert_eq!(names(&program, "Server::handle(int) const"), ["two::Server::handle(int) const"]);
        assert_eq!(names(&program, "Server::handle"), ["two::Server::handle(int) const", "two::Server::handle(long)"]);
        let all = ["one::handle(int)", "two::Server::handle(int) const", "two::Server::handle(long)"];
        assert_eq!(names(&program, "handle"), all);
        assert_eq!(names(&program, "*::handle"), all);
        assert_eq!(names(&program, "fill"), ["void fill<char>(char)", "void fill<int>(int)"]);
        assert_eq!(names(&program, "one::*"), ["one::handle(int)", "one::reset()"]);
    }

    #[test]
    fn too_many_and_similar_functions_are_stated() {
        use std::fmt::Write as _;

        let mut source = String::from("int main(void) { return 0; }\n");
        (0..70).for_each(|number| writeln!(source, "void handle_{number}(void) {{}}").unwrap());
        let scratch = Scratch::new();
        let program = scratch.compile("gcc", "program", &source, &[]);
        let find = |name: &str| find_functions(&File::open(&program).unwrap(), name);
        assert!(matches!(find("handle_*"), Err(FunctionError::TooMany(70))));
        assert_eq!(find("handle_6*").unwrap().len(), 11);
        let similar = |name: &str| match find(name) {
            Err(FunctionError::Unmatched { similar }) => similar,
            other => panic!("{other:?}"),
        };
        assert_eq!(similar("hanle_12"), ["handle_12", "handle_1", "handle_2"]);
        assert_eq!(similar("handle_7*x"), ["handle_7", "handle_0", "handle_1"]);
        assert_eq!(similar("unlike"), Vec::<String>::new());
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
