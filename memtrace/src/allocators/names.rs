//! By which names the hooked functions are found in an object.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use crate::elf::{Elf, ElfError, Source, Symbol};
use crate::model::{FUNCTIONS, Function, Naming};

/// A function by one of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) function: &'static Function,
    pub(super) prefix: String,
    pub(super) symbol: Symbol,
}

/// Functions that tell whose allocator it is that is linked in.
const MARKERS: &[&str] =
    &["_int_malloc", "__malloc_atfork", "__malloc_donate", "__simple_malloc", "TCMallocInternalMalloc"];

/// What is looked for in one object, beside what is looked for in each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct More {
    /// Prefixes of standard names.
    pub(super) prefixes: Vec<String>,
    /// Functions by their full names.
    pub(super) hooks: Vec<&'static Function>,
}

/// What was found in an object.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// In the order of the table; what users named comes last.
    pub(super) named: Vec<Named>,
    pub(super) markers: HashSet<String>,
    /// Whether there is a table of all symbols.
    pub(super) has_all: bool,
}

type Names = HashMap<String, Vec<(usize, &'static Function, String)>>;

/// Every name of every function of the table.
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

fn added(more: &More) -> Names {
    let mut names = Names::new();
    let prefixable = |function: &&Function| matches!(function.naming, Naming::Standard | Naming::Jemalloc);
    for prefix in more.prefixes.iter().filter(|prefix| !Naming::Standard.prefixes().contains(&prefix.as_str())) {
        for (row, function) in FUNCTIONS.iter().enumerate().filter(|(_, function)| prefixable(function)) {
            add(&mut names, row, function, prefix);
        }
    }
    for function in &more.hooks {
        add(&mut names, FUNCTIONS.len(), function, "");
    }
    names
}

/// Whether something of this name is hooked, wherever it is defined.
pub(super) fn is_hooked(name: &str) -> bool {
    table().contains_key(name)
}

/// The name of `__rust_alloc` and its like: as it is, or as a function of the crate `__rustc` (rust-lang RFC 2603,
/// "Rust Symbol Mangling (v0)").
fn plain(symbol: &[u8]) -> &[u8] {
    const CRATE: &[u8] = b"_7___rustc";
    let inside = symbol.starts_with(b"_RNvC").then(|| symbol.windows(CRATE.len()).position(|window| window == CRATE));
    let Some(at) = inside.flatten() else { return symbol };
    let rest = &symbol[at + CRATE.len()..];
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // A name that begins with an underscore is told from its length by another one.
    rest[digits..].strip_prefix(b"_").unwrap_or(symbol)
}

/// A symbol's name for people.
pub(super) fn shown(symbol: &str) -> String {
    let bare = symbol.split('@').next().unwrap_or_default();
    let plain = String::from_utf8_lossy(plain(bare.as_bytes())).into_owned();
    let row = FUNCTIONS.iter().find(|function| function.naming == Naming::Cpp && function.name == plain);
    row.map_or(plain, |function| function.display_name().to_owned())
}

/// Finds every hooked function that the object defines, in every version.
pub(super) fn find<S: Source>(elf: &Elf<S>, more: &More) -> Result<Listed, ElfError> {
    let names = added(more);
    let meant = |name: &str| table().get(name).into_iter().chain(names.get(name)).flatten();
    let mut found: Vec<(usize, Named)> = Vec::new();
    let mut listed = Listed::default();
    let asked = if is_worth_asking(elf)? { table().keys().collect() } else { Vec::new() };
    for name in asked.into_iter().chain(names.keys()) {
        for symbol in elf.definitions(name)? {
            for (row, function, prefix) in meant(name) {
                let named = Named { function, prefix: prefix.clone(), symbol: symbol.clone() };
                if !found.iter().any(|(_, known)| *known == named) {
                    found.push((*row, named));
                }
            }
        }
    }
    let wanted = |name: &[u8]| {
        std::str::from_utf8(plain(name)).is_ok_and(|name| meant(name).next().is_some() || MARKERS.contains(&name))
    };
    let all = elf.listed(wanted)?;
    listed.has_all = all.is_some();
    for (name, symbol) in all.unwrap_or_default() {
        let name = String::from_utf8_lossy(plain(name.as_bytes())).into_owned();
        for (row, function, prefix) in meant(&name) {
            let known = |known: &Named| {
                known.symbol.virt == symbol.virt && known.function == *function && known.prefix == *prefix
            };
            if !found.iter().any(|(_, named)| known(named)) {
                found.push((*row, Named { function, prefix: prefix.clone(), symbol: symbol.clone() }));
            }
        }
        if MARKERS.contains(&name.as_str()) {
            listed.markers.insert(name);
        }
    }
    let prefixes = Naming::Standard.prefixes();
    let order = |named: &Named| prefixes.iter().position(|prefix| *prefix == named.prefix).unwrap_or(usize::MAX);
    found.sort_by(|(row, named), (other_row, other)| {
        let by_symbol = || named.symbol.full_name.cmp(&other.symbol.full_name);
        row.cmp(other_row).then(order(named).cmp(&order(other))).then_with(by_symbol)
    });
    listed.named = found.into_iter().map(|(_, named)| named).collect();
    Ok(listed)
}

/// Whether the object defines for others what every allocator has. Most objects do not, and are not asked for the rest.
fn is_worth_asking<S: Source>(elf: &Elf<S>) -> Result<bool, ElfError> {
    for prefix in Naming::Standard.prefixes() {
        if elf.defines(&format!("{prefix}malloc"))? {
            return Ok(true);
        }
    }
    Ok(elf.defines("_Znwm")? || elf.defines("_ZdlPv")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rusts_functions_are_known_by_both_of_their_names() {
        assert_eq!(shown("__rust_alloc"), "__rust_alloc");
        assert_eq!(shown("_RNvCs5Oo1jgIqGRs_7___rustc12___rust_alloc"), "__rust_alloc");
        assert_eq!(shown("_RNvCs5Oo1jgIqGRs_7___rustc19___rust_alloc_zeroed"), "__rust_alloc_zeroed");
        assert_eq!(shown("_RNvCs5Oo1jgIqGRs_7___rustc"), "_RNvCs5Oo1jgIqGRs_7___rustc");
    }

    #[test]
    fn people_read_operators_and_no_versions() {
        assert_eq!(shown("_ZdaPvmSt11align_val_t@@Base"), "operator delete[](block, size, align)");
        assert_eq!(shown("_rjem_malloc"), "_rjem_malloc");
    }

    #[test]
    fn every_prefix_makes_names_of_its_own() {
        assert!(
            ["malloc", "_rjem_sdallocx", "je_mallocx", "mi_heap_malloc", "tc_free", "_Znwm"].into_iter().all(is_hooked)
        );
        assert!(!["tc_mallocx", "mi_sdallocx", "je__Znwm", "heap_malloc"].into_iter().any(is_hooked));
    }
}
