//! Where an allocator's functions lie.

use std::fmt;
use std::path::Path;

use super::names;
use crate::elf::{Symbol, SymbolKind};
use crate::model::{Bytes, FileOffset, Function, Signature, VirtOffset};
use crate::probe_site::Site;

/// A function to probe: one address, by whatever names it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFunction {
    /// The rows of the table of functions that lie here, in their order: at least one, all called the same way.
    pub functions: Vec<&'static Function>,
    /// The symbols that name the address, with their versions: `malloc@@GLIBC_2.2.5`.
    pub symbols: Vec<String>,
    /// Where its first instruction lies in the file.
    pub file_offset: FileOffset,
    /// Where its first instruction lies as the object's own symbols count.
    pub virt: VirtOffset,
    /// Its length; 0 where the symbol does not say.
    pub size: Bytes,
    /// How it is called.
    pub signature: Signature,
    /// Where the probe goes.
    pub site: Site,
    /// Where its return instructions lie in the file, where they must be probed instead of its return.
    pub return_sites: Vec<FileOffset>,
}

impl FoundFunction {
    /// One line about the probe, for people: the function, the object and the function's address in it, the probe's
    /// distance from there, its instruction, and whether it is emulated or stepped.
    ///
    /// `object` is the object's path. [`Site::reason`] tells why.
    #[must_use]
    pub fn summary(&self, object: &Path) -> String {
        let object = object.file_name().unwrap_or(object.as_os_str()).to_string_lossy();
        let returns = match self.return_sites.len() {
            0 => String::new(),
            count => format!(", and at each of its {count} returns"),
        };
        format!("{}  {object}+{:#x}  {}{returns}", self.names()[0], self.virt.0, self.site)
    }

    /// Its names for people, without versions: C++'s operators as C++ writes them.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for symbol in &self.symbols {
            let name = names::display_name(symbol);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The function by which the probe goes: the first of those that lie here.
    #[must_use]
    pub fn function(&self) -> &'static Function {
        self.functions[0]
    }
}

/// A symbol that cannot be probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The symbol, with its version.
    pub symbol: String,
    /// Why.
    pub reason: SkipReason,
}

/// Why a symbol cannot be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// It is an indirect function: its code only chooses the one that is called.
    Indirect,
    /// It is data.
    NotAFunction,
    /// Its address is not in the file's code.
    NotCode,
    /// A function that is called another way lies at the same address.
    Ambiguous,
    /// It passes every call on to another hooked function, where it is seen.
    Forwards,
    /// It may be left by an exception, and not all of its return instructions are known.
    Throws,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Indirect => "an indirect function, whose code only chooses the one that is called",
            Self::NotAFunction => "not a function",
            Self::NotCode => "outside of the file's code",
            Self::Ambiguous => "at the same address as a function that is called another way",
            Self::Forwards => "it only passes its calls on to a function that is followed",
            Self::Throws => "it may throw, and where it returns is not known: what it hands out is missed",
        })
    }
}

/// Where a function lies: one address, by whatever names it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) functions: Vec<&'static Function>,
    pub(super) symbols: Vec<String>,
    pub(super) file_offset: FileOffset,
    pub(super) virt: VirtOffset,
    pub(super) size: Bytes,
    pub(super) signature: Signature,
    /// The return instructions, as the object's own symbols count, where they are to be probed.
    pub(super) returns: Vec<(VirtOffset, FileOffset)>,
}

impl Place {
    pub(super) fn probed_at(self, site: Site) -> FoundFunction {
        let Self { functions, symbols, file_offset, virt, size, signature, returns } = self;
        let return_sites = returns.into_iter().map(|(_, offset)| offset).collect();
        FoundFunction { functions, symbols, file_offset, virt, size, signature, site, return_sites }
    }

    /// What is said of it where it is not probed.
    pub(super) fn skipped(self, reason: SkipReason) -> impl Iterator<Item = Skipped> {
        self.symbols.into_iter().map(move |symbol| Skipped { symbol, reason })
    }
}

