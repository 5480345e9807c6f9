//! Breakpoints in the code of a process.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use crate::process::TIMEOUT;

/// `int3`, which the kernel writes where a uprobe is (arch/x86/include/asm/uprobes.h, `UPROBE_SWBP_INSN`).
const BREAKPOINT: u8 = 0xcc;

/// Returns the breakpoints in the code of process `pid`, as `path+file offset`. Any other difference between the code
/// and its file is a failure.
#[must_use]
pub fn list(pid: u32) -> Vec<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process runs");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("the process runs and the test runs as root");
    let mut breakpoints = Vec::new();
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[range, flags, offset, _, _, path] = &fields[..] else { continue };
        if !flags.contains('x') || !path.starts_with('/') {
            continue;
        }
        let [start, end, offset] = [range.split('-').next(), range.split('-').nth(1), Some(offset)]
            .map(|number| u64::from_str_radix(number.expect("a range has two ends"), 16).expect("a number"));
        let code = read(&memory, start, end - start).expect("code can be read");
        let file = File::open(format!("/proc/{pid}/map_files/{range}")).expect("the mapped file can be opened");
        let original = read(&file, offset, end - start).expect("the mapped file can be read");
        for (index, (byte, original)) in code.iter().zip(&original).enumerate() {
            if byte != original {
                let location = format!("{path}+{:#x}", offset + index as u64);
                assert_eq!(*byte, BREAKPOINT, "{location} was changed");
                breakpoints.push(location);
            }
        }
    }
    breakpoints
}

/// Waits until process `pid` has no breakpoints.
pub fn wait_until_removed(pid: u32) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let remaining = list(pid);
        if remaining.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "breakpoints remain: {remaining:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Reads up to `length` bytes from `offset` on; fewer at the end of the file.
fn read(file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}
