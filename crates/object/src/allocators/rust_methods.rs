//! Methods of Rust's `GlobalAlloc`. Optimized code calls them directly, not through `__rust_alloc`.
//!
//! A method gets the receiver, then the address of the block, then the layout. rustc passes a layout as two arguments, the
//! alignment first: it places the field with the most invalid values first (`Layout`, library/core/src/alloc/layout.rs). This
//! is no stable interface, and the compiler leaves out a receiver without content. So the compiler must have a version that
//! passes the alignment first, and the code of a method must prove the places of its arguments.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use memtrace_model::{Function, Naming, Signature};

use crate::elf::{Elf, Source, Symbol, SymbolKind, compiler};
use crate::probe_site::{ArgumentUse, Code, use_of};

/// Oldest minor version of rustc 1.x that is known to pass the alignment first. Older versions may pass it first too.
const OLDEST: u32 = 80;

/// Maximum length of an examined method in bytes.
const MAX_CODE: u64 = 65536;

/// Maximum number of examined methods. Programs have a few for each type.
const MOST: usize = 1024;

/// Maximum number of symbols that are demangled. Most symbols that contain the name of the trait are methods.
const MAX_SYMBOLS: usize = 4 * MOST;

/// Maximum length of a demangled name in bytes.
const MAX_NAME: usize = 1 << 14;

const TRAIT: &str = "core::alloc::global::GlobalAlloc";

/// A method of the trait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Alloc,
    AllocZeroed,
    Realloc,
    Dealloc,
}

const fn row(name: &'static str, signature: Signature) -> Function {
    Function { name, signature, required: false, naming: Naming::Rust, throws: false }
}

/// The methods with a receiver.
static WITH_RECEIVER: [Function; 4] = [
    row("GlobalAlloc::alloc", Signature::Alloc { size: 2 }),
    row("GlobalAlloc::alloc_zeroed", Signature::Alloc { size: 2 }),
    row("GlobalAlloc::realloc", Signature::Realloc { old: 1, size: 4 }),
    row("GlobalAlloc::dealloc", Signature::FreeAround { block: 1 }),
];

/// The methods without a receiver.
static WITHOUT_RECEIVER: [Function; 4] = [
    row("GlobalAlloc::alloc", Signature::Alloc { size: 1 }),
    row("GlobalAlloc::alloc_zeroed", Signature::Alloc { size: 1 }),
    row("GlobalAlloc::realloc", Signature::Realloc { old: 0, size: 3 }),
    row("GlobalAlloc::dealloc", Signature::FreeAround { block: 0 }),
];

/// Returns true for a row of a method.
pub(super) fn is_method(function: &Function) -> bool {
    WITH_RECEIVER.iter().chain(&WITHOUT_RECEIVER).any(|method| method == function)
}

/// Returns true if a symbol may be a method.
pub(super) fn may_be_method(symbol: &[u8]) -> bool {
    const NAME: &[u8] = b"GlobalAlloc";
    (symbol.starts_with(b"_R") || symbol.starts_with(b"_ZN")) && symbol.windows(NAME.len()).any(|part| part == NAME)
}

/// Returns the type and the method of a symbol. The type can be `None` for a method that the trait provides. The
/// methods of `System` are left out: they call the functions of the C library.
pub(super) fn parse(symbol: &str) -> Option<(Option<String>, Method)> {
    let name = demangled(symbol)?;
    let (path, method) = name.rsplit_once("::")?;
    let method = match method {
        "alloc" => Method::Alloc,
        "alloc_zeroed" => Method::AllocZeroed,
        "realloc" => Method::Realloc,
        "dealloc" => Method::Dealloc,
        _ => return None,
    };
    if path == TRAIT {
        return Some((None, method));
    }
    let of_impl = |path: &str| {
        let (_, implementer) = path.strip_suffix('>')?.split_once(&format!("<impl {TRAIT} for "))?;
        Some(implementer.to_owned())
    };
    let qualified = |path: &str| Some(path.strip_prefix('<')?.strip_suffix(&format!(" as {TRAIT}>"))?.to_owned());
    let implementer = of_impl(path).or_else(|| qualified(path))?;
    (implementer != "std::alloc::System").then_some((Some(implementer), method))
}