/// Joins the names of one address and sorts out what cannot be probed.
pub(super) fn group_by_address(
    named: Vec<(&'static Function, Symbol)>,
    code_offset: impl Fn(VirtOffset, u64) -> Option<FileOffset>,
) -> (Vec<Place>, Vec<Skipped>) {
    let mut found: Vec<Place> = Vec::new();
    let mut skipped = Vec::new();
    for (function, symbol) in named {
        let file_offset = match symbol.kind {
            SymbolKind::Function => code_offset(symbol.virt, symbol.size).ok_or(SkipReason::NotCode),
            SymbolKind::Indirect => Err(SkipReason::Indirect),
            SymbolKind::Other => Err(SkipReason::NotAFunction),
        };
        match file_offset {
            Err(reason) => skipped.push(Skipped { symbol: symbol.full_name, reason }),
            Ok(file_offset) => join(&mut found, function, symbol, file_offset),
        }
    }
    let mut places = Vec::new();
    for mut place in found {
        let signatures = place.functions.iter().map(|function| function.signature);
        match signatures.map(Some).reduce(|one, other| one?.merged(other?)).flatten() {
            Some(signature) => {
                place.signature = signature;
                places.push(place);
            }
            None => skipped.extend(place.skipped(SkipReason::Ambiguous)),
        }
    }
    (places, skipped)
}

/// Has the returns of frees followed, of an allocator that may be a wrapper around another.
pub(super) fn follow_returns_of_frees(places: &mut [Place]) {
    for place in places {
        if let Signature::Free { block } = place.signature {
            place.signature = Signature::FreeAround { block };
        }
    }
}

fn join(found: &mut Vec<Place>, function: &'static Function, symbol: Symbol, file_offset: FileOffset) {
    // By the place in the file: it is where the probe goes, and two segments may show it at two addresses.
    if let Some(known) = found.iter_mut().find(|known| known.file_offset == file_offset) {
        if !known.functions.contains(&function) {
            known.functions.push(function);
        }
        known.symbols.push(symbol.full_name);
        known.size = known.size.max(Bytes(symbol.size));
    } else {
        found.push(Place {
            functions: vec![function],
            symbols: vec![symbol.full_name],
            file_offset,
            virt: symbol.virt,
            size: Bytes(symbol.size),
            signature: function.signature,
            returns: Vec::new(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FUNCTIONS;

    fn row(name: &str) -> &'static Function {
        FUNCTIONS.iter().find(|function| function.name == name).unwrap()
    }

    fn symbol(name: &str, kind: SymbolKind, virt: u64) -> (&'static Function, Symbol) {
        (row(name), Symbol { full_name: name.to_owned(), kind, virt: VirtOffset(virt), size: 16 })
    }

    fn arranged(named: Vec<(&'static Function, Symbol)>) -> (Vec<Place>, Vec<Skipped>) {
        group_by_address(named, |virt, _| virt.0.checked_sub(0x1000).map(FileOffset))
    }

    #[test]
    fn two_names_of_one_address_share_a_probe() {
        let both = vec![
            symbol("aligned_alloc", SymbolKind::Function, 0x2000),
            symbol("memalign", SymbolKind::Function, 0x2000),
        ];
        let (found, skipped) = arranged(both);
        assert_eq!(skipped, []);
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(only.functions[0].name, "aligned_alloc");
        assert_eq!(only.functions, [row("aligned_alloc"), row("memalign")]);
        assert_eq!(only.symbols, ["aligned_alloc", "memalign"]);
        assert_eq!((only.file_offset, only.virt), (FileOffset(0x1000), VirtOffset(0x2000)));
    }

    #[test]
    fn functions_called_differently_at_one_address_are_not_probed_at_all() {
        let named = vec![
            symbol("malloc", SymbolKind::Function, 0x2000),
            symbol("memalign", SymbolKind::Function, 0x2000),
            symbol("free", SymbolKind::Function, 0x3000),
        ];
        let (found, skipped) = arranged(named);
        assert_eq!(found.iter().map(|found| found.functions[0].name).collect::<Vec<_>>(), ["free"]);
        let expected = |name: &str| Skipped { symbol: name.to_owned(), reason: SkipReason::Ambiguous };
        assert_eq!(skipped, [expected("malloc"), expected("memalign")]);
    }

    #[test]
    fn what_is_no_code_is_skipped_with_its_reason() {
        let named = vec![
            symbol("malloc", SymbolKind::Indirect, 0x2000),
            symbol("calloc", SymbolKind::Other, 0x2000),
            symbol("free", SymbolKind::Function, 0x10),
        ];
        let (found, skipped) = arranged(named);
        assert_eq!(found, []);
        let reasons: Vec<_> = skipped.iter().map(|skipped| (skipped.symbol.as_str(), skipped.reason)).collect();
        let expected =
            [("malloc", SkipReason::Indirect), ("calloc", SkipReason::NotAFunction), ("free", SkipReason::NotCode)];
        assert_eq!(reasons, expected);
    }
}
