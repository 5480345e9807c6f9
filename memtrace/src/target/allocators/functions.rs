//! Where an allocator's functions lie.

use std::fmt;
use std::path::Path;

use super::forwarders;
use crate::model::{Bytes, FUNCTIONS, FileOffset, Function, Shape, VirtOffset};
use crate::target::elf::{Elf, ElfError, Source, Symbol, SymbolKind};
use crate::target::site::Site;

/// A function to probe: one address, by whatever names it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFunction {
    /// The rows of [`FUNCTIONS`] that lie here, in their order: at least one, all called the same way.
    pub functions: Vec<&'static Function>,
    /// The symbols that name the address, with their versions: `malloc@@GLIBC_2.2.5`.
    pub symbols: Vec<String>,
    /// Where its first instruction lies in the file.
    pub file_offset: FileOffset,
    /// Where its first instruction lies as the object's own symbols count.
    pub virt: VirtOffset,
    /// Its length; 0 where the symbol does not say.
    pub size: Bytes,
    /// Where the probe goes.
    pub site: Site,
}

impl FoundFunction {
    /// One line about the probe, for people: the function, the object and the function's address in it, the probe's
    /// distance from there, its instruction, and whether it is emulated or stepped.
    ///
    /// `object` is the object's path. [`Site::reason`] tells why.
    #[must_use]
    pub fn summary(&self, object: &Path) -> String {
        let object = object.file_name().unwrap_or(object.as_os_str()).to_string_lossy();
        format!("{}  {object}+{:#x}  {}", self.function().name, self.virt.0, self.site)
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
    /// It does nothing but jump to another hooked function, where the call is seen.
    Forwards,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Indirect => "an indirect function, whose code only chooses the one that is called",
            Self::NotAFunction => "not a function",
            Self::NotCode => "outside of the file's code",
            Self::Ambiguous => "at the same address as a function that is called another way",
            Self::Forwards => "it only passes its calls on to a function that is followed",
        })
    }
}

/// Finds every row of [`FUNCTIONS`] that the object defines, in every version.
pub(super) fn find<S: Source>(elf: &Elf<S>) -> Result<(Vec<Place>, Vec<Skipped>), ElfError> {
    let mut named = Vec::new();
    for function in FUNCTIONS {
        named.extend(elf.definitions(function.name)?.into_iter().map(|symbol| (function, symbol)));
    }
    let (mut places, mut skipped) = arrange(named, |virt, size| elf.code_offset(virt, size));
    skipped.extend(forwarders::take(elf, &mut places));
    Ok((places, skipped))
}

/// Where a function lies: one address, by whatever names it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) functions: Vec<&'static Function>,
    pub(super) symbols: Vec<String>,
    pub(super) file_offset: FileOffset,
    pub(super) virt: VirtOffset,
    pub(super) size: Bytes,
}

impl Place {
    /// How the function is called.
    pub(super) fn shape(&self) -> Shape {
        self.functions[0].shape
    }

    pub(super) fn probed_at(self, site: Site) -> FoundFunction {
        let Self { functions, symbols, file_offset, virt, size } = self;
        FoundFunction { functions, symbols, file_offset, virt, size, site }
    }
}

/// Joins the names of one address and sorts out what cannot be probed.
fn arrange(
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
    let ambiguous = |found: &Place| found.functions.iter().any(|other| other.shape != found.functions[0].shape);
    for found in found.iter().filter(|found| ambiguous(found)) {
        let skip = |symbol: &String| Skipped { symbol: symbol.clone(), reason: SkipReason::Ambiguous };
        skipped.extend(found.symbols.iter().map(skip));
    }
    found.retain(|found| !ambiguous(found));
    (found, skipped)
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
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> &'static Function {
        FUNCTIONS.iter().find(|function| function.name == name).unwrap()
    }

    fn symbol(name: &str, kind: SymbolKind, virt: u64) -> (&'static Function, Symbol) {
        (row(name), Symbol { full_name: name.to_owned(), kind, virt: VirtOffset(virt), size: 16 })
    }

    fn arranged(named: Vec<(&'static Function, Symbol)>) -> (Vec<Place>, Vec<Skipped>) {
        arrange(named, |virt, _| virt.0.checked_sub(0x1000).map(FileOffset))
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
