//! Machine code of a process, compared byte by byte: with its files, or with the code at another moment.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use memtrace_object::overlay::layout::MAPS_PATH;

/// First byte of `jmp rel32`. A patch replaces an instruction by such a jump.
const JUMP: u8 = 0xe9;

/// Length of `jmp rel32`.
const JUMP_SIZE: u64 = 5;

/// `int3`, which the kernel writes where a uprobe is (arch/x86/include/asm/uprobes.h, `UPROBE_SWBP_INSN`).
const BREAKPOINT: u8 = 0xcc;

/// Executable mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mapping {
    path: String,
    /// Offset of the first byte in the file.
    offset: u64,
    start: u64,
    end: u64,
}

impl Mapping {
    /// Reads the mapping in a line of `/proc/PID/maps`; returns `None` if it is not executable, has no file, or is a stub.
    fn read(line: &str) -> Option<Self> {
        let (path, [start, end, offset]) = parse(line, "x")?;
        (path.starts_with('/') && path != MAPS_PATH).then(|| Self { path: path.to_owned(), offset, start, end })
    }

    fn range(&self) -> String {
        format!("{:x}-{:x}", self.start, self.end)
    }

    /// Returns the bytes of the mapping that `file` has at `offset`; fewer at the end of the file.
    fn bytes(&self, file: &File, offset: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.end - self.start).expect("64 bits")];
        let mut done = 0;
        while done < bytes.len() {
            match file.read_at(&mut bytes[done..], offset + done as u64).expect("code can be read") {
                0 => break,
                count => done += count,
            }
        }
        bytes.truncate(done);
        bytes
    }
}

/// Returns the path, and the start, the end and the file offset of a mapping with the flag `flag` in its permissions.
pub(crate) fn parse<'line>(line: &'line str, flag: &str) -> Option<(&'line str, [u64; 3])> {
    let mut fields = line.splitn(6, ' ');
    let (range, permissions, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let (start, end) = range.split_once('-')?;
    let path = fields.nth(2)?.trim_start();
    let number = |text| u64::from_str_radix(text, 16).ok();
    permissions.contains(flag).then_some((path, [number(start)?, number(end)?, number(offset)?]))
}

/// Executable code of a process, without the stubs of patches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(BTreeMap<Mapping, Vec<u8>>);

impl Text {
    /// Reads the code of process `pid`.
    ///
    /// # Panics
    ///
    /// If the process has ended.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let memory = memory(pid);
        Self(mappings(pid).map(|mapping| (mapping.clone(), mapping.bytes(&memory, mapping.start))).collect())
    }

    /// Asserts that the code is the same as `before`.
    ///
    /// # Panics
    ///
    /// If a byte or a mapping differs.
    pub fn assert_same(&self, before: &Self) {
        let mappings = |text: &Self| text.0.keys().cloned().collect::<Vec<_>>();
        assert_eq!(mappings(self), mappings(before), "the executable mappings have changed");
        let mut changes = Vec::new();
        for ((mapping, bytes), earlier) in self.0.iter().zip(before.0.values()) {
            assert_eq!(bytes.len(), earlier.len(), "{mapping:?}");
            for (index, (byte, earlier)) in bytes.iter().zip(earlier).enumerate().filter(|(_, (a, b))| a != b) {
                changes.push(format!(
                    "{}+{:#x}: {earlier:#x} is {byte:#x}",
                    mapping.path,
                    mapping.offset + index as u64
                ));
            }
        }
        assert!(changes.is_empty(), "code has changed: {changes:#?}");
    }
}

/// A jump in the code of a process that its file does not have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Patch {
    pub path: String,
    /// Offset of the first byte of the jump in the file.
    pub offset: u64,
}

impl fmt::Display for Patch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}+{:#x}", self.path, self.offset)
    }
}

/// Returns the patches of process `pid`. A breakpoint is no patch, and any other difference between the code and its file is a
/// failure.
///
/// # Panics
///
/// If the process has ended, or its code has another difference.
#[must_use]
pub fn patches(pid: u32) -> Vec<Patch> {
    let memory = memory(pid);
    let mut patches = Vec::new();
    for mapping in mappings(pid) {
        let file = File::open(format!("/proc/{pid}/map_files/{}", mapping.range()));
        let original = mapping.bytes(&file.expect("the mapped file can be opened"), mapping.offset);
        let code = mapping.bytes(&memory, mapping.start);
        for start in jumps(&code, &original) {
            patches.push(Patch { path: mapping.path.clone(), offset: mapping.offset + start });
        }
    }
    patches
}

/// Returns the indices of the jumps in `code` that `original` does not have.
fn jumps(code: &[u8], original: &[u8]) -> Vec<u64> {
    let mut jumps: Vec<Range<u64>> = Vec::new();
    for (index, (&byte, _)) in code.iter().zip(original).enumerate().filter(|(_, (byte, original))| byte != original) {
        let at = index as u64;
        if jumps.last().is_some_and(|jump| jump.contains(&at)) {
            continue;
        }
        // The first byte of the jump is no difference if the replaced instruction is a jump too.
        let start =
            if byte == JUMP { Some(index) } else { index.checked_sub(1).filter(|&before| code[before] == JUMP) };
        match start {
            Some(start) => jumps.push(start as u64..start as u64 + JUMP_SIZE),
            None => assert_eq!(byte, BREAKPOINT, "the byte {at:#x} has changed"),
        }
    }
    jumps.into_iter().map(|jump| jump.start).collect()
}

fn mappings(pid: u32) -> impl Iterator<Item = Mapping> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process runs");
    maps.lines().filter_map(Mapping::read).collect::<Vec<_>>().into_iter()
}

fn memory(pid: u32) -> File {
    File::open(format!("/proc/{pid}/mem")).expect("the process runs and the test runs as root")
}
