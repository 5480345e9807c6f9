use std::fs::File;
use std::path::{Path, PathBuf};

use super::*;
use crate::scratch::{ASAN, GLIBC, MUSL, Scratch, output, readelf_build_id};

#[test]
fn build_ids_match_readelf() {
    let own = std::env::current_exe().unwrap();
    let files = [Path::new(GLIBC), Path::new(MUSL), Path::new("/bin/cat"), &own];
    for path in files {
        let file = File::open(path).unwrap();
        let found = Elf::parse(&file).unwrap().build_id().unwrap();
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
    // The dynamic linkers.
    let linker = |path| {
        PathBuf::from(
            String::from_utf8(Elf::parse(&File::open(path).unwrap()).unwrap().interpreter().unwrap().unwrap()).unwrap(),
        )
    };
    assert!(!is_static(&linker("/bin/bash")) && !is_static(Path::new(MUSL)));
}
