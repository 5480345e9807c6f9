//! Methods of Rust's `GlobalAlloc`, which optimized code calls past `__rust_alloc`.
//!
//! A method gets the receiver, then the address of the block, then the layout. rustc passes a layout as two arguments, the
//! alignment first: it places the field with the most invalid values first (`Layout`, library/core/src/alloc/layout.rs). This is
//! no stable interface, and the compiler leaves out a receiver without content. So the version of the compiler must be known to
//! do so, and the code of a method must prove the places of its arguments.

use std::collections::BTreeMap;

use memtrace_model::{Function, Naming, Signature};

use crate::elf::{Elf, Source, Symbol, SymbolKind, compiler};
use crate::probe_site::{ArgumentUse, Code, use_of};

/// Oldest minor version of rustc 1.x with the alignment first. Older ones may have it, too.
const OLDEST: u32 = 80;

/// Maximum length of a method in bytes that is examined.
const MAX_CODE: u64 = 65536;

/// Maximum number of methods that are examined. Programs have a few for each type.
const MOST: usize = 1024;

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

/// Returns the type and the method of a symbol. The type of a method that the trait provides may not be known. The
/// methods of `System` are left out: they call the functions of the C library.
pub(super) fn parse(symbol: &str) -> Option<(Option<String>, Method)> {
    let name = format!("{:#}", rustc_demangle::try_demangle(symbol).ok()?);
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

/// Returns the name of a method for reports: `<rpmalloc::RpMalloc as GlobalAlloc>::alloc`.
pub(super) fn display_name(symbol: &str) -> Option<String> {
    if !may_be_method(symbol.as_bytes()) {
        return None;
    }
    parse(symbol)?;
    Some(format!("{:#}", rustc_demangle::try_demangle(symbol).ok()?).replace(TRAIT, "GlobalAlloc"))
}

/// Chooses the functions to probe among the methods in an object. Returns them with their symbols, and the names of the
/// symbols with arguments at unknown places.
pub(super) fn choose<S: Source>(elf: &Elf<S>, methods: Vec<Symbol>) -> (Vec<(&'static Function, Symbol)>, Vec<String>) {
    let (mut chosen, mut unknown) = (Vec::new(), Vec::new());
    let name = |symbol: Symbol| symbol.full_name;
    if methods.len() > MOST {
        return (chosen, methods.into_iter().take(MOST).map(name).collect());
    }
    let is_known = !methods.is_empty() && compiler::rustc_minor(elf).is_some_and(|minor| minor >= OLDEST);
    let mut by_type: BTreeMap<Option<String>, Vec<(Method, Symbol)>> = BTreeMap::new();
    for symbol in methods {
        if let Some((implementer, method)) = parse(symbol.full_name.split('@').next().unwrap_or_default()) {
            by_type.entry(implementer).or_default().push((method, symbol));
        }
    }
    for (implementer, methods) in by_type {
        let functions = methods.iter().map(|(method, symbol)| function(elf, *method, symbol).filter(|_| is_known));
        let functions: Vec<_> = functions.collect();
        // Blocks of a type with methods that cannot be probed would be allocated at one level, and freed at the other.
        let is_whole = implementer.is_none() || functions.iter().all(Option::is_some);
        for (function, (_, symbol)) in functions.into_iter().zip(methods) {
            match function.filter(|_| is_whole) {
                Some(function) => chosen.push((function, symbol)),
                None => unknown.push(name(symbol)),
            }
        }
    }
    (chosen, unknown)
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

/// Returns true if a method gets a receiver, and false if it was left out; `None` if its code does not prove it. `use_of`
/// returns the use of the argument with a number.
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
    use super::*;

    #[test]
    fn methods_are_found_by_mangled_names() {
        let legacy =
            "_ZN71_$LT$rpmalloc..RpMalloc$u20$as$u20$core..alloc..global..GlobalAlloc$GT$5alloc17h0123456789abcdefE";
        assert!(may_be_method(legacy.as_bytes()));
        assert_eq!(parse(legacy), Some((Some(String::from("rpmalloc::RpMalloc")), Method::Alloc)));
        assert_eq!(display_name(legacy).unwrap(), "<rpmalloc::RpMalloc as GlobalAlloc>::alloc");
        let provided = "_ZN4core5alloc6global11GlobalAlloc7realloc17h0123456789abcdefE";
        assert_eq!(parse(provided), Some((None, Method::Realloc)));
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
