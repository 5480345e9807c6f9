//! File of the shim: `struct samples` of stack_shim.c.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::CallSite;

const HEADER_BYTES: u64 = 9 * 8;
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

const STACKS_OFFSET: u64 = HEADER_BYTES + OBJECTS * NAME as u64;
pub(super) const FILE_BYTES: u64 = STACKS_OFFSET + STACKS * STACK as u64 + BUCKETS * 4;

/// A stack of libgcc's unwinder, and the number of calls with this stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Call sites from leaf to root.
    pub call_sites: Vec<CallSite>,
    /// True if the stack ends at the root; otherwise libgcc has no unwind information for its last call site.
    pub is_complete: bool,
    pub count: u64,
    /// Bytes that these calls allocated.
    pub bytes: u64,
}

pub(super) fn read(file: &File, program: &Path) -> Vec<Sample> {
    let header = to_words(&read_bytes(file, 0, HEADER_BYTES as usize));
    assert_eq!(header[OVERFLOWED], 0, "the samples exceed the file of the shim");
    let names = read_bytes(file, HEADER_BYTES, header[OBJECTS_USED] as usize * NAME);
    let objects: Vec<&Path> = names
        .chunks_exact(NAME)
        .map(|name| {
            let end = name.iter().position(|&byte| byte == 0).expect("a name ends with a zero byte");
            match str::from_utf8(&name[..end]).expect("the names of objects are UTF-8") {
                "" => program,
                "linux-vdso.so.1" => Path::new("[vdso]"),
                name => Path::new(name),
            }
        })
        .collect();
    let stacks = read_bytes(file, STACKS_OFFSET, header[STACKS_USED] as usize * STACK);
    stacks.chunks_exact(STACK).map(|stack| parse_sample(&to_words(stack), &objects)).collect()
}

fn parse_sample(stack: &[u64], objects: &[&Path]) -> Sample {
    let &[_, count, bytes, is_complete, depth, ref frames @ ..] = stack else { unreachable!("a stack has a header") };
    let call_sites = frames.chunks_exact(2).take(depth as usize).map(|frame| match objects.get(frame[0] as usize) {
        Some(object) => CallSite::in_object(object, frame[1]),
        None => CallSite::Address(frame[1]),
    });
    Sample { call_sites: call_sites.collect(), is_complete: is_complete == 1, count, bytes }
}

fn read_bytes(file: &File, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset).expect("the samples can be read");
    bytes
}

fn to_words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_ne_bytes(word)).collect()
}
