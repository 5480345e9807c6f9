//! Hooked functions of an allocator. Symbols with the same address are one function.

use std::fmt;
use std::path::Path;

use memtrace_model::{Bytes, FileOffset, Function, Signature, VirtOffset};

use super::function_results::FunctionResults;
use super::function_sites::FunctionSites;
use super::names;
use crate::elf::{Symbol, SymbolKind};
use crate::probe_site::{LoadedWord, ResultRefusal, Site};

/// A hooked function in an object, with all symbols at its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookedFunction {
    /// Rows of the table of functions that match the symbols: at least one. Their signatures are compatible.
    pub functions: Vec<&'static Function>,
    /// Symbols at this address, with their versions: `malloc@@GLIBC_2.2.5`.
    pub symbols: Vec<String>,
    /// File offset of the first instruction.
    pub file_offset: FileOffset,
    /// Address of the first instruction in the object, as its symbols state it.
    pub virt: VirtOffset,
    /// Length of the function; 0 if its symbols have none.
    pub size: Bytes,
    /// Calling signature.
    pub signature: Signature,
    /// Probe site for the entry.
    pub site: Site,
    /// File offsets of the return instructions, if they are probed instead of a uretprobe; else empty.
    pub return_sites: Vec<FileOffset>,
    /// For a function that frees a block: an instruction at which a register has the word in front of the block.
    pub loaded_word: Option<LoadedWord>,
    /// For a function that returns a block: its result sites, or the reason why there are none.
    pub results: Option<Result<FunctionResults, ResultRefusal>>,
}

impl HookedFunction {
    /// Returns a line about the probe: function, object and address, offset and instruction of the probe site, and
    /// its cost (emulated or stepped).
    ///
    /// `object` is the object's path. The line leaves out the reason for the choice, [`Site::reason`].
    #[must_use]
    pub fn summary(&self, object: &Path) -> String {
        let object = object.file_name().unwrap_or(object.as_os_str()).to_string_lossy();
        let returns = match self.return_sites.len() {
            0 => String::new(),
            count => format!(", and at each of its {count} returns"),
        };
        format!("{}  {object}+{:#x}  {}{returns}", self.names()[0], self.virt.0, self.site)
    }

    /// Returns the distinct names for reports. They have no versions, and C++ operators are demangled.
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

    /// Returns the first matching row of the table of functions. This row decides on the probe.
    #[must_use]
    pub fn function(&self) -> &'static Function {
        self.functions[0]
    }
}

/// A symbol that is not probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Name of the symbol with its version.
    pub symbol: String,
    /// Reason that the symbol is not probed.
    pub reason: SkipReason,
}

impl Skipped {
    /// Returns the name for reports, without a version. C++ operators and Rust methods are demangled.
    #[must_use]
    pub fn name(&self) -> String {
        names::display_name(&self.symbol)
    }
}

/// Reason that a symbol is not probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The symbol is the resolver of an indirect function. A resolver only chooses the function to call.
    Indirect,
    /// The symbol is no function.
    NotAFunction,
    /// The address of the symbol is outside of the file's code.
    NotCode,
    /// A function with an incompatible signature has the same address.
    Ambiguous,
    /// The function always calls another hooked function.
    Forwards,
    /// The places of the function's arguments are not known.
    UnknownArguments,
    /// The function may throw an exception, and not all of its return instructions are known.
    Throws,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Indirect => "an indirect function: its code only chooses the called function",
            Self::NotAFunction => "not a function",
            Self::NotCode => "outside of the file's code",
            Self::Ambiguous => "at the same address as a function with another signature",
            Self::Forwards => "it only calls another hooked function",
            Self::UnknownArguments => "the places of its arguments are not known: direct calls of it are missed",
            Self::Throws => "it may throw, and its return instructions are not known: its allocations are missed",
        })
    }
}

/// A hooked function before the choice of its probe sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) functions: Vec<&'static Function>,
    pub(super) symbols: Vec<String>,
    pub(super) file_offset: FileOffset,
    pub(super) virt: VirtOffset,
    pub(super) size: Bytes,
    pub(super) signature: Signature,
    /// Addresses and file offsets of the return instructions, if they are probed instead of a uretprobe; else empty.
    pub(super) returns: Vec<(VirtOffset, FileOffset)>,
}

impl Candidate {
    pub(super) fn with_sites(self, sites: FunctionSites) -> HookedFunction {
        let Self { functions, symbols, file_offset, virt, size, signature, returns } = self;
        let FunctionSites { entry: site, loaded_word, results } = sites;
        let return_sites = returns.into_iter().map(|(_, offset)| offset).collect();
        HookedFunction {
            functions,
            symbols,
            file_offset,
            virt,
            size,
            signature,
            site,
            return_sites,
            loaded_word,
            results,
        }
    }

    pub(super) fn skipped(self, reason: SkipReason) -> impl Iterator<Item = Skipped> {
        self.symbols.into_iter().map(move |symbol| Skipped { symbol, reason })
    }
}