/// Returns the demangled name of a symbol without its hash; `None` if it is too long. A short symbol can stand for a name of a
/// million bytes.
fn demangled(symbol: &str) -> Option<String> {
    struct Bounded(String);

    impl Write for Bounded {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            if self.0.len() + part.len() > MAX_NAME {
                return Err(fmt::Error);
            }
            self.0.push_str(part);
            Ok(())
        }
    }

    let mut name = Bounded(String::new());
    write!(name, "{:#}", rustc_demangle::try_demangle(symbol).ok()?).ok()?;
    Some(name.0)
}

/// Returns the name of a method for reports: `<rpmalloc::RpMalloc as GlobalAlloc>::alloc`.
pub(super) fn display_name(symbol: &str) -> Option<String> {
    if !may_be_method(symbol.as_bytes()) {
        return None;
    }
    parse(symbol)?;
    Some(demangled(symbol)?.replace(TRAIT, "GlobalAlloc"))
}

/// The functions to probe, each with its symbol, and the names of the methods whose arguments are at unknown places.
type Choice = (Vec<(&'static Function, Symbol)>, Vec<String>);

/// Chooses the functions to probe among the methods in an object. `symbols` are all symbols that may be methods.
pub(super) fn choose<S: Source>(elf: &Elf<S>, symbols: Vec<Symbol>) -> Choice {
    let is_known = !symbols.is_empty() && compiler::rustc_minor(elf).is_some_and(|minor| minor >= OLDEST);
    choose_by_rows(symbols, |method, symbol| function(elf, method, symbol).filter(|_| is_known))
}

/// As [`choose`]. `row_of` returns the row for a method; `None` if its code does not prove the places of its arguments.
fn choose_by_rows(symbols: Vec<Symbol>, row_of: impl Fn(Method, &Symbol) -> Option<&'static Function>) -> Choice {
    let (mut chosen, mut unknown) = (Vec::new(), Vec::new());
    let is_complete = symbols.len() <= MAX_SYMBOLS;
    let mut by_type: BTreeMap<Option<String>, Vec<(Method, Symbol)>> = BTreeMap::new();
    for symbol in symbols.into_iter().take(MAX_SYMBOLS) {
        if let Some((implementer, method)) = parse(symbol.full_name.split('@').next().unwrap_or_default()) {
            by_type.entry(implementer).or_default().push((method, symbol));
        }
    }
    if !is_complete || by_type.values().map(Vec::len).sum::<usize>() > MOST {
        return (chosen, by_type.into_values().flatten().map(|(_, symbol)| symbol.full_name).collect());
    }
    // The methods that the trait provides come last: each can belong to any of the types.
    let provided = by_type.remove_entry(&None);
    for (implementer, methods) in by_type.into_iter().chain(provided) {
        let rows: Vec<_> = methods.iter().map(|(method, symbol)| row_of(*method, symbol)).collect();
        // A type is probed as a whole or not at all. Otherwise a block could be allocated at one level and freed at the other.
        let is_whole = if implementer.is_some() { prove_one_another(&rows) } else { unknown.is_empty() };
        for (row, (_, symbol)) in rows.into_iter().zip(methods) {
            match row.filter(|_| is_whole) {
                Some(row) => chosen.push((row, symbol)),
                None => unknown.push(symbol.full_name),
            }
        }
    }
    (chosen, unknown)
}

/// Returns true if the places of the arguments are known for all methods of a type: each has a row, and the rows agree on
/// the receiver.
///
/// A `dealloc` that reads its receiver and nothing else looks like one without a receiver. So another method of the type must
/// prove that there is no receiver.
fn prove_one_another(rows: &[Option<&'static Function>]) -> bool {
    let are_of = |all: &[Function; 4]| rows.iter().all(|row| row.is_some_and(|row| all.contains(row)));
    are_of(&WITH_RECEIVER) || are_of(&WITHOUT_RECEIVER) && rows.iter().flatten().any(|row| !row.signature.is_free())
}

/// Returns the row for a method; `None` if its code does not prove the places of its arguments.
fn function<S: Source>(elf: &Elf<S>, method: Method, symbol: &Symbol) -> Option<&'static Function> {
    if symbol.kind != SymbolKind::Function || symbol.size == 0 || symbol.size > MAX_CODE {
        return None;
    }
    let entry = symbol.virt.0;
    let (_, bytes) = elf.code(entry, entry.checked_add(symbol.size)?).ok()?;
    let code = Code { machine: elf.machine(), bytes: &bytes, entry };
    let rows =
        if has_receiver(method, |argument| use_of(&code, argument))? { &WITH_RECEIVER } else { &WITHOUT_RECEIVER };
    rows.get(method as usize)
}

/// Returns true if a method gets a receiver, and false if the compiler left it out; `None` if the code of the method proves
/// neither. `use_of` returns the use of the argument with a number.
fn has_receiver(method: Method, use_of: impl Fn(u8) -> ArgumentUse) -> Option<bool> {
    use ArgumentUse::{Read, Unused};
    // The size of the layout, or the new size: each method needs it, except for dealloc.
    let last = match method {
        Method::Alloc | Method::AllocZeroed => 2,
        Method::Realloc => 4,
        Method::Dealloc => 3,
    };
    match (method, use_of(last)) {
        (_, Read) => Some(true),
        // Without a receiver, the first argument is the address.
        (Method::Dealloc, _) => match (use_of(0), use_of(1)) {
            (Unused, Read) => Some(true),
            (Read, Unused) => Some(false),
            _ => None,
        },
        (_, Unused) if use_of(last - 1) == Read => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use memtrace_model::VirtOffset;

    use super::*;

    /// Name of `GlobalAlloc::realloc` of a type that does not define it.
    const PROVIDED_REALLOC: &str = "_ZN4core5alloc6global11GlobalAlloc7realloc17h0123456789abcdefE";

    fn symbol(full_name: String) -> Symbol {
        Symbol { full_name, kind: SymbolKind::Function, virt: VirtOffset(0), size: 1 }
    }

    /// Returns the symbol of a method of a type.
    fn method_of(implementer: &str, method: &str) -> Symbol {
        let path = format!("_$LT$app..{implementer}$u20$as$u20$core..alloc..global..GlobalAlloc$GT$");
        symbol(format!("_ZN{}{path}{}{method}17h0123456789abcdefE", path.len(), method.len()))
    }

    /// Chooses among `symbols`. `uses` returns the uses of the arguments of a method. Returns the chosen signatures, and the
    /// number of the other methods.
    fn signatures(symbols: &[Symbol], uses: impl Fn(Method, &Symbol) -> [ArgumentUse; 5]) -> (Vec<Signature>, usize) {
        let (chosen, unknown) = choose_by_rows(symbols.to_vec(), |method, symbol| {
            let uses = uses(method, symbol);
            let has_receiver = has_receiver(method, |argument| uses[usize::from(argument)])?;
            let rows = if has_receiver { &WITH_RECEIVER } else { &WITHOUT_RECEIVER };
            rows.get(method as usize)
        });
        (chosen.into_iter().map(|(row, _)| row.signature).collect(), unknown.len())
    }

    #[test]
    fn methods_of_a_type_agree_on_the_receiver() {
        use ArgumentUse::{Read, Unused};
        let reads_receiver = [Read, Unused, Unused, Unused, Unused];
        let both = [method_of("Heap", "alloc"), method_of("Heap", "dealloc")];
        let chosen = |symbols: &[Symbol], alloc: [ArgumentUse; 5]| {
            signatures(symbols, |method, _| if method == Method::Alloc { alloc } else { reads_receiver })
        };
        let without = vec![Signature::Alloc { size: 1 }, Signature::FreeAround { block: 0 }];
        assert_eq!(chosen(&both, [Read, Read, Unused, Unused, Unused]), (without, 0));
        assert_eq!(chosen(&both, [Read, Read, Read, Unused, Unused]), (vec![], 2));
        // Only another method shows that the argument is the block.
        assert_eq!(chosen(&both[1..], [Unused; 5]), (vec![], 1));
    }

    #[test]
    fn provided_methods_are_probed_if_all_types_are() {
        use ArgumentUse::{Read, Unknown};
        let symbols = [symbol(String::from(PROVIDED_REALLOC)), method_of("Heap", "alloc"), method_of("Pool", "alloc")];
        let uses = |_, symbol: &Symbol| [if symbol.full_name.contains("Pool") { Unknown } else { Read }; 5];
        let (alloc, realloc) = (Signature::Alloc { size: 2 }, Signature::Realloc { old: 1, size: 4 });
        assert_eq!(signatures(&symbols[..2], uses), (vec![alloc, realloc], 0));
        assert_eq!(signatures(&symbols, uses), (vec![alloc], 2));
    }

    #[test]
    fn only_methods_count_for_the_limit() {
        let closure = "_ZN71_$LT$rpmalloc..RpMalloc$u20$as$u20$core..alloc..global..GlobalAlloc$GT$5alloc28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE";
        let mut symbols = vec![symbol(String::from(closure)); MOST];
        symbols.push(method_of("Heap", "alloc"));
        let chosen = |symbols: &[Symbol]| signatures(symbols, |_, _| [ArgumentUse::Read; 5]);
        assert_eq!(chosen(&symbols), (vec![Signature::Alloc { size: 2 }], 0));
        assert_eq!(chosen(&vec![method_of("Heap", "alloc"); MOST + 1]), (vec![], MOST + 1));
        symbols.resize(MAX_SYMBOLS + 1, symbol(String::from(closure)));
        assert_eq!(chosen(&symbols), (vec![], 1));
    }

    #[test]
    fn methods_are_found_by_mangled_names() {
        let legacy =
            "_ZN71_$LT$rpmalloc..RpMalloc$u20$as$u20$core..alloc..global..GlobalAlloc$GT$5alloc17h0123456789abcdefE";
        assert!(may_be_method(legacy.as_bytes()));
        assert_eq!(parse(legacy), Some((Some(String::from("rpmalloc::RpMalloc")), Method::Alloc)));
        assert_eq!(display_name(legacy).unwrap(), "<rpmalloc::RpMalloc as GlobalAlloc>::alloc");
        assert_eq!(parse(PROVIDED_REALLOC), Some((None, Method::Realloc)));
        let elsewhere = "_ZN3app5inner72_$LT$impl$u20$core..alloc..global..GlobalAlloc$u20$for$u20$app..Heap$GT$7dealloc17h0123456789abcdefE";
        assert_eq!(parse(elsewhere), Some((Some(String::from("app::Heap")), Method::Dealloc)));
        let system = "_ZN3std3sys5alloc4unix81_$LT$impl$u20$core..alloc..global..GlobalAlloc$u20$for$u20$std..alloc..System$GT$5alloc17h0123456789abcdefE";
        assert_eq!(parse(system), None);
        let closure = "_ZN71_$LT$rpmalloc..RpMalloc$u20$as$u20$core..alloc..global..GlobalAlloc$GT$5alloc28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE";
        assert_eq!(parse(closure), None);
        assert!(!may_be_method(b"_RNvCs5Oo1jgIqGRs_7___rustc12___rust_alloc"));
    }

    #[test]
    fn receiver_is_proven_or_not_known() {
        use ArgumentUse::{Read, Unknown, Unused};
        let receives = |method, uses: &[ArgumentUse]| has_receiver(method, |argument| uses[usize::from(argument)]);
        for method in [Method::Alloc, Method::AllocZeroed] {
            assert_eq!(receives(method, &[Unused, Read, Read]), Some(true));
            assert_eq!(receives(method, &[Read, Read, Unused]), Some(false));
            assert_eq!(receives(method, &[Read, Read, Unknown]), None);
        }
        assert_eq!(receives(Method::Realloc, &[Unused, Read, Read, Read, Read]), Some(true));
        assert_eq!(receives(Method::Realloc, &[Read, Read, Read, Read, Unused]), Some(false));
        assert_eq!(receives(Method::Realloc, &[Read, Read, Read, Unused, Unused]), None);
        let dealloc = |uses| receives(Method::Dealloc, uses);
        assert_eq!(dealloc(&[Unused, Read, Unused, Unused]), Some(true));
        assert_eq!(dealloc(&[Read, Read, Unused, Read]), Some(true));
        assert_eq!(dealloc(&[Read, Unused, Unused, Unused]), Some(false));
        // The second argument is the address or the alignment.
        assert_eq!(dealloc(&[Read, Read, Unused, Unused]), None);
    }
}
