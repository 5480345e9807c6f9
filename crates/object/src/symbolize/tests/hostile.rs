//! Symbolization of truncated, random and contradictory files.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::program::{Program, Scratch, run};
use super::{Frame, Name, Symbolizer, Unnamed, brief, frames_at, outer_with_inlined, symbolizer};
use crate::object_files::ObjectFiles;

#[test]
fn a_truncated_file_gives_no_names() {
    let program = Program::new(&["-g"]);
    let whole = fs::read(program.path()).unwrap();
    let cut = program.scratch.file("cut");
    let named = frames_at(&symbolizer(), &program.image(Some(program.path()), None), program.returns[0]);
    for length in (0..whole.len()).step_by(97) {
        fs::write(&cut, &whole[..length]).unwrap();
        let frames = frames_at(&symbolizer(), &program.image(Some(cut.clone()), None), program.returns[0]);
        // The section headers are at the end of the file.
        assert_eq!(frames[0].name, Err(Unnamed::ObjectUnreadable), "{length} bytes");
        assert_eq!(frames[0].offset, named[0].offset);
    }
}

/// Files on a file system that does not answer.
#[derive(Debug)]
struct Unanswered;

impl ObjectFiles for Unanswered {
    fn open(&self, _: &Path) -> io::Result<File> {
        Err(io::ErrorKind::TimedOut.into())
    }

    fn open_below(&self, _: &Path, _: &Path) -> io::Result<File> {
        Err(io::ErrorKind::TimedOut.into())
    }

    fn is_own_executable(&self, _: &File) -> bool {
        false
    }
}

#[test]
fn file_without_an_answer_is_the_reason_for_missing_names() {
    let program = Program::new(&[]);
    let symbolizer = Symbolizer { files: &Unanswered, ..symbolizer() };
    let frames = frames_at(&symbolizer, &program.image(Some(program.path()), None), program.returns[0]);
    assert_eq!(frames[0].name, Err(Unnamed::FileTimeout));
}

#[test]
fn a_file_that_is_not_elf_is_unreadable() {
    let program = Program::new(&[]);
    let scratch = Scratch::new();
    let path = scratch.file("garbage");
    let elf = [b"\x7fELF\x02\x01\x01".as_slice(), &[0xff; 4000]].concat();
    for bytes in [Vec::new(), b"#!/bin/sh\n".to_vec(), vec![0; 5000], elf] {
        fs::write(&path, bytes).unwrap();
        let frames = frames_at(&symbolizer(), &program.image(Some(path.clone()), None), program.returns[0]);
        assert_eq!(frames[0].name, Err(Unnamed::ObjectUnreadable));
    }
    let frames = frames_at(&symbolizer(), &program.image(Some(scratch.0.clone()), None), program.returns[0]);
    assert_eq!(frames[0].name, Err(Unnamed::ObjectUnreadable));
}

/// Returns the offset and the length of a section in the program's file.
fn section(program: &Program, name: &str) -> (usize, usize) {
    let sections = run("readelf", &["-SW", program.path().to_str().unwrap()]);
    let name = format!(" {name} ");
    let fields: Vec<_> = sections.split(&name).nth(1).unwrap().split_whitespace().collect();
    let number = |field| usize::from_str_radix(field, 16).unwrap();
    (number(fields[2]), number(fields[3]))
}

/// Returns the frames of the call in `outer`, with the byte at offset `at` of the program's file changed to `value`.
fn with_byte(program: &Program, whole: &[u8], at: usize, value: u8) -> Vec<Frame> {
    let bad = program.scratch.file("bad");
    let mut bytes = whole.to_vec();
    bytes[at] = value;
    fs::write(&bad, &bytes).unwrap();
    frames_at(&symbolizer(), &program.image(Some(bad), None), program.returns[0])
}

#[test]
fn names_survive_contradictory_line_tables() {
    let program = Program::new(&["-g"]);
    let whole = fs::read(program.path()).unwrap();
    let (offset, size) = section(&program, ".debug_line");
    let mut without_lines = 0;
    for at in offset..offset + size {
        for value in [0, 0x7f, 0xff] {
            let frames = with_byte(&program, &whole, at, value);
            assert_eq!(frames[0].name, Ok(Name(String::from("outer"))), "byte {at:#x} is {value:#x}");
            without_lines += u32::from(brief(&frames) == [("outer", None, false)]);
        }
    }
    assert!(without_lines > 0, "no line table was contradictory");
}

#[test]
fn any_wrong_byte_is_tolerated() {
    let program = Program::new(&["-g"]);
    let whole = fs::read(program.path()).unwrap();
    for at in (0..whole.len()).step_by(41) {
        let frames = with_byte(&program, &whole, at, !whole[at]);
        assert!(!frames.is_empty());
    }
}

#[test]
fn a_section_with_an_impossible_size_is_not_decompressed() {
    let program = Program::new(&["-g"]);
    let path = program.path();
    run("objcopy", &["--compress-debug-sections=zlib", path.to_str().unwrap()]);
    let image = program.image(Some(path.clone()), None);
    assert_eq!(brief(&frames_at(&symbolizer(), &image, program.returns[0])), outer_with_inlined());
    let mut bytes = fs::read(&path).unwrap();
    let (offset, _) = section(&program, ".debug_info");
    // Sets `ch_size` of `Elf64_Chdr` to 64 TiB.
    bytes[offset + 8..offset + 16].copy_from_slice(&(1u64 << 46).to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let frames = frames_at(&symbolizer(), &image, program.returns[0]);
    assert_eq!(frames[0].name, Err(Unnamed::ObjectUnreadable));
}
