//! Imported symbols: relocations by which the dynamic linker fills GOT slots.

use object::LittleEndian;
use object::elf::{DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_SYMTAB, DynamicTag, Rela64, SHN_UNDEF, Sym64};
use object::pod;

use super::error::{BEYOND, ElfError};
use super::file::Elf;
use super::machine::Machine;
use super::source::{LE, Source};

/// Bound on the bytes of relocations; glibc has less than 50,000.
const MAX_RELOCATIONS: u64 = 1 << 24;

/// Symbol of which the dynamic linker stores the address in a GOT slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    pub(crate) name: String,
    /// Address of the object's own definition, which applies unless an object earlier in the lookup order has another.
    pub(crate) own: Option<u64>,
}

impl<S: Source> Elf<S> {
    /// Returns the symbol for the GOT slot at the address `slot`.
    pub(crate) fn import_at(&self, slot: u64) -> Result<Option<Import>, ElfError> {
        for (table, size) in [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)] {
            let Some(symbol) = self.symbol_for(slot, table, size)? else { continue };
            let symbols = self.dynamic_value(DT_SYMTAB).ok_or(ElfError::Malformed("relocations without symbols"))?;
            let symbol: Sym64<LittleEndian> = self.entry(symbols, u64::from(symbol))?;
            let name = self.string(u64::from(symbol.st_name.get(LE)))?;
            let own = (symbol.st_shndx.get(LE) != SHN_UNDEF).then(|| symbol.st_value.get(LE));
            return Ok(Some(Import { name: String::from_utf8_lossy(&name).into_owned(), own }));
        }
        Ok(None)
    }

    /// Returns the index of the slot's symbol in one table of relocations.
    fn symbol_for(&self, slot: u64, table: DynamicTag, size: DynamicTag) -> Result<Option<u32>, ElfError> {
        let (Some(table), Some(size)) = (self.dynamic_value(table), self.dynamic_value(size)) else { return Ok(None) };
        let (offset, left) = self.locate(table)?;
        if size > left.min(MAX_RELOCATIONS) {
            return Err(BEYOND);
        }
        let bytes = self.bytes(offset, size)?;
        let relocations: &[Rela64<LittleEndian>] = pod::slice_from_all_bytes(&bytes).map_err(|()| BEYOND)?;
        let relocation = relocations.iter().find(|relocation| relocation.r_offset.get(LE) == slot);
        Ok(relocation
            .map(|relocation| relocation.r_info.get(LE))
            .filter(|info| self.fills_slots(*info))
            .map(|info| (info >> 32) as u32))
    }

    /// Returns true for relocations that store a symbol's address: `R_*_GLOB_DAT` and `R_*_JUMP_SLOT`.
    fn fills_slots(&self, info: u64) -> bool {
        let kinds = match self.machine() {
            Machine::X86_64 => 6..=7,
            Machine::Aarch64 => 1025..=1026,
        };
        kinds.contains(&(info & 0xffff_ffff))
    }
}
