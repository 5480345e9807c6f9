//! Look-up of variables by their addresses in a process, and by their names.

use memtrace_model::{FileOffset, VirtOffset};
use object::elf::PT_LOAD;

use super::demangle::demangle;
use crate::elf::{Elf, ElfError, Segment, Source, symbol_table};

/// An address of a process, relative to the code of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataAddress {
    /// File offset of the first byte of a mapping of the object's code.
    pub code: FileOffset,
    /// Distance from this byte to the address.
    pub distance: u64,
}

/// A place among the variables of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Address in the object.
    pub virt: VirtOffset,
    /// Demangled name of the variable that contains the address; `None` if the symbol tables have no such variable.
    pub name: Option<String>,
}

/// Returns the variable at each of `addresses`, in the same order; `None` for an address that is not in a writable
/// segment of the object.
///
/// # Errors
///
/// The file cannot be read, or is damaged.
pub fn find_variables<S: Source>(source: S, addresses: &[DataAddress]) -> Result<Vec<Option<Variable>>, ElfError> {
    let elf = Elf::parse_headers(source)?;
    let all: Vec<_> = addresses.iter().map(|address| variable_address(elf.segments(), *address)).collect();
    let inside: Vec<u64> = all.iter().copied().flatten().collect();
    let mut names = symbol_table::find_variables(&elf, &inside)?.into_iter();
    let mut variable = |virt: u64| Variable {
        virt: VirtOffset(virt),
        name: names.next().flatten().map(|name| demangle(&name).into_owned()),
    };
    Ok(all.into_iter().map(|address| address.map(&mut variable)).collect())
}

/// Returns the addresses of the variables with this symbol and this size in bytes. Source files can have static variables of the
/// same name. Returns an empty list if the symbol table is stripped.
///
/// # Errors
///
/// The file cannot be read, or is damaged.
pub fn find_variables_named<S: Source>(source: S, name: &str, size: u64) -> Result<Vec<VirtOffset>, ElfError> {
    let elf = Elf::parse_headers(source)?;
    let found = symbol_table::find_variables_named(&elf, name.as_bytes(), size)?;
    Ok(found.into_iter().map(VirtOffset).collect())
}

/// Returns the address in the object; `None` if it is not in a writable segment.
fn variable_address(segments: &[Segment], address: DataAddress) -> Option<u64> {
    let loaded = || segments.iter().filter(|segment| segment.kind == PT_LOAD);
    // The kernel maps whole pages, so that a mapping can begin before its segment.
    let is_mapped = |segment: &&Segment| {
        let first = segment.offset - segment.offset % segment.align.max(1);
        let end = segment.offset.saturating_add(segment.file_size);
        segment.executable && first <= address.code.0 && address.code.0 < end
    };
    let code = loaded().find(is_mapped)?;
    let start = code.virt.wrapping_add(address.code.0).wrapping_sub(code.offset);
    let virt = start.wrapping_add(address.distance);
    let is_in = |segment: &Segment| virt.checked_sub(segment.virt).is_some_and(|inside| inside < segment.memory_size);
    loaded().any(|segment| segment.writable && is_in(segment)).then_some(virt)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::path::Path;

    use harness::Scratch;
    use harness::fixtures::output;

    use super::*;

    const SOURCE: &str = "
        namespace service { struct pair { long first, second; } table = {1, 2}; static long zero[4]; }
        extern \"C\" { long plain = 3; long uninitialized; }
        int main(int count, char **) { service::zero[count] = plain; return (int)service::zero[0]; }";

    /// Returns the address and the size of each variable as `nm` prints them, by demangled name.
    fn variables(path: &Path) -> BTreeMap<String, (u64, u64)> {
        let printed = output("nm", &["-SC".as_ref(), path.as_os_str()]);
        let row = |line: &str| {
            let fields: Vec<_> = line.splitn(4, ' ').collect();
            let [virt, size, "b" | "B" | "d" | "D", name] = fields[..] else { return None };
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            Some((name.to_owned(), (number(virt), number(size))))
        };
        printed.lines().filter_map(row).collect()
    }

    #[test]
    fn variables_are_those_of_nm() {
        let scratch = Scratch::new();
        for (build, options) in [("pie", ["-x", "c++", "-pie"]), ("fixed", ["-x", "c++", "-no-pie"])] {
            let path = scratch.compile("g++", build, SOURCE, &options);
            let file = File::open(&path).unwrap();
            let elf = Elf::parse_headers(&file).unwrap();
            let code = elf.segments().iter().find(|segment| segment.kind == PT_LOAD && segment.executable).unwrap();
            let page = code.offset - code.offset % 4096;
            let at = |virt: u64| DataAddress {
                code: FileOffset(page),
                distance: virt.wrapping_sub(code.virt.wrapping_sub(code.offset - page)),
            };
            let all = variables(&path);
            for name in ["service::table", "service::zero", "plain", "uninitialized"] {
                let (virt, size) = all[name];
                let found = find_variables(&file, &[at(virt), at(virt + size - 1)]).unwrap();
                let expected = |virt| Some(Variable { virt: VirtOffset(virt), name: Some(name.to_owned()) });
                assert_eq!(found, [expected(virt), expected(virt + size - 1)], "{build}");
            }
            let outside = [at(code.virt), at(u64::MAX), DataAddress { code: FileOffset(u64::MAX), distance: 0 }];
            assert_eq!(find_variables(&file, &outside).unwrap(), [None, None, None]);
        }
    }

    #[test]
    fn variables_are_found_by_name_and_size() {
        let scratch = Scratch::new();
        let path = scratch.compile("g++", "named", SOURCE, &["-x", "c++"]);
        let file = File::open(&path).unwrap();
        let find = |name, size| find_variables_named(&file, name, size).unwrap();
        let (virt, size) = variables(&path)["service::zero"];
        assert_eq!(find("_ZN7serviceL4zeroE", size), [VirtOffset(virt)]);
        assert_eq!(find("_ZN7serviceL4zeroE", 8), []);
        assert_eq!(find("main", 8), []);
        let stripped = scratch.compile("g++", "nameless", SOURCE, &["-x", "c++", "-s"]);
        assert_eq!(find_variables_named(&File::open(stripped).unwrap(), "plain", 8).unwrap(), []);
    }

    #[test]
    fn addresses_of_stripped_objects_have_no_name() {
        let scratch = Scratch::new();
        let path = scratch.compile("g++", "whole", SOURCE, &["-x", "c++", "-no-pie"]);
        let (virt, _) = variables(&path)["service::table"];
        let stripped = scratch.compile("g++", "stripped", SOURCE, &["-x", "c++", "-no-pie", "-s"]);
        let file = File::open(stripped).unwrap();
        let elf = Elf::parse_headers(&file).unwrap();
        let code = elf.segments().iter().find(|segment| segment.kind == PT_LOAD && segment.executable).unwrap();
        let address = DataAddress { code: FileOffset(code.offset), distance: virt - code.virt };
        let expected = Variable { virt: VirtOffset(virt), name: None };
        assert_eq!(find_variables(&file, &[address]).unwrap(), [Some(expected)]);
    }
}