/// Groups symbols by address. Returns the groups, and the symbols that cannot be probed.
pub(super) fn group_by_address(
    symbols: Vec<(&'static Function, Symbol)>,
    code_offset: impl Fn(VirtOffset, u64) -> Option<FileOffset>,
) -> (Vec<Candidate>, Vec<Skipped>) {
    let mut groups: Vec<Candidate> = Vec::new();
    let mut skipped = Vec::new();
    for (function, symbol) in symbols {
        let file_offset = match symbol.kind {
            SymbolKind::Function => code_offset(symbol.virt, symbol.size).ok_or(SkipReason::NotCode),
            SymbolKind::Indirect => Err(SkipReason::Indirect),
            SymbolKind::Other => Err(SkipReason::NotAFunction),
        };
        match file_offset {
            Err(reason) => skipped.push(Skipped { symbol: symbol.full_name, reason }),
            Ok(file_offset) => add_to_group(&mut groups, function, symbol, file_offset),
        }
    }
    let mut candidates = Vec::new();
    for mut candidate in groups {
        let signatures = candidate.functions.iter().map(|function| function.signature);
        match signatures.map(Some).reduce(|one, other| one?.merged(other?)).flatten() {
            Some(signature) => {
                candidate.signature = signature;
                candidates.push(candidate);
            }
            None => skipped.extend(candidate.skipped(SkipReason::Ambiguous)),
        }
    }
    (candidates, skipped)
}

/// Changes the signatures of freeing functions so that their returns are probed too. This is for an allocator that
/// may wrap another one.
pub(super) fn follow_returns_of_frees(candidates: &mut [Candidate]) {
    for candidate in candidates {
        if let Signature::Free { block } = candidate.signature {
            candidate.signature = Signature::FreeAround { block };
        }
    }
}

fn add_to_group(groups: &mut Vec<Candidate>, function: &'static Function, symbol: Symbol, file_offset: FileOffset) {
    // Functions are grouped by file offset, because a probe belongs to a file offset: two segments may map one offset
    // at two addresses.
    if let Some(group) = groups.iter_mut().find(|group| group.file_offset == file_offset) {
        if !group.functions.contains(&function) {
            group.functions.push(function);
        }
        group.symbols.push(symbol.full_name);
        group.size = group.size.max(Bytes(symbol.size));
    } else {
        groups.push(Candidate {
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
    use memtrace_model::FUNCTIONS;

    use super::*;

    fn row(name: &str) -> &'static Function {
        FUNCTIONS.iter().find(|function| function.name == name).unwrap()
    }

    fn symbol(name: &str, kind: SymbolKind, virt: u64) -> (&'static Function, Symbol) {
        (row(name), Symbol { full_name: name.to_owned(), kind, virt: VirtOffset(virt), size: 16 })
    }

    fn grouped(named: Vec<(&'static Function, Symbol)>) -> (Vec<Candidate>, Vec<Skipped>) {
        group_by_address(named, |virt, _| virt.0.checked_sub(0x1000).map(FileOffset))
    }

    #[test]
    fn symbols_with_one_address_share_a_probe() {
        let both = vec![
            symbol("aligned_alloc", SymbolKind::Function, 0x2000),
            symbol("memalign", SymbolKind::Function, 0x2000),
        ];
        let (candidates, skipped) = grouped(both);
        assert_eq!(skipped, []);
        let [only] = &candidates[..] else { panic!("{candidates:?}") };
        assert_eq!(only.functions[0].name, "aligned_alloc");
        assert_eq!(only.functions, [row("aligned_alloc"), row("memalign")]);
        assert_eq!(only.symbols, ["aligned_alloc", "memalign"]);
        assert_eq!((only.file_offset, only.virt), (FileOffset(0x1000), VirtOffset(0x2000)));
    }

    #[test]
    fn incompatible_signatures_at_one_address_are_skipped() {
        let named = vec![
            symbol("malloc", SymbolKind::Function, 0x2000),
            symbol("memalign", SymbolKind::Function, 0x2000),
            symbol("free", SymbolKind::Function, 0x3000),
        ];
        let (candidates, skipped) = grouped(named);
        assert_eq!(candidates.iter().map(|candidate| candidate.functions[0].name).collect::<Vec<_>>(), ["free"]);
        let expected = |name: &str| Skipped { symbol: name.to_owned(), reason: SkipReason::Ambiguous };
        assert_eq!(skipped, [expected("malloc"), expected("memalign")]);
    }

    #[test]
    fn symbols_outside_of_code_are_skipped() {
        let named = vec![
            symbol("malloc", SymbolKind::Indirect, 0x2000),
            symbol("calloc", SymbolKind::Other, 0x2000),
            symbol("free", SymbolKind::Function, 0x10),
        ];
        let (candidates, skipped) = grouped(named);
        assert_eq!(candidates, []);
        let reasons: Vec<_> = skipped.iter().map(|skipped| (skipped.symbol.as_str(), skipped.reason)).collect();
        let expected =
            [("malloc", SkipReason::Indirect), ("calloc", SkipReason::NotAFunction), ("free", SkipReason::NotCode)];
        assert_eq!(reasons, expected);
    }
}
