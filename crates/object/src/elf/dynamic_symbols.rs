//! Dynamic symbols of an object, looked up in its hash tables as the dynamic linker does.

use memtrace_model::VirtOffset;
use object::elf::{
    DT_GNU_HASH, DT_HASH, DT_SYMTAB, DT_VERDEF, DT_VERSYM, GnuHashHeader, HashHeader, SHN_UNDEF, STB_GLOBAL,
    STB_GNU_UNIQUE, STB_WEAK, STT_FUNC, STT_GNU_IFUNC, Sym64, Verdaux, Verdef, VersionIndex, Versym,
};
use object::{LittleEndian, U32, pod};

use super::error::{BEYOND, ElfError};
use super::file::Elf;
use super::source::{LE, Source};

/// Maximum number of dynamic symbols. The largest libraries have about 100,000.
const MAX_SYMBOLS: u64 = 1 << 20;
/// Maximum number of entries of a hash chain. Real chains have less than 20.
const MAX_CHAIN: u64 = 4096;
/// Maximum number of versions of one name. Real names have up to 5.
const MAX_DEFINITIONS: usize = 32;
/// Maximum number of versions that an object defines. glibc has about 40.
const MAX_VERSIONS: usize = 1024;

/// Type of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolKind {
    /// Function (`STT_FUNC`).
    Function,
    /// Resolver that the dynamic linker calls to choose the function (`STT_GNU_IFUNC`).
    Indirect,
    /// Any other type, such as data.
    Other,
}

/// A symbol that the object defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Name with the version, if it has one, as linkers write it: `malloc@@GLIBC_2.2.5`. `@@` marks the default
    /// version.
    pub full_name: String,
    pub kind: SymbolKind,
    pub virt: VirtOffset,
    /// Length in bytes; 0 if it is not known.
    pub size: u64,
}

/// Returns every version of the dynamic symbol `name` that the object defines.
pub fn definitions(elf: &Elf<impl Source>, name: &str) -> Result<Vec<Symbol>, ElfError> {
    let mut definitions = Vec::new();
    for index in hash_chain(elf, name)? {
        if let Some(symbol) = definition(elf, name, index)? {
            definitions.push(symbol);
        }
        if definitions.len() > MAX_DEFINITIONS {
            return Err(ElfError::Malformed("a name is defined too often"));
        }
    }
    Ok(definitions)
}

/// Returns true if the object defines the dynamic symbol `name`.
pub(crate) fn defines(elf: &Elf<impl Source>, name: &str) -> Result<bool, ElfError> {
    Ok(!definitions(elf, name)?.is_empty())
}

/// Returns the addresses of all defined dynamic symbols, unordered.
pub fn addresses(elf: &Elf<impl Source>) -> Result<Vec<u64>, ElfError> {
    let Some(table) = elf.dynamic_value(DT_SYMTAB) else { return Ok(Vec::new()) };
    let count = count(elf)?;
    if count > MAX_SYMBOLS {
        return Err(TOO_MANY);
    }
    let size = count * size_of::<Sym64<LittleEndian>>() as u64;
    let (offset, left) = elf.locate(table)?;
    if size > left {
        return Err(BEYOND);
    }
    let bytes = elf.bytes(offset, size)?;
    let symbols: &[Sym64<LittleEndian>] = pod::slice_from_all_bytes(&bytes).map_err(|()| BEYOND)?;
    let defined = symbols.iter().filter(|symbol| symbol.st_shndx.get(LE) != SHN_UNDEF);
    Ok(defined.map(|symbol| symbol.st_value.get(LE)).collect())
}

