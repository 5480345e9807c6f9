//! Search for the functions that an `operator new` calls after it has failed.
//!
//! After a failure, code of the program runs inside the call: the new handler, then the destructors and handlers of an
//! exception. Its allocations and frees are no part of the call. The operator reaches that code through functions of
//! the C++ runtime. If another object defines such a function, the allocator's PLT stub for it is probed, not the
//! function in the C++ runtime. So exceptions cost nothing in programs with other allocators.

use memtrace_model::{ALLOC_FAILURE, Bytes, VirtOffset};
use object::LittleEndian;

use super::functions::Candidate;
use crate::elf::{Elf, ElfError, Machine, Sections, Source, SymbolKind, dynamic_symbols, imports, symbol_table};

/// Names of `std::get_new_handler()`, of `std::set_new_handler(std::new_handler)`, which returns the handler too, of
/// libstdc++'s `std::__throw_bad_alloc()`, and of the function that allocates an exception object (Itanium C++ ABI,
/// 2.4.2).
const NAMES: [&str; 4] =
    ["_ZSt15get_new_handlerv", "_ZSt15set_new_handlerPFvvE", "_ZSt17__throw_bad_allocv", "__cxa_allocate_exception"];

/// Sections with PLT stubs, and the size of a stub on x86-64 in bytes. A probe inside of a stub would damage it.
const STUB_SECTIONS: [(&str, usize); 3] = [(".plt", 16), (".plt.sec", 16), (".plt.got", 8)];
/// Alignment, in bytes, of stubs on aarch64, which are 16 or 24 bytes long.
const AARCH64_STUB_ALIGNMENT: usize = 8;
/// Maximum size of a section with stubs in bytes. The largest executables have about 20,000 stubs.
const MAX_STUBS: u64 = 1 << 22;

/// Returns the functions, or an empty list if the object has no `operator new` that may throw an exception.
pub(super) fn find<S: Source>(elf: &Elf<S>, candidates: &[Candidate]) -> Result<Vec<Candidate>, ElfError> {
    if candidates.iter().all(|candidate| candidate.returns.is_empty()) {
        return Ok(Vec::new());
    }
    let mut functions = defined(elf)?;
    // The length of a stub is not needed.
    functions.extend(stubs(elf).into_iter().map(|stub| (stub, 0)));
    let candidate = |(virt, size): (VirtOffset, u64)| {
        Some(Candidate {
            functions: vec![&ALLOC_FAILURE],
            symbols: vec![ALLOC_FAILURE.name.to_owned()],
            file_offset: elf.code_offset(virt, size)?,
            virt,
            size: Bytes(size),
            signature: ALLOC_FAILURE.signature,
            returns: Vec::new(),
        })
    };
    Ok(functions.into_iter().filter_map(candidate).collect())
}

/// Returns the addresses and sizes of the functions that the object defines.
fn defined<S: Source>(elf: &Elf<S>) -> Result<Vec<(VirtOffset, u64)>, ElfError> {
    let has_name = |name: &[u8]| NAMES.iter().any(|known| known.as_bytes() == name);
    let listed = symbol_table::find_functions(elf, has_name)?.unwrap_or_default();
    let mut symbols: Vec<_> = listed.into_iter().map(|(_, symbol)| symbol).collect();
    for name in NAMES {
        symbols.extend(dynamic_symbols::definitions(elf, name)?);
    }
    symbols.retain(|symbol| symbol.kind == SymbolKind::Function);
    let mut functions: Vec<_> = symbols.into_iter().map(|symbol| (symbol.virt, symbol.size)).collect();
    functions.sort_unstable();
    functions.dedup_by_key(|(virt, _)| *virt);
    Ok(functions)
}

/// Returns the addresses of the PLT stubs for the functions, or an empty list if the object has no section headers.
/// Damaged relocations lead to no stub.
fn stubs<S: Source>(elf: &Elf<S>) -> Vec<VirtOffset> {
    let slots = imports::slots(elf, &NAMES).unwrap_or_default();
    if slots.is_empty() {
        return Vec::new();
    }
    let Some(sections) = Sections::read(elf) else { return Vec::new() };
    let mut stubs = Vec::new();
    for (name, size) in STUB_SECTIONS {
        let Some(section) = sections.named(name) else { continue };
        let first = section.sh_addr.get(LittleEndian);
        let bytes = sections.content(section, MAX_STUBS).unwrap_or_default();
        let step = if elf.machine() == Machine::Aarch64 { AARCH64_STUB_ALIGNMENT } else { size };
        for at in (0..bytes.len()).step_by(step) {
            let address = first.wrapping_add(at as u64);
            if elf.machine().slot(&bytes[at..], address).is_some_and(|slot| slots.contains(&slot)) {
                stubs.push(VirtOffset(address));
            }
        }
    }
    stubs
}
