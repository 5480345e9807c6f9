//! Lookup of hooked functions by name in an object.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use memtrace_model::{ALLOCATORS, FUNCTIONS, Function, Naming};

use super::rust_methods;
use crate::elf::{Elf, ElfError, Source, Symbol, dynamic_symbols, symbol_table};

/// Maximum number of hooked symbols of an object. glibc has a few for each function.
const MAX_HOOKED: usize = 4096;

/// A symbol of a hooked function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HookedSymbol {
    pub(super) function: &'static Function,
    pub(super) prefix: String,
    pub(super) symbol: Symbol,
}

/// Names that the user adds to the table for one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UserNames {
    /// Prefixes of standard names.
    pub(super) prefixes: Vec<String>,
    /// Functions by their full names.
    pub(super) functions: Vec<&'static Function>,
}

/// Symbols for finding and identifying an allocator.
#[derive(Debug, Default)]
pub(super) struct ObjectSymbols {
    /// Symbols of hooked functions, ordered as in the table of functions. Functions that the user has named come
    /// last.
    pub(super) hooked: Vec<HookedSymbol>,
    /// Entries of the symbol table that identify a known allocator.
    pub(super) markers: HashSet<String>,
    /// Symbols of methods of Rust's allocators with arguments at unknown places.
    pub(super) unknown_methods: Vec<String>,
    /// False if the object is stripped, so that only its dynamic symbols are known.
    pub(super) has_symbol_table: bool,
}

/// Rows of the table of functions by name with prefix: index of the row, function, and prefix.
type Names = HashMap<String, Vec<(usize, &'static Function, String)>>;

/// Returns the names of all functions in the table.
fn table() -> &'static Names {
    static NAMES: OnceLock<Names> = OnceLock::new();
    NAMES.get_or_init(|| {
        let mut names = Names::new();
        for (row, function) in FUNCTIONS.iter().enumerate() {
            for prefix in function.naming.prefixes() {
                add(&mut names, row, function, prefix);
            }
        }
        names
    })
}

fn add(names: &mut Names, row: usize, function: &'static Function, prefix: &str) {
    names.entry(format!("{prefix}{}", function.name)).or_default().push((row, function, prefix.to_owned()));
}

fn names_of_user(user: &UserNames) -> Names {
    let mut names = Names::new();
    let is_known = |prefix: &&String| Naming::Standard.prefixes().any(|other| other == prefix.as_str());
    for prefix in user.prefixes.iter().filter(|prefix| !is_known(prefix)) {
        for (row, function) in FUNCTIONS.iter().enumerate().filter(|row| row.1.naming.accepts_user_prefix()) {
            add(&mut names, row, function, prefix);
        }
    }
    for function in &user.functions {
        add(&mut names, FUNCTIONS.len(), function, "");
    }
    names
}

/// Returns true if the table has a function of this name.
pub(super) fn is_hooked(name: &str) -> bool {
    table().contains_key(name)
}

fn is_marker(name: &str) -> bool {
    ALLOCATORS.iter().any(|allocator| allocator.linked.contains(&name))
}

/// Returns the plain name, such as `__rust_alloc`, of a symbol that is mangled as a function of the crate `__rustc`
/// (rust-lang RFC 2603, "Rust Symbol Mangling (v0)"). Returns every other symbol unchanged.
fn without_rustc_path(symbol: &[u8]) -> &[u8] {
    const CRATE: &[u8] = b"_7___rustc";
    let inside = symbol.starts_with(b"_RNvC").then(|| symbol.windows(CRATE.len()).position(|window| window == CRATE));
    let Some(at) = inside.flatten() else { return symbol };
    let rest = &symbol[at + CRATE.len()..];
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // An underscore separates the length from a name that begins with an underscore.
    rest[digits..].strip_prefix(b"_").unwrap_or(symbol)
}

/// Returns the name of a symbol for reports, without its version. C++ operators are demangled.
pub(super) fn display_name(symbol: &str) -> String {
    let unversioned = symbol.split('@').next().unwrap_or_default();
    if let Some(method) = rust_methods::display_name(unversioned) {
        return method;
    }
    let name = String::from_utf8_lossy(without_rustc_path(unversioned.as_bytes())).into_owned();
    let row = FUNCTIONS.iter().find(|function| function.naming == Naming::Cpp && function.name == name);
    row.map_or(name, |function| function.display_name().to_owned())
}

