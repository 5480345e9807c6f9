//! Symbol table (`.symtab`). It includes local and statically linked functions, which the dynamic symbols lack, but
//! may be stripped.

use memtrace_model::VirtOffset;
use object::elf::SectionType;
use object::elf::{
    SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC, STT_OBJECT, STT_TLS, SectionHeader64, Sym64,
};
use object::{LittleEndian, pod};

use super::dynamic_symbols::{Symbol, SymbolKind};
use super::error::{BEYOND, ElfError};
use super::file::Elf;
use super::sections::Sections;
use super::source::{LE, Source};

/// Maximum size in bytes of a symbol table, and of its string table. The largest browsers have about 100 MB.
const MAX_TABLE: u64 = 1 << 28;

/// Maximum number of variables at the searched addresses. A hostile object has many variables at each address.
const MAX_VARIABLES: usize = 1 << 22;

/// Maximum length of a name in bytes. Symbols with longer names are left out. A hostile object has many symbols with the
/// same long name.
const MAX_NAME: usize = 4096;

/// Maximum total length of all names, as a multiple of the size of both tables. Names can be longer than the string
/// table together, because linkers let a name share the end of another one.
const MOST_SHARED: usize = 8;

/// Maximum memory of the functions that are found, in bytes.
const MAX_FOUND: usize = 1 << 24;

/// Maximum length of the name of a variable in bytes. Longer names are cut.
const MAX_VARIABLE_NAME: usize = 512;

/// Maximum number of variables with the same name that are found. Each source file can have one.
const MAX_SAME_NAME: usize = 16;

/// Maximum number of variables that are found by a rule for their names. An executable has at most a few allocators.
const MAX_NAMED_VARIABLES: usize = 256;

/// Part of the name of a function's rarely executed code, if the compiler has moved it away from the function.
const COLD: &[u8] = b".cold";

/// Location of a table in the file.
#[derive(Clone, Copy, Debug)]
struct Table {
    offset: u64,
    size: u64,
}

/// Returns the functions with names that `has_name` accepts, each with its name without the version. Returns `None`
/// if the symbol table is stripped.
pub(crate) fn find_functions(
    elf: &Elf<impl Source>,
    has_name: impl Fn(&[u8]) -> bool,
) -> Result<Option<Vec<(String, Symbol)>>, ElfError> {
    find_functions_in(elf, SHT_SYMTAB, has_name)
}

/// As [`find_functions`], for the table of dynamic symbols, which stripped objects have too.
pub(crate) fn find_dynamic_functions(
    elf: &Elf<impl Source>,
    has_name: impl Fn(&[u8]) -> bool,
) -> Result<Option<Vec<(String, Symbol)>>, ElfError> {
    find_functions_in(elf, SHT_DYNSYM, has_name)
}

/// Returns the kind, the address and the size in bytes of the first `limit` functions that have a kind. `kind_of` returns the
/// kind for a name. Returns an empty list if the symbol table is stripped.
pub(crate) fn find_first_functions<K>(
    elf: &Elf<impl Source>,
    limit: usize,
    kind_of: impl Fn(&[u8]) -> Option<K>,
) -> Result<Vec<(K, u64, u64)>, ElfError> {
    let mut found = Vec::new();
    for_each_symbol(elf, SHT_SYMTAB, |name, symbol| {
        if found.len() < limit
            && symbol.st_type() == STT_FUNC
            && let Some(kind) = kind_of(name)
        {
            found.push((kind, symbol.st_value.get(LE), symbol.st_size.get(LE)));
        }
    })?;
    Ok(found)
}

/// Returns the offset in the TLS block and the size of each thread-local variable with a name that `has_name` accepts.
/// Returns an empty list if the symbol table is stripped.
pub(crate) fn find_thread_locals(
    elf: &Elf<impl Source>,
    has_name: impl Fn(&[u8]) -> bool,
) -> Result<Vec<(u64, u64)>, ElfError> {
    let mut found = Vec::new();
    for_each_symbol(elf, SHT_SYMTAB, |name, symbol| {
        if symbol.st_type() == STT_TLS && has_name(name) {
            found.push((symbol.st_value.get(LE), symbol.st_size.get(LE)));
        }
    })?;
    Ok(found)
}

/// Returns the addresses of the variables with this name and this size in bytes, at most [`MAX_SAME_NAME`]. Returns an empty list
/// if the symbol table is stripped.
pub(crate) fn find_variables_named(elf: &Elf<impl Source>, name: &[u8], size: u64) -> Result<Vec<u64>, ElfError> {
    let mut found = Vec::new();
    for_each_symbol(elf, SHT_SYMTAB, |other, symbol| {
        let is_same = symbol.st_type() == STT_OBJECT && other == name && symbol.st_size.get(LE) == size;
        if is_same && found.len() < MAX_SAME_NAME {
            found.push(symbol.st_value.get(LE));
        }
    })?;
    Ok(found)
}