/// Returns the number of dynamic symbols. Only the hash tables state this number.
fn count(elf: &Elf<impl Source>) -> Result<u64, ElfError> {
    if let Some(table) = elf.dynamic_value(DT_HASH) {
        let header: HashHeader<LittleEndian> = elf.entry(table, 0)?;
        return Ok(u64::from(header.chain_count.get(LE)));
    }
    let Some(table) = elf.dynamic_value(DT_GNU_HASH) else { return Ok(0) };
    let table = GnuHash::read(elf, table)?;
    if table.count > MAX_SYMBOLS {
        return Err(TOO_MANY);
    }
    let mut last = 0;
    for bucket in 0..table.count {
        last = last.max(u64::from(word(elf, table.buckets, bucket)?));
    }
    if last < table.base {
        return Ok(table.base);
    }
    // The last symbol ends the last chain.
    for symbol in last..last.saturating_add(MAX_SYMBOLS) {
        if word(elf, table.hashes, symbol - table.base)? & 1 == 1 {
            return Ok(symbol + 1);
        }
    }
    Err(ENDLESS)
}

/// Returns the symbol at `index` if it has the name `name`, is visible, and is defined by the object.
fn definition(elf: &Elf<impl Source>, name: &str, index: u64) -> Result<Option<Symbol>, ElfError> {
    let table = elf.dynamic_value(DT_SYMTAB).ok_or(ElfError::Malformed("hashes without symbols"))?;
    let symbol: Sym64<LittleEndian> = elf.entry(table, index)?;
    let visible = matches!(symbol.st_bind(), STB_GLOBAL | STB_WEAK | STB_GNU_UNIQUE);
    if symbol.st_shndx.get(LE) == SHN_UNDEF || !visible {
        return Ok(None);
    }
    if !elf.is_string(u64::from(symbol.st_name.get(LE)), name)? {
        return Ok(None);
    }
    let kind = match symbol.st_type() {
        STT_FUNC => SymbolKind::Function,
        STT_GNU_IFUNC => SymbolKind::Indirect,
        _ => SymbolKind::Other,
    };
    Ok(Some(Symbol {
        full_name: format!("{name}{}", version_suffix(elf, index)?),
        kind,
        virt: VirtOffset(symbol.st_value.get(LE)),
        size: symbol.st_size.get(LE),
    }))
}

/// Returns the indices of the symbols that may have the name `name`, by its hash.
fn hash_chain(elf: &Elf<impl Source>, name: &str) -> Result<Vec<u64>, ElfError> {
    if let Some(table) = elf.dynamic_value(DT_GNU_HASH) {
        gnu_hash_chain(elf, &GnuHash::read(elf, table)?, object::elf::gnu_hash(name.as_bytes()))
    } else if let Some(table) = elf.dynamic_value(DT_HASH) {
        sysv_hash_chain(elf, table, object::elf::hash(name.as_bytes()))
    } else {
        Ok(Vec::new())
    }
}

/// Returns the indices of the symbols with this hash in a `DT_GNU_HASH` table.
fn gnu_hash_chain(elf: &Elf<impl Source>, table: &GnuHash, hash: u32) -> Result<Vec<u64>, ElfError> {
    let Some(bucket) = u64::from(hash).checked_rem(table.count) else { return Ok(Vec::new()) };
    let first = u64::from(word(elf, table.buckets, bucket)?);
    if first == 0 {
        return Ok(Vec::new());
    }
    let start = first.checked_sub(table.base).ok_or(ElfError::Malformed("a hash chain begins before its table"))?;
    let mut indices = Vec::new();
    for step in 0..MAX_CHAIN {
        let value = word(elf, table.hashes, start + step)?;
        if value | 1 == hash | 1 {
            indices.push(first + step);
        }
        if value & 1 == 1 {
            return Ok(indices);
        }
    }
    Err(ENDLESS)
}

