//! Imported symbols, from the relocations of GOT slots.

use memtrace_model::VirtOffset;
use object::LittleEndian;
use object::elf::{
    DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_SYMTAB, DynamicTag, Rela64, SHN_UNDEF, STT_GNU_IFUNC, Sym64,
};
use object::pod;

use super::dynamic_symbols::{self, Symbol, SymbolKind};
use super::error::{BEYOND, ElfError};
use super::file::Elf;
use super::machine::Machine;
use super::source::{LE, Source};

/// Maximum size of a relocation table in bytes. glibc has less than 50,000 bytes.
const MAX_RELOCATIONS: u64 = 1 << 24;

/// Maximum number of imported symbols. The largest executables have about 20,000.
const MAX_IMPORTS: usize = 1 << 16;

/// Relocation tables: the dynamic tags of the address and of the size of each.
const TABLES: [(DynamicTag, DynamicTag); 2] = [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)];

/// Mask of a relocation's type in `r_info`.
const TYPE: u64 = 0xffff_ffff;

/// Symbol of a GOT slot: the dynamic linker stores its address there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    pub name: String,
    /// Address of the object's own definition, if it has one. A definition in an object earlier in the lookup order
    /// takes precedence.
    pub own: Option<u64>,
}

/// Returns the symbol for the GOT slot at the address `slot`.
pub fn at(elf: &Elf<impl Source>, slot: u64) -> Result<Option<Import>, ElfError> {
    let Some(relocation) = relocation_of(elf, slot)? else { return Ok(None) };
    let info = relocation.r_info.get(LE);
    if !fills_slots(elf.machine(), info) {
        return Ok(None);
    }
    let symbols = elf.dynamic_value(DT_SYMTAB).ok_or(ElfError::Malformed("relocations without symbols"))?;
    let symbol: Sym64<LittleEndian> = elf.entry(symbols, info >> 32)?;
    let name = elf.string(u64::from(symbol.st_name.get(LE)))?;
    // The value of an indirect function's symbol is the address of its resolver, not of the function.
    let is_function = symbol.st_shndx.get(LE) != SHN_UNDEF && symbol.st_type() != STT_GNU_IFUNC;
    let own = is_function.then(|| symbol.st_value.get(LE));
    Ok(Some(Import { name: String::from_utf8_lossy(&name).into_owned(), own }))
}

/// Returns true if the GOT slot at the address `slot` is filled by the resolver of the object's indirect function
/// `name`.
pub(crate) fn is_slot_of_indirect(elf: &Elf<impl Source>, slot: u64, name: &str) -> Result<bool, ElfError> {
    let Some(relocation) = relocation_of(elf, slot)? else { return Ok(false) };
    let resolver = VirtOffset(relocation.r_addend.get(LE).cast_unsigned());
    let is_resolver = |symbol: &Symbol| symbol.kind == SymbolKind::Indirect && symbol.virt == resolver;
    let is_resolved = relocation.r_info.get(LE) & TYPE == indirect_relocation(elf.machine());
    Ok(is_resolved && dynamic_symbols::definitions(elf, name)?.iter().any(is_resolver))
}

/// Returns the addresses of the GOT slots for symbols with one of these names.
pub(crate) fn slots(elf: &Elf<impl Source>, names: &[&str]) -> Result<Vec<u64>, ElfError> {
    let Some(symbols) = elf.dynamic_value(DT_SYMTAB) else { return Ok(Vec::new()) };
    let mut slots = Vec::new();
    let mut imports = 0;
    for table in TABLES {
        for relocation in relocations(elf, table)? {
            let info = relocation.r_info.get(LE);
            if !fills_slots(elf.machine(), info) {
                continue;
            }
            imports += 1;
            if imports > MAX_IMPORTS {
                return Err(ElfError::Malformed("too many imports"));
            }
            let symbol: Sym64<LittleEndian> = elf.entry(symbols, info >> 32)?;
            for name in names {
                if elf.is_string(u64::from(symbol.st_name.get(LE)), name)? {
                    slots.push(relocation.r_offset.get(LE));
                }
            }
        }
    }
    Ok(slots)
}

/// Returns the relocation for the GOT slot at the address `slot`.
fn relocation_of(elf: &Elf<impl Source>, slot: u64) -> Result<Option<Rela64<LittleEndian>>, ElfError> {
    for table in TABLES {
        let mut relocations = relocations(elf, table)?.into_iter();
        if let Some(found) = relocations.find(|relocation| relocation.r_offset.get(LE) == slot) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Reads a relocation table. `table`: tags of its address and its size.
fn relocations(
    elf: &Elf<impl Source>,
    (table, size): (DynamicTag, DynamicTag),
) -> Result<Vec<Rela64<LittleEndian>>, ElfError> {
    let (Some(table), Some(size)) = (elf.dynamic_value(table), elf.dynamic_value(size)) else { return Ok(Vec::new()) };
    let (offset, left) = elf.locate(table)?;
    if size > left.min(MAX_RELOCATIONS) {
        return Err(BEYOND);
    }
    let bytes = elf.bytes(offset, size)?;
    Ok(pod::slice_from_all_bytes(&bytes).map_err(|()| BEYOND)?.to_vec())
}

/// Returns true for a relocation that stores a symbol's address: `R_*_GLOB_DAT` or `R_*_JUMP_SLOT`.
fn fills_slots(machine: Machine, info: u64) -> bool {
    let kinds = match machine {
        Machine::X86_64 => 6..=7,
        Machine::Aarch64 => 1025..=1026,
    };
    kinds.contains(&(info & TYPE))
}

/// Returns the type of a relocation that stores the result of a resolver: `R_*_IRELATIVE`.
fn indirect_relocation(machine: Machine) -> u64 {
    match machine {
        Machine::X86_64 => 37,
        Machine::Aarch64 => 1032,
    }
}