/// Returns the names and the addresses of the variables with names that `has_name` accepts, at most [`MAX_NAMED_VARIABLES`].
/// Returns an empty list if the symbol table is stripped.
pub(crate) fn find_variables_by_name(
    elf: &Elf<impl Source>,
    has_name: impl Fn(&[u8]) -> bool,
) -> Result<Vec<(String, u64)>, ElfError> {
    let mut found = Vec::new();
    for_each_symbol(elf, SHT_SYMTAB, |name, symbol| {
        if found.len() < MAX_NAMED_VARIABLES && symbol.st_type() == STT_OBJECT && has_name(name) {
            found.push((String::from_utf8_lossy(name).into_owned(), symbol.st_value.get(LE)));
        }
    })?;
    Ok(found)
}

/// Returns the name of the variable at each of `addresses`; `None` for an address without a variable in the symbol
/// tables. If several variables contain an address, the smallest one counts.
pub(crate) fn find_variables(elf: &Elf<impl Source>, addresses: &[u64]) -> Result<Vec<Option<String>>, ElfError> {
    let mut sorted: Vec<(u64, usize)> = addresses.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let mut found: Vec<Option<(u64, String)>> = vec![None; addresses.len()];
    let mut variables = 0;
    for table in [SHT_SYMTAB, SHT_DYNSYM] {
        for_each_symbol(elf, table, |name, symbol| {
            if symbol.st_type() != STT_OBJECT || name.is_empty() {
                return;
            }
            let (start, size) = (symbol.st_value.get(LE), symbol.st_size.get(LE));
            let end = start.saturating_add(size.max(1));
            let first = sorted.partition_point(|(address, _)| *address < start);
            for &(_, index) in sorted[first..].iter().take_while(|(address, _)| *address < end) {
                variables += 1;
                if variables > MAX_VARIABLES {
                    return;
                }
                if found[index].as_ref().is_none_or(|(smallest, _)| size < *smallest) {
                    let name = &name[..name.len().min(MAX_VARIABLE_NAME)];
                    found[index] = Some((size, String::from_utf8_lossy(name).into_owned()));
                }
            }
        })?;
    }
    Ok(found.into_iter().map(|variable| variable.map(|(_, name)| name)).collect())
}

/// As [`find_functions`], for the symbol table of this section type.
fn find_functions_in(
    elf: &Elf<impl Source>,
    table: SectionType,
    has_name: impl Fn(&[u8]) -> bool,
) -> Result<Option<Vec<(String, Symbol)>>, ElfError> {
    let (mut functions, mut left) = (Vec::new(), Some(MAX_FOUND));
    let visited = for_each_symbol(elf, table, |full, symbol| {
        let kind = match symbol.st_type() {
            STT_FUNC => SymbolKind::Function,
            STT_GNU_IFUNC => SymbolKind::Indirect,
            _ => return,
        };
        let name = full.split(|&byte| byte == b'@').next().unwrap_or_default();
        if has_name(name) {
            left = left.and_then(|left| left.checked_sub(full.len() + size_of::<Symbol>()));
            if left.is_none() {
                return;
            }
            functions.push((
                String::from_utf8_lossy(name).into_owned(),
                Symbol {
                    full_name: String::from_utf8_lossy(full).into_owned(),
                    kind,
                    virt: VirtOffset(symbol.st_value.get(LE)),
                    size: symbol.st_size.get(LE),
                },
            ));
        }
    })?;
    left.ok_or(ElfError::Malformed("too many functions have one of these names"))?;
    Ok(visited.map(|()| functions))
}

/// Calls `visit` with the name and the entry of each symbol that the object defines, and that has a name of at most
/// [`MAX_NAME`] bytes; `None` if the table is stripped.
fn for_each_symbol(
    elf: &Elf<impl Source>,
    table: SectionType,
    mut visit: impl FnMut(&[u8], &Sym64<LittleEndian>),
) -> Result<Option<()>, ElfError> {
    let Some((symbols, names)) = symbol_tables(elf, table)? else { return Ok(None) };
    let names = elf.bytes(names.offset, names.size)?;
    let symbols = read_symbols(elf, &symbols)?;
    let mut left = MOST_SHARED * (names.len() + size_of_val(&symbols[..]));
    for symbol in symbols.iter().filter(|symbol| symbol.st_shndx.get(LE) != SHN_UNDEF) {
        let name = name_at(&names, symbol.st_name.get(LE) as usize);
        let length = name.map_or(MAX_NAME, <[u8]>::len);
        left = left.checked_sub(length).ok_or(ElfError::Malformed("the names of symbols are too long"))?;
        if let Some(name) = name {
            visit(name, symbol);
        }
    }
    Ok(Some(()))
}

