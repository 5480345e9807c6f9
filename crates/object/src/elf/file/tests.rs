use std::fs::File;
use std::path::{Path, PathBuf};

use harness::Scratch;
use harness::fixtures::{ASAN, GLIBC, MUSL, output, readelf_build_id};

use super::*;
use crate::elf::{notes, variables_from};

#[test]
fn build_ids_match_readelf() {
    let own = std::env::current_exe().unwrap();
    let files = [Path::new(GLIBC), Path::new(MUSL), Path::new("/bin/cat"), &own];
    for path in files {
        let file = File::open(path).unwrap();
        let found = notes::build_id(&Elf::parse(&file).unwrap()).unwrap();
        assert_eq!(found.map(|id| id.to_string()), readelf_build_id(path), "{}", path.display());
    }
    assert!(readelf_build_id(GLIBC).is_some());
}

#[test]
fn interpreter_needed_and_soname_match_readelf() {
    for path in [GLIBC, MUSL, "/bin/bash", ASAN] {
        let printed = output("readelf", &["-dlW".as_ref(), path.as_ref()]);
        let bracketed = |mark: &str| -> Vec<Vec<u8>> {
            let lines = printed.lines().filter(|line| line.contains(mark));
            lines.map(|line| line.as_bytes()[line.find('[').unwrap() + 1..line.rfind(']').unwrap()].to_vec()).collect()
        };
        let file = File::open(path).unwrap();
        let elf = Elf::parse(&file).unwrap();
        assert_eq!(elf.needed().unwrap(), bracketed("(NEEDED)"), "{path}");
        let soname = elf.soname().unwrap().map(String::into_bytes);
        assert_eq!(soname.into_iter().collect::<Vec<_>>(), bracketed("(SONAME)"), "{path}");
        let interpreter = elf.interpreter().unwrap().map(|path| String::from_utf8(path).unwrap());
        let expected = printed.split("interpreter: ").nth(1).and_then(|rest| rest.split(']').next());
        assert_eq!(interpreter.as_deref(), expected, "{path}");
    }
}

#[test]
fn executables_without_an_interpreter_are_static() {
    let scratch = Scratch::new();
    let is_static = |path: &Path| Elf::parse(&File::open(path).unwrap()).unwrap().is_static().unwrap();
    let built =
        |name: &str, flags: &[&str]| is_static(&scratch.compile("gcc", name, "int main(void) { return 0; }", flags));
    assert!(built("static", &["-static"]) && built("static-pie", &["-static-pie", "-s"]));
    assert!(!built("pie", &["-pie"]) && !built("fixed", &["-no-pie"]) && !built("library.so", &["-shared", "-fPIC"]));
    // The dynamic linkers are no static executables.
    let linker = |path| {
        PathBuf::from(
            String::from_utf8(Elf::parse(&File::open(path).unwrap()).unwrap().interpreter().unwrap().unwrap()).unwrap(),
        )
    };
    assert!(!is_static(&linker("/bin/bash")) && !is_static(Path::new(MUSL)));
}

#[test]
fn libraries_are_no_executables() {
    let is_executable = |path: &Path| Elf::parse(&File::open(path).unwrap()).unwrap().is_executable().unwrap();
    let scratch = Scratch::new();
    let fixed = scratch.compile("gcc", "fixed", "int main(void) { return 0; }", &["-no-pie"]);
    let library = scratch.compile("gcc", "library.so", "int f(void) { return 0; }", &["-shared", "-fPIC"]);
    assert!(is_executable(&fixed) && is_executable(Path::new("/bin/bash")));
    assert!(!is_executable(&library) && !is_executable(Path::new(GLIBC)) && !is_executable(Path::new(MUSL)));
}

#[test]
fn variables_end_as_printed_by_readelf() {
    let scratch = Scratch::new();
    let path = scratch.compile("gcc", "big", "char big[300000]; int one = 1; int main(void) { return big[one]; }", &[]);
    let headers = output("readelf", &["-lW".as_ref(), path.as_ref()]);
    // LOAD OFFSET VIRT PHYS FILESIZE MEMSIZE RW ALIGN
    let line = headers.lines().find(|line| line.contains("LOAD") && line.contains("RW")).unwrap();
    let fields: Vec<_> = line.split_whitespace().collect();
    let [offset, memory] = [1, 5].map(|at| u64::from_str_radix(&fields[at][2..], 16).unwrap());
    let file = File::open(path).unwrap();
    let elf = Elf::parse(&file).unwrap();
    let page = offset - offset % 4096;
    assert_eq!(variables_from(elf.segments(), page), Some(memory + offset - page));
    assert_eq!(variables_from(elf.segments(), page + 4096), Some(memory + offset - page - 4096));
    assert!(memory > 300_000);
    assert_eq!(variables_from(elf.segments(), 0), None, "code");
    assert_eq!(variables_from(elf.segments(), u64::MAX), None);
}
