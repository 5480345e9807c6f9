//! The shim's file: `struct samples` of stack_shim.c.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::Place;

const HEAD: u64 = 9 * 8;
const OVERFLOWED: usize = 5;
const OBJECTS_USED: usize = 7;
const STACKS_USED: usize = 8;

const NAME: usize = 256;
const OBJECTS: u64 = 256;
const DEPTH: usize = 300;
const FRAME: usize = 16;
const STACK: usize = 5 * 8 + DEPTH * FRAME;
const STACKS: u64 = 1 << 15;
const BUCKETS: u64 = 2 * STACKS;

const STACKS_AT: u64 = HEAD + OBJECTS * NAME as u64;
pub(super) const FILE_BYTES: u64 = STACKS_AT + STACKS * STACK as u64 + BUCKETS * 4;

/// A stack as libgcc's unwinder took it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Where its calls are, from leaf to root.
    pub places: Vec<Place>,
    /// Whether the last is the outermost; if not, libgcc has no unwind information about it.
    pub whole: bool,
    /// How often it was taken.
    pub count: u64,
    /// How many bytes were allocated there.
    pub bytes: u64,
}

pub(super) fn read(file: &File, program: &Path) -> Vec<Sample> {
    let head = words(&bytes(file, 0, HEAD as usize));
    assert_eq!(head[OVERFLOWED], 0, "the shim's samples did not fit");
    let names = bytes(file, HEAD, head[OBJECTS_USED] as usize * NAME);
    let objects: Vec<&Path> = names
        .chunks_exact(NAME)
        .map(|name| {
            let end = name.iter().position(|&byte| byte == 0).expect("a name ends in a zero");
            match str::from_utf8(&name[..end]).expect("the objects here have names in UTF-8") {
                "" => program,
                "linux-vdso.so.1" => Path::new("[vdso]"),
                name => Path::new(name),
            }
        })
        .collect();
    let stacks = bytes(file, STACKS_AT, head[STACKS_USED] as usize * STACK);
    stacks.chunks_exact(STACK).map(|stack| sample(&words(stack), &objects)).collect()
}

fn sample(stack: &[u64], objects: &[&Path]) -> Sample {
    let &[_, count, bytes, whole, depth, ref frames @ ..] = stack else { unreachable!("a stack has a head") };
    let places = frames.chunks_exact(2).take(depth as usize).map(|frame| match objects.get(frame[0] as usize) {
        Some(object) => Place::in_object(object, frame[1]),
        None => Place::At(frame[1]),
    });
    Sample { places: places.collect(), whole: whole == 1, count, bytes }
}

fn bytes(file: &File, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).expect("the samples can be read");
    bytes
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_ne_bytes(word)).collect()
}