/// Finds every hooked function that the object defines, in every version.
pub(super) fn find<S: Source>(elf: &Elf<S>, user: &UserNames) -> Result<ObjectSymbols, ElfError> {
    let user_names = names_of_user(user);
    let rows = |name: &str| table().get(name).into_iter().chain(user_names.get(name)).flatten();
    let mut hooked: Vec<(usize, HookedSymbol)> = Vec::new();
    let mut symbols = ObjectSymbols::default();
    let table_names = if exports_allocator(elf)? { table().keys().collect() } else { Vec::new() };
    for name in table_names.into_iter().chain(user_names.keys()) {
        for symbol in dynamic_symbols::definitions(elf, name)? {
            for (row, function, prefix) in rows(name) {
                let new = HookedSymbol { function, prefix: prefix.clone(), symbol: symbol.clone() };
                if !hooked.iter().any(|(_, other)| *other == new) {
                    hooked.push((*row, new));
                }
            }
        }
    }
    let is_relevant = |name: &[u8]| {
        let plain = std::str::from_utf8(without_rustc_path(name));
        rust_methods::may_be_method(name) || plain.is_ok_and(|name| rows(name).next().is_some() || is_marker(name))
    };
    let all = symbol_table::find_functions(elf, is_relevant)?;
    symbols.has_symbol_table = all.is_some();
    let mut methods = Vec::new();
    for (name, symbol) in all.unwrap_or_default() {
        if rust_methods::may_be_method(name.as_bytes()) && rows(&name).next().is_none() {
            methods.push(symbol);
            continue;
        }
        let name = String::from_utf8_lossy(without_rustc_path(name.as_bytes())).into_owned();
        for (row, function, prefix) in rows(&name) {
            let is_same = |other: &HookedSymbol| {
                other.symbol.virt == symbol.virt && other.function == *function && other.prefix == *prefix
            };
            if !hooked.iter().any(|(_, other)| is_same(other)) {
                if hooked.len() >= MAX_HOOKED {
                    return Err(ElfError::Malformed("the functions of an allocator are defined too often"));
                }
                hooked.push((*row, HookedSymbol { function, prefix: prefix.clone(), symbol: symbol.clone() }));
            }
        }
        if is_marker(&name) {
            symbols.markers.insert(name);
        }
    }
    let (methods, unknown_methods) = rust_methods::choose(elf, methods);
    symbols.unknown_methods = unknown_methods;
    let method = |(function, symbol)| (FUNCTIONS.len(), HookedSymbol { function, prefix: String::new(), symbol });
    hooked.extend(methods.into_iter().map(method));
    let order = |hooked: &HookedSymbol| {
        Naming::Standard.prefixes().position(|prefix| prefix == hooked.prefix).unwrap_or(usize::MAX)
    };
    hooked.sort_by(|(row, hooked), (other_row, other)| {
        let by_symbol = || hooked.symbol.full_name.cmp(&other.symbol.full_name);
        row.cmp(other_row).then(order(hooked).cmp(&order(other))).then_with(by_symbol)
    });
    symbols.hooked = hooked.into_iter().map(|(_, hooked)| hooked).collect();
    Ok(symbols)
}

/// Returns true if the object exports a malloc or a basic C++ operator. The dynamic symbols of other objects, which
/// are the majority, are not searched for the names of the table.
fn exports_allocator<S: Source>(elf: &Elf<S>) -> Result<bool, ElfError> {
    for prefix in Naming::Standard.prefixes() {
        if dynamic_symbols::defines(elf, &format!("{prefix}malloc"))? {
            return Ok(true);
        }
    }
    Ok(dynamic_symbols::defines(elf, "_Znwm")? || dynamic_symbols::defines(elf, "_ZdlPv")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_functions_are_found_by_plain_and_mangled_names() {
        assert_eq!(display_name("__rust_alloc"), "__rust_alloc");
        assert_eq!(display_name("_RNvCs5Oo1jgIqGRs_7___rustc12___rust_alloc"), "__rust_alloc");
        assert_eq!(display_name("_RNvCs5Oo1jgIqGRs_7___rustc19___rust_alloc_zeroed"), "__rust_alloc_zeroed");
        assert_eq!(display_name("_RNvCs5Oo1jgIqGRs_7___rustc"), "_RNvCs5Oo1jgIqGRs_7___rustc");
    }

    #[test]
    fn display_names_show_operators_without_versions() {
        assert_eq!(display_name("_ZdaPvmSt11align_val_t@@Base"), "operator delete[](block, size, align)");
        assert_eq!(display_name("_rjem_malloc"), "_rjem_malloc");
    }

    #[test]
    fn prefixes_apply_only_to_functions_of_their_allocator() {
        assert!(
            ["malloc", "_rjem_sdallocx", "je_mallocx", "mi_heap_malloc", "tc_free", "_Znwm"].into_iter().all(is_hooked)
        );
        assert!(!["tc_mallocx", "mi_sdallocx", "je__Znwm", "heap_malloc"].into_iter().any(is_hooked));
    }
}
