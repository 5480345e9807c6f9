//! Symbols and debug information that lie elsewhere than in the object's own sections.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use super::program::{Program, run};
use super::{NamedBy, Symbolizer, Unnamed, frames_at, outer_with_inlined, symbolizer, told};

/// Puts the program's debug information into a file of its own, and returns its build-id.
fn split(program: &Program, into: &Path, compression: &str) -> String {
    let path = program.path();
    let path = path.to_str().unwrap();
    let notes = run("readelf", &["-n", path]);
    let build_id = notes.split("Build ID: ").nth(1).unwrap().split_whitespace().next().unwrap();
    fs::create_dir_all(into.parent().unwrap()).unwrap();
    run("objcopy", &["--only-keep-debug", compression, path, into.to_str().unwrap()]);
    build_id.to_owned()
}

#[test]
fn a_stripped_object_is_named_by_the_debug_file_that_has_its_build_id() {
    for compression in ["--decompress-debug-sections", "--compress-debug-sections=zlib"] {
        let program = Program::new(&["-g"]);
        let debug = program.scratch.file("debug");
        let build_id = split(&program, &debug, compression);
        run("strip", &["--strip-all", program.path().to_str().unwrap()]);

        // As a container's own file system holds it.
        let root = program.scratch.file("root");
        let place = root.join("usr/lib/debug/.build-id").join(&build_id[..2]);
        fs::create_dir_all(&place).unwrap();
        fs::rename(&debug, place.join(format!("{}.debug", &build_id[2..]))).unwrap();
        let image = program.image(Some(program.path()), Some(root.clone()));
        let frames = frames_at(&Symbolizer::new(), &image, program.returns[0]);
        assert_eq!(told(&frames), outer_with_inlined());

        // As the host holds it.
        let image = program.image(Some(program.path()), None);
        let on_host = Symbolizer::with_debug_directories(vec![root.join("usr/lib/debug")]);
        assert_eq!(told(&frames_at(&on_host, &image, program.returns[0])), outer_with_inlined());
    }
}

#[test]
fn a_debug_file_with_another_build_id_is_not_used() {
    let program = Program::new(&["-g"]);
    let other = Program::new(&["-g", "-O1"]);
    let own = program.scratch.file("own");
    let build_id = split(&program, &own, "--decompress-debug-sections");
    run("strip", &["--strip-all", program.path().to_str().unwrap()]);
    let place = program.scratch.file("d/.build-id").join(&build_id[..2]).join(format!("{}.debug", &build_id[2..]));
    split(&other, &place, "--decompress-debug-sections");
    let image = program.image(Some(program.path()), None);
    let named = || {
        let symbolizer = Symbolizer::with_debug_directories(vec![program.scratch.file("d")]);
        frames_at(&symbolizer, &image, program.returns[0])
    };
    let frames = named();
    assert_eq!(told(&frames), [("", None, false)]);
    assert_eq!(frames[0].name, Err(Unnamed::NoSymbol));
    fs::rename(own, place).unwrap();
    assert_eq!(told(&named()), outer_with_inlined());
}

#[test]
fn a_stripped_object_is_named_by_the_debug_file_that_it_links_to() {
    let program = Program::new(&["-g", "-Wl,--build-id=none"]);
    let path = program.path();
    let path = path.to_str().unwrap();
    let debug = program.scratch.file("debug/linked.debug");
    fs::create_dir_all(debug.parent().unwrap()).unwrap();
    run("objcopy", &["--only-keep-debug", path, debug.to_str().unwrap()]);
    run("strip", &["--strip-all", path]);
    run("objcopy", &[&format!("--add-gnu-debuglink={}", debug.display()), path]);
    let image = program.image(Some(program.path()), None);
    let symbolizer = Symbolizer::with_debug_directories(vec![debug.parent().unwrap().into()]);
    let frames = frames_at(&symbolizer, &image, program.returns[0]);
    assert_eq!(told(&frames), outer_with_inlined());
}

#[test]
fn an_object_with_a_compressed_symbol_table_of_its_own_is_named_by_it() {
    let program = Program::new(&[]);
    let path = program.path();
    let path = path.to_str().unwrap();
    let symbols = program.scratch.file("symbols");
    run("objcopy", &["--only-keep-debug", path, symbols.to_str().unwrap()]);
    let mut compressed = Vec::new();
    xz2::read::XzEncoder::new(fs::File::open(&symbols).unwrap(), 6).read_to_end(&mut compressed).unwrap();
    fs::write(&symbols, compressed).unwrap();
    run("strip", &["--strip-all", path]);
    run("objcopy", &["--add-section", &format!(".gnu_debugdata={}", symbols.display()), path]);
    let image = program.image(Some(program.path()), None);
    let frames = frames_at(&symbolizer(), &image, program.returns[1]);
    assert_eq!(told(&frames), [("plain", None, false)]);
}

#[test]
fn what_an_object_can_be_named_by_is_told_as_it_is_stripped_and_its_debug_file_is_installed() {
    let program = Program::new(&["-g"]);
    let path = program.path();
    let debug = program.scratch.file("debug");
    let build_id = split(&program, &debug, "--decompress-debug-sections");
    let directory = program.scratch.file("d");
    let place = directory.join(".build-id").join(&build_id[..2]).join(format!("{}.debug", &build_id[2..]));
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    let symbolizer = Symbolizer::with_debug_directories(vec![directory]);
    let told = || {
        let image = program.image(Some(path.clone()), None);
        symbolizer.named_by(image.mappings[0].object.as_ref().unwrap())
    };
    assert_eq!(told(), NamedBy::DebugInfo);
    run("strip", &["--strip-debug", path.to_str().unwrap()]);
    assert_eq!(told(), NamedBy::Symbols);
    run("strip", &["--strip-all", path.to_str().unwrap()]);
    assert_eq!(told(), NamedBy::Exported);
    fs::copy(&debug, &place).unwrap();
    assert_eq!(told(), NamedBy::DebugFile(place));
    run("objcopy", &["--remove-section=.note.gnu.build-id", path.to_str().unwrap()]);
    run("objcopy", &[&format!("--add-gnu-debuglink={}", debug.display()), path.to_str().unwrap()]);
    assert_eq!(told(), NamedBy::DebugLink);
    fs::write(&path, b"not ELF").unwrap();
    assert_eq!(told(), NamedBy::Nothing);
}