/// Returns the name at an offset of a string table; `None` if it is longer than [`MAX_NAME`] or not in the table.
fn name_at(names: &[u8], at: usize) -> Option<&[u8]> {
    let rest = names.get(at..)?;
    let length = rest.iter().take(MAX_NAME + 1).position(|&byte| byte == 0)?;
    rest.get(..length)
}

/// Returns the addresses of all functions, sorted; `None` if the symbol table is stripped.
pub(crate) fn function_starts(elf: &Elf<impl Source>) -> Result<Option<Vec<u64>>, ElfError> {
    let Some((symbols, _)) = symbol_tables(elf, SHT_SYMTAB)? else { return Ok(None) };
    let symbols = read_symbols(elf, &symbols)?;
    let function = |symbol: &&Sym64<LittleEndian>| {
        symbol.st_shndx.get(LE) != SHN_UNDEF && matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC)
    };
    let mut starts: Vec<u64> = symbols.iter().filter(function).map(|symbol| symbol.st_value.get(LE)).collect();
    starts.sort_unstable();
    Ok(Some(starts))
}

/// Returns the addresses of the functions with names, sorted. Parts of functions that the compiler has moved away, such as
/// `f.cold`, are left out.
pub(crate) fn named_functions(elf: &Elf<impl Source>) -> Result<Vec<u64>, ElfError> {
    let mut addresses = Vec::new();
    for table in [SHT_SYMTAB, SHT_DYNSYM] {
        for_each_symbol(elf, table, |name, symbol| {
            if symbol.st_type() == STT_FUNC && !name.windows(COLD.len()).any(|part| part == COLD) {
                addresses.push(symbol.st_value.get(LE));
            }
        })?;
    }
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

fn read_symbols(elf: &Elf<impl Source>, table: &Table) -> Result<Vec<Sym64<LittleEndian>>, ElfError> {
    let size = size_of::<Sym64<LittleEndian>>() as u64;
    let bytes = elf.bytes(table.offset, table.size / size * size)?;
    Ok(pod::slice_from_all_bytes(&bytes).map_err(|()| BEYOND)?.to_vec())
}

/// Returns the symbol table of this section type, and its string table.
fn symbol_tables(elf: &Elf<impl Source>, kind: SectionType) -> Result<Option<(Table, Table)>, ElfError> {
    type Section = SectionHeader64<LittleEndian>;
    let Some(sections) = Sections::read(elf) else { return Ok(None) };
    let sections = sections.headers();
    let Some(symbols) = sections.iter().find(|section| section.sh_type.get(LE) == kind) else {
        return Ok(None);
    };
    let names = sections.get(symbols.sh_link.get(LE) as usize).ok_or(BEYOND)?;
    let table = |section: &Section| {
        let table = Table { offset: section.sh_offset.get(LE), size: section.sh_size.get(LE) };
        if table.size > MAX_TABLE {
            return Err(ElfError::Malformed("too many symbols"));
        }
        // Reads the last byte, so that no memory is allocated for a table beyond the end of the file.
        if let Some(last) = table.size.checked_sub(1) {
            elf.bytes(table.offset.checked_add(last).ok_or(BEYOND)?, 1)?;
        }
        Ok(table)
    };
    Ok(Some((table(symbols)?, table(names)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_of_names_is_bounded() {
        let names = [b"\0first\0".as_slice(), &[b'x'; MAX_NAME], b"\0", &[b'y'; MAX_NAME + 1], b"\0last"].concat();
        let (longest, too_long) = (7, 7 + MAX_NAME + 1);
        let text = |at| name_at(&names, at).and_then(|name| std::str::from_utf8(name).ok());
        assert_eq!([0, 1, 6].map(text), [Some(""), Some("first"), Some("")]);
        assert_eq!(name_at(&names, longest).map(<[u8]>::len), Some(MAX_NAME));
        assert_eq!(name_at(&names, too_long), None);
        assert_eq!(name_at(&names, too_long + 1).map(<[u8]>::len), Some(MAX_NAME));
        // The table ends within the name, or before it.
        assert_eq!([names.len() - 4, names.len(), usize::MAX].map(|at| name_at(&names, at)), [None; 3]);
    }
}
