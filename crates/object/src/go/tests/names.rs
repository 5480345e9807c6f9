//! Names, source lines and inlined calls of hand-encoded tables.

use std::fs::File;
use std::path::PathBuf;

use harness::Scratch;
use memtrace_model::{Location, Name, VirtOffset};

use super::fake_program::{FakeProgram, IN_GOEXIT, IN_MALLOC, INLINED, MAIN};
use crate::elf::Elf;
use crate::go::{GoExecutable, GoFunction, GoFunctions, GoRefusal};
use crate::symbolize::{FindInProcess, Function, FunctionFinder as _, NameFiles, NamesToRead};

/// One version of each layout of the table.
const VERSIONS: [(&str, u32); 4] = [("go1.19.8", 19), ("go1.20", 20), ("go1.26.6", 26), ("go1.27.3", 27)];

fn at(bytes: &[u8], addresses: &[u64]) -> Vec<Option<Vec<GoFunction>>> {
    let elf = Elf::parse(bytes).unwrap();
    GoFunctions::find(&elf).unwrap().at(&elf, addresses)
}

fn function(name: &str, line: u32) -> GoFunction {
    GoFunction { name: Some(name.to_owned()), source_line: Some((b"/src/main.go".to_vec(), line)) }
}

#[test]
fn inlined_calls_are_expanded_in_each_layout() {
    for (version, minor) in VERSIONS {
        for has_sections in [true, false] {
            let bytes = FakeProgram { has_sections, ..FakeProgram::new(version, minor) }.bytes();
            let found = at(&bytes, &[INLINED[0] - 1, INLINED[1] - 1, MAIN, MAIN + 0x3f, IN_MALLOC - 1]);
            let expected = [
                vec![function("main.main", 10), function("main.outer", 20), function("main.inner", 30)],
                vec![function("main.main", 10), function("main.outer", 20)],
                vec![function("main.main", 10)],
                vec![function("main.main", 11)],
                vec![function("runtime.mallocgc", 5)],
            ];
            assert_eq!(found, expected.map(Some), "{version} {has_sections}");
        }
    }
}

#[test]
fn stripped_go_programs_have_names_and_lines() {
    let scratch = Scratch::new();
    let bytes = FakeProgram { has_symbols: false, ..FakeProgram::new("go1.27.3", 27) }.bytes();
    let path = scratch.write("program", &bytes);
    let find = |reads| {
        let object = File::open(&path).unwrap();
        let files = NameFiles { object, debug_file: None, supplementary: None, reads };
        // All addresses are found, so that no other source of names is opened.
        let finder = FindInProcess { path_of: |_| PathBuf::new(), opens_others: false };
        finder.find(&files, &[VirtOffset(INLINED[0] - 1)])
    };
    let function = |name: &str, line: Option<u32>, inlined| Function {
        name: Some(Name(name.to_owned())),
        location: line.map(|line| Location { file: "/src/main.go".into(), line: Some(line) }),
        inlined,
    };
    let all = NamesToRead { object_debug_info: false, object_symbols: true, debug_file_debug_info: true };
    let expected = [("main.main", 10, false), ("main.outer", 20, true), ("main.inner", 30, true)];
    let expected = expected.map(|(name, line, inlined)| function(name, Some(line), inlined));
    assert_eq!(find(all), [Ok(expected.to_vec())]);
    let names = NamesToRead { debug_file_debug_info: false, ..all };
    assert_eq!(find(names), [Ok(vec![function("main.main", None, false)])]);
}

#[test]
fn addresses_outside_of_the_code_have_no_function() {
    let bytes = FakeProgram::new("go1.27.3", 27).bytes();
    assert_eq!(at(&bytes, &[0, 0x40_01ff, MAIN + 0x40, u64::MAX]), [None, None, None, None]);
    assert_eq!(at(&bytes, &[0x40_0200, IN_GOEXIT]).iter().filter(|functions| functions.is_some()).count(), 2);
}

#[test]
fn tables_of_development_versions_have_no_inlined_calls() {
    let program = FakeProgram { version: "go1.28-devel_d2f4b1c", ..FakeProgram::new("go1.28", 28) };
    let found = at(&program.bytes(), &[INLINED[0] - 1]);
    assert_eq!(found, [Some(vec![function("main.main", 30)])]);
    let refusal = GoExecutable::read(&program.bytes()[..]).unwrap_err();
    assert!(matches!(refusal, GoRefusal::Version(version) if version == program.version));
}

#[test]
fn old_versions_are_refused_with_their_name() {
    let mut bytes = FakeProgram::new("go1.17.13", 19).bytes();
    let refusal = GoExecutable::read(&bytes[..]).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "the layout of the heap profile of go1.17.13 is not known; Go 1.19 to 1.27 are supported"
    );
    // As in Go 1.17: the header has the address of a string, which has an address and a length.
    let string = 0x40_0180_u64;
    bytes[0x10f] = 0;
    bytes[0x110..0x118].copy_from_slice(&string.to_le_bytes());
    bytes[0x180..0x188].copy_from_slice(&(string + 16).to_le_bytes());
    bytes[0x188..0x190].copy_from_slice(&8_u64.to_le_bytes());
    bytes[0x190..0x198].copy_from_slice(b"go1.16.2");
    let refusal = GoExecutable::read(&bytes[..]).unwrap_err();
    assert!(matches!(refusal, GoRefusal::Version(version) if version == "go1.16.2"));
    bytes[0x100] = 0;
    assert!(matches!(GoExecutable::read(&bytes[..]), Err(GoRefusal::NotGo)));
}

#[test]
fn damaged_tables_are_refused() {
    let whole = FakeProgram::new("go1.27.3", 27).bytes();
    // The magic number, the size of a pointer, the number of functions, and the offset of the list of functions.
    for (at, value) in [(0x400, 0xfa), (0x407, 4), (0x40a, 0xff), (0x447, 0xff)] {
        let mut bytes = whole.clone();
        bytes[at] = value;
        assert!(matches!(GoExecutable::read(&bytes[..]), Err(GoRefusal::NoFunctionTable)), "{at:x}");
    }
    // Without the data of the module, the start of the code is not known.
    let mut bytes = whole;
    bytes[0xa00] = 1;
    assert!(matches!(GoExecutable::read(&bytes[..]), Err(GoRefusal::NoFunctionTable)));
}
