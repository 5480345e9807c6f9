//! Imported symbols, from the relocations of GOT slots.

use std::collections::{HashMap, HashSet};

use memtrace_model::VirtOffset;
use object::LittleEndian;
use object::elf::{
    DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_SYMTAB, DynamicTag, Rela64, SHN_UNDEF, STT_GNU_IFUNC, Sym64,
};
use object::pod;

use super::dynamic_symbols::{self, SymbolKind};
use super::error::{BEYOND, ElfError};
use super::file::Elf;
use super::machine::Machine;
use super::source::{LE, Source};

/// Maximum size of a relocation table in bytes. glibc has less than 50,000 bytes.
const MAX_RELOCATIONS: u64 = 1 << 24;

/// Maximum number of relocations of GOT slots. The largest executables have about 20,000.
const MAX_IMPORTS: usize = 1 << 16;

/// Relocation tables: the dynamic tags of the address and of the size of each.
const TABLES: [(DynamicTag, DynamicTag); 2] = [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)];

/// Mask of a relocation's type in `r_info`.
const TYPE: u64 = 0xffff_ffff;

/// Symbol whose address the dynamic linker stores in a GOT slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    pub(crate) name: String,
    /// Address of the object's own definition, if it has one. A definition in an object earlier in the lookup order
    /// takes precedence.
    pub(crate) own: Option<u64>,
}

/// Relocations that fill GOT slots with the address of a symbol or with the result of a resolver, by the address of the slot.
///
/// The tables are read once. Code can refer to 100,000 slots, and a table can have 700,000 relocations, so a search in the tables
/// for each slot could take minutes.
pub(crate) struct SlotRelocations(HashMap<u64, Rela64<LittleEndian>>);

impl SlotRelocations {
    /// Reads the relocations of an object.
    pub(crate) fn read(elf: &Elf<impl Source>) -> Result<Self, ElfError> {
        let (mut by_slot, mut count) = (HashMap::new(), 0);
        for table in TABLES {
            for_each(elf, table, |relocation| {
                let info = relocation.r_info.get(LE);
                if fills_slots(elf.machine(), info) || is_indirect(elf.machine(), info) {
                    count += 1;
                    if count > MAX_IMPORTS {
                        return Err(TOO_MANY);
                    }
                    by_slot.entry(relocation.r_offset.get(LE)).or_insert(*relocation);
                }
                Ok(())
            })?;
        }
        Ok(Self(by_slot))
    }

    /// Returns the symbol for the GOT slot at the address `slot`.
    pub(crate) fn import(&self, elf: &Elf<impl Source>, slot: u64) -> Result<Option<Import>, ElfError> {
        let info = self.0.get(&slot).map(|relocation| relocation.r_info.get(LE));
        let Some(info) = info.filter(|&info| fills_slots(elf.machine(), info)) else { return Ok(None) };
        let symbols = elf.dynamic_value(DT_SYMTAB).ok_or(ElfError::Malformed("relocations without symbols"))?;
        let symbol: Sym64<LittleEndian> = elf.entry(symbols, info >> 32)?;
        let name = elf.string(u64::from(symbol.st_name.get(LE)))?;
        // The value of an indirect function's symbol is the address of its resolver, not of the function.
        let is_function = symbol.st_shndx.get(LE) != SHN_UNDEF && symbol.st_type() != STT_GNU_IFUNC;
        let own = is_function.then(|| symbol.st_value.get(LE));
        Ok(Some(Import { name: String::from_utf8_lossy(&name).into_owned(), own }))
    }

    /// Returns the address of the resolver that fills the GOT slot at the address `slot`.
    pub(crate) fn resolver(&self, machine: Machine, slot: u64) -> Option<VirtOffset> {
        let relocation = self.0.get(&slot).filter(|relocation| is_indirect(machine, relocation.r_info.get(LE)))?;
        Some(VirtOffset(relocation.r_addend.get(LE).cast_unsigned()))
    }
}

/// Returns the addresses of the resolvers of the object's indirect functions with one of these names. Names whose symbols are
/// damaged are left out.
pub(crate) fn resolvers(elf: &Elf<impl Source>, names: &[&str]) -> Vec<VirtOffset> {
    let symbols = names.iter().flat_map(|name| dynamic_symbols::definitions(elf, name).unwrap_or_default());
    symbols.filter(|symbol| symbol.kind == SymbolKind::Indirect).map(|symbol| symbol.virt).collect()
}

/// Returns the addresses of the GOT slots for symbols with one of these names.
pub(crate) fn slots(elf: &Elf<impl Source>, names: &[&str]) -> Result<HashSet<u64>, ElfError> {
    let Some(symbols) = elf.dynamic_value(DT_SYMTAB) else { return Ok(HashSet::new()) };
    let mut slots = HashSet::new();
    let mut imports = 0;
    for table in TABLES {
        for_each(elf, table, |relocation| {
            let info = relocation.r_info.get(LE);
            if !fills_slots(elf.machine(), info) {
                return Ok(());
            }
            imports += 1;
            if imports > MAX_IMPORTS {
                return Err(TOO_MANY);
            }
            let symbol: Sym64<LittleEndian> = elf.entry(symbols, info >> 32)?;
            for name in names {
                if elf.is_string(u64::from(symbol.st_name.get(LE)), name)? {
                    slots.insert(relocation.r_offset.get(LE));
                }
            }
            Ok(())
        })?;
    }
    Ok(slots)
}

/// Returns true if the object imports a symbol with one of these names, by a GOT slot.
pub(crate) fn has_any(elf: &Elf<impl Source>, names: &[&str]) -> Result<bool, ElfError> {
    Ok(!slots(elf, names)?.is_empty())
}

/// Calls `visit` with each relocation of a table. `table`: tags of its address and its size.
fn for_each(
    elf: &Elf<impl Source>,
    (table, size): (DynamicTag, DynamicTag),
    visit: impl FnMut(&Rela64<LittleEndian>) -> Result<(), ElfError>,
) -> Result<(), ElfError> {
    let (Some(table), Some(size)) = (elf.dynamic_value(table), elf.dynamic_value(size)) else { return Ok(()) };
    let (offset, left) = elf.locate(table)?;
    if size > left.min(MAX_RELOCATIONS) {
        return Err(BEYOND);
    }
    let bytes = elf.bytes(offset, size)?;
    let relocations: &[Rela64<LittleEndian>] = pod::slice_from_all_bytes(&bytes).map_err(|()| BEYOND)?;
    relocations.iter().try_for_each(visit)
}

/// Returns true for a relocation that stores a symbol's address: `R_*_GLOB_DAT` or `R_*_JUMP_SLOT`.
fn fills_slots(machine: Machine, info: u64) -> bool {
    let kinds = match machine {
        Machine::X86_64 => 6..=7,
        Machine::Aarch64 => 1025..=1026,
    };
    kinds.contains(&(info & TYPE))
}

/// Returns true for a relocation that stores the result of a resolver: `R_*_IRELATIVE`.
fn is_indirect(machine: Machine, info: u64) -> bool {
    let kind = match machine {
        Machine::X86_64 => 37,
        Machine::Aarch64 => 1032,
    };
    info & TYPE == kind
}

const TOO_MANY: ElfError = ElfError::Malformed("too many imports");
