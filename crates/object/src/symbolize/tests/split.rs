//! Symbolization by separate debug files and compressed symbol tables.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use super::program::{Program, run};
use super::{
    AllFiles, FINDER, FindInProcess, NameSource, Symbolizer, Unnamed, brief, finder, frames_at, outer_with_inlined,
    symbolizer,
};

/// Copies the program's debug information to the file `into`, and returns the program's build ID.
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
fn a_debug_file_is_found_by_build_id() {
    for compression in ["--decompress-debug-sections", "--compress-debug-sections=zlib"] {
        let program = Program::new(&["-g"]);
        let debug = program.scratch.file("debug");
        let build_id = split(&program, &debug, compression);
        run("strip", &["--strip-all", program.path().to_str().unwrap()]);

        // The debug file is in the file system of a container.
        let root = program.scratch.file("root");
        let directory = root.join("usr/lib/debug/.build-id").join(&build_id[..2]);
        fs::create_dir_all(&directory).unwrap();
        fs::rename(&debug, directory.join(format!("{}.debug", &build_id[2..]))).unwrap();
        let image = program.image(Some(program.path()), Some(root.clone()));
        let frames = frames_at(&Symbolizer::new(&AllFiles, finder()), &image, program.returns[0]);
        assert_eq!(brief(&frames), outer_with_inlined());

        // The debug file is on the host.
        let image = program.image(Some(program.path()), None);
        let on_host = Symbolizer::with_debug_directories(&AllFiles, finder(), vec![root.join("usr/lib/debug")]);
        assert_eq!(brief(&frames_at(&on_host, &image, program.returns[0])), outer_with_inlined());
    }
}

#[test]
fn a_debug_file_with_another_build_id_is_not_used() {
    let program = Program::new(&["-g"]);
    let other = Program::new(&["-g", "-O1"]);
    let own = program.scratch.file("own");
    let build_id = split(&program, &own, "--decompress-debug-sections");
    run("strip", &["--strip-all", program.path().to_str().unwrap()]);
    let installed = program.scratch.file("d/.build-id").join(&build_id[..2]).join(format!("{}.debug", &build_id[2..]));
    split(&other, &installed, "--decompress-debug-sections");
    let image = program.image(Some(program.path()), None);
    let named = || {
        let symbolizer = Symbolizer::with_debug_directories(&AllFiles, finder(), vec![program.scratch.file("d")]);
        frames_at(&symbolizer, &image, program.returns[0])
    };
    let frames = named();
    assert_eq!(brief(&frames), [("", None, false)]);
    assert_eq!(frames[0].name, Err(Unnamed::NoSymbol));
    fs::rename(own, installed).unwrap();
    assert_eq!(brief(&named()), outer_with_inlined());
}

#[test]
fn a_debug_file_is_found_by_debuglink() {
    let program = Program::new(&["-g", "-Wl,--build-id=none"]);
    let path = program.path();
    let path = path.to_str().unwrap();
    let debug = program.scratch.file("debug/linked.debug");
    fs::create_dir_all(debug.parent().unwrap()).unwrap();
    run("objcopy", &["--only-keep-debug", path, debug.to_str().unwrap()]);
    run("strip", &["--strip-all", path]);
    run("objcopy", &[&format!("--add-gnu-debuglink={}", debug.display()), path]);
    let image = program.image(Some(program.path()), None);
    let symbolizer = Symbolizer::with_debug_directories(&AllFiles, finder(), vec![debug.parent().unwrap().into()]);
    let frames = frames_at(&symbolizer, &image, program.returns[0]);
    assert_eq!(brief(&frames), outer_with_inlined());
}

#[test]
fn files_that_an_object_names_are_only_opened_if_that_is_permitted() {
    let program = Program::new(&["-g"]);
    let path = program.path();
    let debug = program.scratch.file("linked.debug");
    split(&program, &debug, "--decompress-debug-sections");
    run("objcopy", &[&format!("--add-gnu-debuglink={}", debug.display()), path.to_str().unwrap()]);
    let image = program.image(Some(path), None);
    let frames = |opens_others| {
        let finder = Box::new(FindInProcess { opens_others, ..FINDER });
        frames_at(&Symbolizer::with_debug_directories(&AllFiles, finder, Vec::new()), &image, program.returns[0])
    };
    assert_eq!(brief(&frames(true)), outer_with_inlined());
    // The symbol table refers to no other file.
    assert_eq!(brief(&frames(false)), [("outer", None, false)]);
}

#[test]
fn a_compressed_symbol_table_is_used() {
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
    assert_eq!(brief(&frames), [("plain", None, false)]);
}

#[test]
fn the_name_source_depends_on_stripping_and_debug_files() {
    let program = Program::new(&["-g"]);
    let path = program.path();
    let debug = program.scratch.file("debug");
    let build_id = split(&program, &debug, "--decompress-debug-sections");
    let directory = program.scratch.file("d");
    let installed = directory.join(".build-id").join(&build_id[..2]).join(format!("{}.debug", &build_id[2..]));
    fs::create_dir_all(installed.parent().unwrap()).unwrap();
    let symbolizer = Symbolizer::with_debug_directories(&AllFiles, finder(), vec![directory]);
    let source = || {
        let image = program.image(Some(path.clone()), Some("/".into()));
        symbolizer.name_source(image.mappings[0].object.as_ref().unwrap())
    };
    assert_eq!(source(), NameSource::DebugInfo);
    run("strip", &["--strip-debug", path.to_str().unwrap()]);
    assert_eq!(source(), NameSource::Symbols);
    run("strip", &["--strip-all", path.to_str().unwrap()]);
    assert_eq!(source(), NameSource::Exported);
    fs::copy(&debug, &installed).unwrap();
    assert_eq!(source(), NameSource::DebugFile(installed));
    run("objcopy", &["--remove-section=.note.gnu.build-id", path.to_str().unwrap()]);
    run("objcopy", &[&format!("--add-gnu-debuglink={}", debug.display()), path.to_str().unwrap()]);
    assert_eq!(source(), NameSource::DebugFile(debug.clone()));
    fs::write(&debug, b"another file").unwrap();
    assert_eq!(source(), NameSource::Exported);
    fs::write(&path, b"not ELF").unwrap();
    assert_eq!(source(), NameSource::None);
}