/// Returns the indices of the symbols in the chain of this hash in a `DT_HASH` table. The table has a header, the
/// buckets, and for each symbol the next one of its chain; 0 ends a chain.
fn sysv_hash_chain(elf: &Elf<impl Source>, table: u64, hash: u32) -> Result<Vec<u64>, ElfError> {
    let header: HashHeader<LittleEndian> = elf.entry(table, 0)?;
    let count = u64::from(header.bucket_count.get(LE));
    let Some(bucket) = u64::from(hash).checked_rem(count) else { return Ok(Vec::new()) };
    let buckets = table.checked_add(size_of_val(&header) as u64).ok_or(BEYOND)?;
    let chains = buckets.checked_add(count * size_of::<u32>() as u64).ok_or(BEYOND)?;
    let mut indices = Vec::new();
    let mut index = u64::from(word(elf, buckets, bucket)?);
    for _ in 0..MAX_CHAIN {
        if index == 0 {
            return Ok(indices);
        }
        indices.push(index);
        index = u64::from(word(elf, chains, index)?);
    }
    Err(ENDLESS)
}

/// Returns element `index` of the array of 32-bit numbers at the address `base`.
fn word(elf: &Elf<impl Source>, base: u64, index: u64) -> Result<u32, ElfError> {
    Ok(elf.entry::<U32<LittleEndian>>(base, index)?.get(LE))
}

/// Returns the suffix of the symbol's name: `@@VERSION`, `@VERSION`, or an empty string without a version.
fn version_suffix(elf: &Elf<impl Source>, symbol: u64) -> Result<String, ElfError> {
    let Some(table) = elf.dynamic_value(DT_VERSYM) else { return Ok(String::new()) };
    let version = elf.entry::<Versym<LittleEndian>>(table, symbol)?.0.get(LE);
    if version.is_local() || version.is_global() {
        return Ok(String::new());
    }
    let name = version_name(elf, version.index())?;
    Ok(format!("{}{}", if version.is_hidden() { "@" } else { "@@" }, String::from_utf8_lossy(&name)))
}

/// Returns the name of the version with this index, which the object defines.
fn version_name(elf: &Elf<impl Source>, index: VersionIndex) -> Result<Vec<u8>, ElfError> {
    let mut at = elf.dynamic_value(DT_VERDEF).ok_or(ElfError::Malformed("versions without definitions"))?;
    for _ in 0..MAX_VERSIONS {
        let definition: Verdef<LittleEndian> = elf.entry(at, 0)?;
        if definition.vd_ndx.get(LE) == index {
            let names = at.checked_add(u64::from(definition.vd_aux.get(LE))).ok_or(BEYOND)?;
            let name: Verdaux<LittleEndian> = elf.entry(names, 0)?;
            return elf.string(u64::from(name.vda_name.get(LE)));
        }
        match definition.vd_next.get(LE) {
            0 => break,
            next => at = at.checked_add(u64::from(next)).ok_or(BEYOND)?,
        }
    }
    Err(ElfError::Malformed("a symbol's version is not defined"))
}

/// Header of a `DT_GNU_HASH` table. The table has a header, a bloom filter, the buckets, and the hash of each symbol
/// from the base on. The lowest bit of a hash is 1 at the end of a chain (glibc, elf/dl-lookup.c, `do_lookup_x`).
struct GnuHash {
    /// Number of buckets.
    count: u64,
    /// Address of the buckets.
    buckets: u64,
    /// Address of the hashes.
    hashes: u64,
    /// Index of the first symbol with a hash.
    base: u64,
}

impl GnuHash {
    /// Reads the header at the address `table`.
    fn read(elf: &Elf<impl Source>, table: u64) -> Result<Self, ElfError> {
        let header: GnuHashHeader<LittleEndian> = elf.entry(table, 0)?;
        let count = u64::from(header.bucket_count.get(LE));
        let bloom = u64::from(header.bloom_count.get(LE)) * size_of::<u64>() as u64;
        let buckets = table.checked_add(size_of_val(&header) as u64 + bloom).ok_or(BEYOND)?;
        let hashes = buckets.checked_add(count * size_of::<u32>() as u64).ok_or(BEYOND)?;
        Ok(Self { count, buckets, hashes, base: header.symbol_base.get(LE).into() })
    }
}

const TOO_MANY: ElfError = ElfError::Malformed("too many symbols");
const ENDLESS: ElfError = ElfError::Malformed("a hash chain does not end");
